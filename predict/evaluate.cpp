// Lowers a strategy, simulates its Programs and reads the prediction off the simulation.
#include "predict/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/text.h"
#include "graph/step_flops.h"
#include "graph/text.h"
#include "passes/strategy/step_rules.h"
#include "plan/memory_interval.h"
#include "predict/learned_interval.h"
#include "simulator/memory/allocation_replay.h"

namespace plimsoll {
namespace {

/// Returns the name of a type as jobs and clusters write it.
std::string_view precision_of(DType dtype) {
  if (dtype == DType::f32) return "fp32";
  if (is_fp8(dtype)) return "fp8";
  return dtype == DType::f16 ? "fp16" : "bf16";
}

/// Returns the matmul FLOPs of one step that repeat forward work, over all ranks.
Flops recomputed_flops(std::span<const Program> programs) {
  Flops total;
  for (const Program& program : programs) {
    const Flops of_rank = step_flops(program)[std::size_t(Phase::recompute)];
    total += of_rank * static_cast<double>(ranks_per_class(programs));
  }
  return total;
}

std::string peak_source(const Cluster& cluster, DType dtype, std::int64_t devices) {
  const auto by_kind = devices_by_kind(cluster, devices);
  std::string text;
  for (const auto& [kind, count] : by_kind) {
    if (by_kind.size() > 1) {
      text += fmt::format("{}{} x ", text.empty() ? "mean of " : "; ", count);
    }
    text += fmt::format("{} {}, {}", device_of(cluster, kind).name, precision_of(dtype),
                        source_of(cluster, pointer_of_device(kind) + "/peak"));
  }
  return shortened(text, 4000);  // a plan holds it, whose texts are limited
}

void fill_rates(Prediction& prediction, const Target& target, std::span<const Program> programs) {
  const Job& job = target.job;
  const FlopsPerSecond rate = peak_rate(target.cluster(), job.precision, target.devices);
  const double step = prediction.step_time.value();
  const auto sequences = static_cast<double>(job.global_batch);
  const double available = step * static_cast<double>(target.devices) * rate.value();
  const double model = training_matmul_flops_per_sequence(job).value() * sequences;
  prediction.tokens_per_second = static_cast<double>(tokens_per_step(job)) / step;
  prediction.mfu = model / available;
  prediction.hfu = (model + recomputed_flops(programs).value()) / available;
  prediction.peak_flops = rate;
  prediction.peak_source = peak_source(target.cluster(), job.precision, target.devices);
}

/// Returns for each Program the least memory of the devices that run it.
std::vector<Bytes> capacities(std::span<const Program> programs, const Cluster& cluster) {
  std::vector<Bytes> least(programs.size(), cluster.device.memory);
  if (cluster.other_devices.empty()) return least;
  const Grid& grid = programs[0].grid;
  std::vector<bool> known(programs.size());
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const std::size_t c = class_of(programs, grid.coordinates(rank));
    const Bytes memory = device_of(cluster, device_kind(cluster, rank)).memory;
    least[c] = known[c] ? std::min(least[c], memory) : memory;
    known[c] = true;
  }
  return least;
}

StagePrediction lay_out_stage(const Program& program, Bytes capacity) {
  const MemoryPeak memory = memory_peak(program);
  StagePrediction stage;
  stage.stage = program.stage;
  stage.peak = stage.allocated = memory.peak;
  stage.by_role = memory.by_role;
  stage.arena = stage.reserved = program.arena_bytes;
  stage.capacity = capacity;
  stage.host = host_bytes(program);
  stage.owner = program.owner;
  return stage;
}

void replay_allocators(const Target& target, const Strategy& strategy, Footprint& footprint) {
  const Bytes unavailable = outside_program(target, strategy) + target.reserve;
  for (std::size_t i = 0; i < footprint.stages.size(); ++i) {
    StagePrediction& stage = footprint.stages[i];
    const AllocatorUse use =
        replay_on_device(footprint.programs[i], target.framework(), stage.capacity - unavailable);
    stage.allocated = use.allocated;
    stage.reserved = use.reserved;
  }
}

/// Refuses to simulate more ranks than fit in memory.
void check_unfolded(const Target& target, const Strategy& strategy) {
  const std::int64_t ranks = target.devices / strategy.pp;
  if (const Verdict verdict = step_is_bounded(target.job, strategy, ranks); !verdict)
    throw InfeasibleError(fmt::format("every rank is to be simulated; {}", verdict.reason()));
}

/// Returns the relative standard deviation of step times, which lengths of examples cause.
double spread_of_examples(const Target& target, const Strategy& strategy,
                          std::span<const Program> programs, Seconds step) {
  if (target.job.lengths.empty()) return 0;
  const SlowestRank slowest = slowest_rank(target, strategy);
  const CostModel longer =
      costs_of_layers(target, strategy).with_attention_factor(slowest.mean + slowest.deviation);
  return simulate(programs, longer, Folding::folded, Detail::none).step_time / step - 1;
}

/// Adds such a spread to an interval.
StepInterval with_spread(StepInterval interval, double spread) {
  const double of_steps = 1.645 * spread;  // 90 % of a normal distribution
  if (spread == 0) return interval;
  return {1 / (1 + std::hypot(1 / interval.low - 1, of_steps)),
          1 + std::hypot(interval.high - 1, of_steps)};
}

/// Returns what the costs of ops leave open of the step time, relative.
double fill_provenance(Prediction& prediction, const Simulation& simulation) {
  prediction.worst = simulation.worst;
  Seconds op_time;
  for (Seconds time : simulation.by_provenance) op_time += time;
  for (std::size_t i = 0; i < simulation.by_provenance.size() && op_time.value() > 0; ++i) {
    prediction.share_by_provenance[i] = simulation.by_provenance[i] / op_time;
  }
  for (const OutOfRange& ops : simulation.out_of_range) {
    prediction.extrapolated.push_back({ops.what, ops.time / simulation.step_time});
  }
  return op_time.value() > 0 ? simulation.open / op_time : 0;
}

/// Returns the measured parts of a step whose exposed communication has the share `exposed`.
MeasuredParts measured_parts(const MeasuredShares& shares, double exposed) {
  return {shares.kernels * (1 - exposed), shares.communications * exposed,
          shares.communications_open};
}

}  // namespace

