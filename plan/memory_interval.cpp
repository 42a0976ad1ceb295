// Intervals of predicted memory, from models/presets/spreads/memory.json.
#include "plan/memory_interval.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/log_statistics.h"
#include "models/presets/known_json.h"
#include "plan/filling.h"

namespace plimsoll {
namespace {

/// Relative half widths of 90 % intervals. Each but the last is in addition to the ones before.
struct MemorySpread {
  double allocated = 0;  ///< of bytes of tensors
  double kept = 0;       ///< of bytes that an allocator holds
  double device = 0;     ///< of bytes that the driver shows
  double outside = 0;    ///< of context and communicators, where all other memory is known
};

MemorySpread read_spread() {
  const Json json = known_json(spread_presets(), "memory");
  JsonObject object(json, "memory.json");
  object.text("source");
  MemorySpread spread;
  spread.allocated = object.number("allocated", 0, 1);
  spread.kept = object.number("kept", 0, 1);
  spread.device = object.number("device", 0, 1);
  spread.outside = object.number("outside", 0, 1);
  object.finish();
  return spread;
}

const MemorySpread& spread() {
  static const MemorySpread read = read_spread();
  return read;
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

}  // namespace

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
    return spread().outside * double(memory.outside.count()) / double(device.count());
  }
  switch (kind) {
    case MemoryKind::allocated:
      return spread().allocated;
    case MemoryKind::reserved:
      return std::hypot(spread().allocated, spread().kept);
    case MemoryKind::device:
      return std::hypot(spread().allocated, spread().kept, spread().device);
  }
  INVARIANT(false, "a kind of memory");
}

PredictedMemory memory_of(const StagePrediction& stage) {
  return {stage.allocated, stage.reserved, {}};
}

MemoryInterval memory_interval(std::span<const StagePrediction> stages, const Framework& framework,
                               Bytes outside, Bytes reserve) {
  MemoryInterval interval;
  if (stages.empty()) return interval;
  std::vector<Filling> fillings;
  for (const StagePrediction& stage : stages)
    fillings.push_back(filling_of(stage, outside, reserve));
  const std::size_t fullest = fullest_of(fillings);
  PredictedMemory memory = memory_of(stages[fullest]);
  memory.outside = outside;
  const double half = memory_half_width(MemoryKind::device, framework, memory);
  interval.taken = fillings[fullest].taken();
  interval.low = times(1 - half, interval.taken);
  interval.high = times(1 + half, interval.taken);
  interval.overflow = overflow(interval.taken, half, fillings[fullest].capacity);
  if (!fillings[fullest].fits()) {
    interval.verdict = MemoryVerdict::does_not_fit;
  } else if (interval.high > fillings[fullest].capacity) {
    interval.verdict = MemoryVerdict::tight;
  }
  return interval;
}

MemoryInterval memory_interval(const Plan& plan) {
  return memory_interval(plan.prediction.stages, plan.framework,
                         memory_outside_program(plan.job, plan.strategy, plan.framework),
                         plan.reserve);
}

double least_overflow(Bytes peak, Bytes capacity, const Framework& framework, Bytes outside) {
  // An allocator that holds live bytes alone: the least memory there can be.
  const PredictedMemory least{peak, peak, outside};
  const double half = memory_half_width(MemoryKind::device, framework, least);
  if (times(1 + half, peak + outside) <= capacity) return 0;
  return overflow(peak + outside, half, capacity);
}

Unusual tight_memory(double overflow) {
  const double most = std::min(overflow, 0.5);  // what fits by prediction is at least as likely to
  return {UnusualChoice::tight_memory, most / (1 - most)};
}

}  // namespace plimsoll
