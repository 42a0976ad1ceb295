// Intervals of predicted memory, from models/presets/spreads/memory.json.
#include "plan/memory_interval.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/log_statistics.h"
#include "models/presets/known_json.h"
#include "plan/filling.h"

namespace plimsoll {
namespace {

MemorySpread read_spread() {
  const Json json = known_json(spread_presets(), "memory");
  JsonObject object(json, "memory.json");
  object.text("source");
  MemorySpread spread;
  spread.allocated = object.number("allocated", 0, 1);
  spread.kept = object.number("kept", 0, 1);
  spread.device = object.number("device", 0, 1);
  spread.outside = object.number("outside", 0, 1);
  spread.allocated_of_source = object.number("allocated_of_source", 1e-4, 1);
  spread.kept_of_source = object.number("kept_of_source", 1e-4, 1);
  spread.noise = object.number("noise", 1e-4, 1);
  spread.noise_spread = object.number("noise_spread", 1e-4, 10);
  object.finish();
  return spread;
}

bool has_arena(const Framework& framework) {
  return framework.memory.allocator.kind == AllocatorKind::arena;
}

/// Returns the probability that memory exceeds the capacity. It is normal around `taken`, with nine
/// in ten within the half width.
double overflow(Bytes taken, double half, Bytes capacity) {
  if (half == 0) return taken > capacity ? 1 : 0;
  const double deviations =
      (double(capacity.count()) / double(taken.count()) - 1) * kNormal90 / half;
  return std::erfc(deviations / std::numbers::sqrt2) / 2;
}

Bytes times(double factor, Bytes bytes) {
  return Bytes(std::int64_t(factor * double(bytes.count())));
}

/// Returns the memory of a stage as runs of one's own had it.
StagePrediction as_learned(StagePrediction stage, const std::optional<LearnedMemory>& learned) {
  if (learned) stage.reserved = times(learned->factor, stage.reserved);
  return stage;
}

double device_half_width(const Framework& framework, const PredictedMemory& memory,
                         const std::optional<LearnedMemory>& learned) {
  return learned ? std::hypot(learned->half_width, memory_spread().device)
                 : memory_half_width(MemoryKind::device, framework, memory);
}

}  // namespace

const MemorySpread& memory_spread() {
  static const MemorySpread read = read_spread();
  return read;
}

std::string_view to_text(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::allocated:
      return "allocated";
    case MemoryKind::reserved:
      return "reserved";
    case MemoryKind::device:
      return "device";
  }
  INVARIANT(false, "a kind of memory");
}

double memory_half_width(MemoryKind kind, const Framework& framework,
                         const PredictedMemory& memory) {
  if (has_arena(framework)) {
    const Bytes device = memory.reserved + memory.outside;
    if (kind != MemoryKind::device || device == Bytes()) return 0;
    return memory_spread().outside * double(memory.outside.count()) / double(device.count());
  }
  switch (kind) {
    case MemoryKind::allocated:
      return memory_spread().allocated;
    case MemoryKind::reserved:
      return std::hypot(memory_spread().allocated, memory_spread().kept);
    case MemoryKind::device:
      return std::hypot(memory_spread().allocated, memory_spread().kept, memory_spread().device);
  }
  INVARIANT(false, "a kind of memory");
}

PredictedMemory memory_of(const StagePrediction& stage) {
  return {stage.allocated, stage.reserved, {}};
}

MemoryInterval memory_interval(std::span<const StagePrediction> stages, const Framework& framework,
                               Bytes outside, Bytes reserve,
                               const std::optional<LearnedMemory>& learned) {
  MemoryInterval interval;
  interval.learned = learned;
  if (stages.empty()) return interval;
  bool fits = true;
  std::vector<Filling> fillings;
  for (const StagePrediction& stage : stages) {
    fits = fits && filling_of(stage, outside, reserve).fits();
    fillings.push_back(filling_of(as_learned(stage, learned), outside, reserve));
  }
  const std::size_t fullest = fullest_of(fillings);
  PredictedMemory memory = memory_of(as_learned(stages[fullest], learned));
  memory.outside = outside;
  const double half = device_half_width(framework, memory, learned);
  interval.taken = fillings[fullest].taken();
  interval.low = times(1 - half, interval.taken);
  interval.high = times(1 + half, interval.taken);
  interval.overflow = overflow(interval.taken, half, fillings[fullest].capacity);
  if (!fits) {
    interval.verdict = MemoryVerdict::does_not_fit;
  } else if (interval.high > fillings[fullest].capacity) {
    interval.verdict = MemoryVerdict::tight;
  }
  return interval;
}

MemoryInterval memory_interval(const Plan& plan) {
  return memory_interval(plan.prediction.stages, plan.framework,
                         memory_outside_program(plan.job, plan.strategy, plan.framework),
                         plan.reserve, plan.prediction.memory.learned);
}

double least_overflow(Bytes peak, Bytes capacity, const Framework& framework, Bytes outside,
                      const std::optional<LearnedMemory>& learned) {
  // An allocator that holds live bytes alone: the least memory there can be.
  if (learned) peak = times(learned->factor, peak);
  const PredictedMemory least{peak, peak, outside};
  const double half = device_half_width(framework, least, learned);
  if (times(1 + half, peak + outside) <= capacity) return 0;
  return overflow(peak + outside, half, capacity);
}

Unusual tight_memory(double overflow) {
  const double most = std::min(overflow, 0.5);  // what fits by prediction is at least as likely to
  return {UnusualChoice::tight_memory, most / (1 - most)};
}

}  // namespace plimsoll