FlopsPerSecond peak_rate(const Cluster& cluster, DType dtype, std::int64_t devices) {
  const auto by_kind = devices_by_kind(cluster, devices);
  FlopsPerSecond sum;
  for (const auto& [kind, count] : by_kind) {
    const auto rate = peak(device_of(cluster, kind), dtype);
    INVARIANT(rate, "check_peak_rate() refuses devices without a rate");
    if (by_kind.size() == 1) return *rate;
    sum += *rate * double(count);
  }
  return sum / double(devices);
}

void check_peak_rate(const Cluster& cluster, DType dtype, std::int64_t devices,
                     const std::string& file) {
  for (const auto& [kind, count] : devices_by_kind(cluster, devices)) {
    const Device& device = device_of(cluster, kind);
    if (peak(device, dtype)) continue;
    std::string stated;
    for (const DType other : {DType::f32, DType::bf16, DType::f16, DType::e4m3}) {
      if (!peak(device, other)) continue;
      stated += fmt::format("{}{}", stated.empty() ? "" : ", ", precision_of(other));
    }
    throw InputError(file.empty() ? "cluster " + cluster.name : file,
                     pointer_of_device(kind) + "/peak",
                     fmt::format("found {}; the job needs {}", stated, precision_of(dtype)));
  }
}

Footprint lay_out(const Target& target, const Strategy& strategy, Proof proof,
                  AllocatorReplay replay) {
  Footprint footprint;
  // A search lays out many candidates: without an arena their addresses decide nothing.
  const bool needs_addresses = has_arena(target.framework()) || proof != Proof::none;
  footprint.programs = lower(context_of(target, strategy), {}, proof,
                             needs_addresses ? Addresses::planned : Addresses::left_out);
  const std::vector<Bytes> memory = capacities(footprint.programs, target.cluster());
  for (const Program& program : footprint.programs) {
    footprint.stages.push_back(lay_out_stage(program, memory[footprint.stages.size()]));
  }
  if (!has_arena(target.framework()) && replay == AllocatorReplay::run)
    replay_allocators(target, strategy, footprint);
  return footprint;
}

Bytes largest(std::span<const StagePrediction> stages, Bytes StagePrediction::*bytes) {
  Bytes most;
  for (const StagePrediction& stage : stages) most = std::max(most, stage.*bytes);
  return most;
}

const StagePrediction& tightest_of(std::span<const StagePrediction> stages) {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const StagePrediction& a, const StagePrediction& b) {
                             return a.reserved - a.capacity < b.reserved - b.capacity;
                           });
}

std::vector<std::string> digests_of(std::span<const Program> programs) {
  std::vector<std::string> digests;
  for (const Program& program : programs) digests.push_back(digest(print(program)));
  return digests;
}

Evaluation predict(const Target& target, const Strategy& strategy, const Footprint& footprint,
                   Folding folding, Detail detail) {
  const CostModel& costs = *target.costs;
  // First: the cost model takes it for granted that the device can compute in this dtype.
  check_peak_rate(costs.cluster(), target.job.precision, target.devices);
  if (strategy.precision.fp8 != Fp8::none)
    check_peak_rate(costs.cluster(), DType::e4m3, target.devices);
  Simulation simulation = simulate(footprint.programs, costs_of(target, strategy), folding, detail);
  Evaluation evaluation;
  Prediction& prediction = evaluation.prediction;
  prediction.step_time = simulation.step_time;
  prediction.stages = footprint.stages;
  prediction.memory =
      memory_interval(footprint.stages, target.framework(), outside_program(target, strategy),
                      target.reserve, learned_memory(target));
  if (detail != Detail::none) {
    evaluation.parts =
        take_apart(simulation.critical, simulation.groups, simulation.step_time, strategy.pp > 1);
    simulation.critical = std::vector<CriticalOp>();  // frees it, unlike {}
    evaluation.critical_rank = simulation.critical_rank;
    evaluation.computes = std::move(simulation.computes);
    prediction.breakdown = break_down(evaluation.parts, simulation.step_time);
  }
  const double open = fill_provenance(prediction, simulation);
  evaluation.measured = measured_parts(
      simulation.measured, prediction.breakdown.exposed_communication / prediction.step_time);
  const TimedStep step{layer_shape(target.job, strategy), target.devices, prediction.step_time,
                       prediction.breakdown};
  evaluation.open = step_open(costs, target.job, step, open);
  const bool learned = costs.fitted() && costs.fitted()->learned && detail != Detail::none;
  StepInterval interval = learned
                              ? learned_interval(target, strategy, footprint, prediction,
                                                 unseen_source(evaluation.open))
                              : step_interval(costs, target.job, step, open, evaluation.measured);
  if (detail != Detail::none)
    interval = with_spread(
        interval, spread_of_examples(target, strategy, footprint.programs, prediction.step_time));
  prediction.step_time_low = prediction.step_time * interval.low;
  prediction.step_time_high = prediction.step_time * interval.high;
  fill_rates(prediction, target, footprint.programs);
  evaluation.timeline = std::move(simulation.timeline);
  return evaluation;
}

Evaluation evaluate(const Target& target, const Strategy& strategy, Folding folding) {
  if (folding == Folding::unfolded) check_unfolded(target, strategy);
  const Footprint footprint = lay_out(target, strategy, Proof::order);
  try {
    const Detail detail = shows_calls(target.devices) ? Detail::calls : Detail::ops;
    Evaluation evaluation = predict(target, strategy, footprint, folding, detail);
    evaluation.program_digests = digests_of(footprint.programs);
    return evaluation;
  } catch (const InfeasibleError& too_long) {
    if (fits_devices(target, strategy, footprint.stages)) throw;
    const StagePrediction& tightest = tightest_of(footprint.stages);
    throw InfeasibleError(
        fmt::format("{}; nor does it fit: a device would need {} ({} bytes) with {} of context and "
                    "communicators and {} of reserve, and has {} ({} bytes)",
                    too_long.what(), to_text(tightest.reserved), tightest.reserved.count(),
                    to_text(outside_program(target, strategy)), to_text(target.reserve),
                    to_text(tightest.capacity), tightest.capacity.count()));
  }
}

}  // namespace plimsoll
