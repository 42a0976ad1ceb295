// Simulates the plan's Programs with other rates, and its neighbours with its own rates.
#include "planner/explain/sensitivity.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/parallel.h"
#include "planner/search/search.h"
#include "predict/default_efficiency.h"

namespace plimsoll {
namespace {

Seconds step_of(const Target& target, const Strategy& strategy, const Footprint& footprint) {
  return simulate(footprint.programs, costs_of(target, strategy), Folding::folded, Detail::none)
      .step_time;
}

std::vector<RateEffect> rate_effects(const ExplainRequest& request) {
  struct Change {
    double factor;
    Seconds RateEffect::*step;
  };
  static constexpr std::array kChanges = {Change{1 - kRateChange, &RateEffect::slower},
                                          Change{1 + kRateChange, &RateEffect::faster},
                                          Change{2, &RateEffect::doubled}};
  const Footprint footprint =
      lay_out(request.target, request.strategy, Proof::none, AllocatorReplay::leave_out);
  std::vector<RateEffect> effects(kRates.size());
  for_each_index(kRates.size() * kChanges.size(), request.threads, [&](std::size_t i) {
    check_goes_on(request);
    RateEffect& effect = effects[i / kChanges.size()];
    const Change& change = kChanges[i % kChanges.size()];
    const Rate rate = kRates[i / kChanges.size()];
    const auto changed = with_rate(request.target, rate, change.factor);
    if (changed) effect.*change.step = step_of(*changed, request.strategy, footprint);
  });
  for (std::size_t r = 0; r < kRates.size(); ++r) {
    effects[r].rate = kRates[r];
    effects[r].is_there = effects[r].faster > Seconds();
  }
  return effects;
}

MemoryEffect memory_effect(const ExplainRequest& request, const PlanTime& plan) {
  MemoryEffect effect{request.strategy, plan.step_time, {}, true, {}};
  try {
    const Plan found =
        best_plan(request, with_memory(request.target, 2), request.time_limit ? 0 : kMostRounds);
    effect.proven = found.search.proven;
    effect.least_step = found.prediction.step_time / (1 + found.search.gap);
    // Where a search ends early, the plan may be faster than all that it found.
    if (found.prediction.step_time >= plan.step_time) return effect;
    const PlanTime time = plan_time(request.target, found.strategy, found.prediction.step_time,
                                    found.prediction.breakdown);
    effect.strategy = found.strategy;
    effect.step_time = time.step_time;
    effect.ratio = step_ratio(*request.target.costs, time, plan);
  } catch (const NothingFoundYet&) {
    effect.proven = false;
  }
  return effect;
}

/// The parts that a cost model is made of.
struct Parts {
  Cluster cluster;
  std::optional<Calibration> calibration;
  Framework framework;
  std::optional<FittedCalibration> fitted;
};

Parts parts_of(const CostModel& costs) {
  return {costs.cluster(), costs.calibration(), costs.framework(), costs.fitted()};
}

Target with_parts(const Target& target, Parts parts) {
  return Target(target.job,
                CostModel(std::move(parts.cluster), std::move(parts.calibration),
                          std::move(parts.framework), std::move(parts.fitted)),
                target.devices, target.reserve);
}

void divide(Sample& sample, double by) {
  sample.median = sample.median / by;
  sample.spread = sample.spread / by;
}

void for_each_device(Cluster& cluster, const std::function<void(Device&)>& change) {
  change(cluster.device);
  for (OtherDevices& others : cluster.other_devices) change(others.device);
}

void scale_arithmetic(Parts& parts, double factor) {
  for_each_device(parts.cluster, [&](Device& device) {
    for (auto* peak : {&device.peak_fp32, &device.peak_bf16, &device.peak_fp16, &device.peak_fp8}) {
      if (*peak) *peak = **peak * factor;
    }
  });
  if (!parts.calibration) return;
  for (MatmulPoint& point : parts.calibration->matmuls) divide(point.time, factor);
}

void scale_memory_bandwidth(Parts& parts, double factor) {
  for_each_device(parts.cluster, [&](Device& device) {
    device.memory_bandwidth = device.memory_bandwidth * factor;
  });
  if (!parts.calibration) return;
  for (OpPoint& point : parts.calibration->ops) divide(point.time, factor);
}

/// Scales links within nodes or all others. Returns whether there are any.
bool scale_links(Parts& parts, bool within_node, double factor) {
  bool any = false;
  for (std::size_t l = 0; l < parts.cluster.levels.size(); ++l) {
    // An outermost level of one node states no number of devices.
    const bool is_within = is_within_node(parts.cluster, l) || parts.cluster.nodes == 1;
    if (is_within != within_node) continue;
    any = true;
    Level& level = parts.cluster.levels[l];
    level.bandwidth = level.bandwidth * factor;
    for (std::optional<BytesPerSecond>* rate : {&level.peer_bandwidth, &level.group_bandwidth}) {
      if (*rate) *rate = **rate * factor;
    }
  }
  if (!parts.calibration) return any;
  for (CollectivePoint& point : parts.calibration->collectives) {
    if ((point.nodes == 1) != within_node) continue;
    any = true;
    divide(point.time, factor);
  }
  return any;
}

void scale_host(Parts& parts, double factor) {
  Framework& framework = parts.framework;
  for (Seconds* time : {&framework.host.dispatch.op, &framework.host.dispatch.gather,
                        &framework.host.dispatch.gradient, &framework.host.waits.time})
    *time = *time / factor;
  if (!parts.calibration) return;
  Calibration& calibration = *parts.calibration;
  for (Sample* sample :
       {&calibration.dispatch_op, &calibration.dispatch_call, &calibration.wake_up})
    divide(*sample, factor);
  if (calibration.launch) divide(*calibration.launch, factor);
}

}  // namespace

Plan best_plan(const ExplainRequest& request, const Target& target, std::int64_t most_rounds) {
  SearchRequest search_request{target, request.constraints};
  search_request.threads = request.threads;
  search_request.time_limit = request.time_limit;
  search_request.tolerance = kNoRunnersUp;
  std::atomic<bool> ends = false;
  // A round is over when its progress is reported. Rounds do not depend on the threads.
  search_request.progress = [&, rounds = std::int64_t{0}](std::int64_t done,
                                                          std::int64_t of) mutable {
    ++rounds;
    ends = most_rounds > 0 && rounds >= most_rounds;
    if (!request.progress) return;
    // Rounds, where their number ends the search, say better than strategies how much is left.
    most_rounds > 0 ? request.progress(std::min(rounds, most_rounds), most_rounds)
                    : request.progress(done, of);
  };
  search_request.stop = [&] { return ends.load() || (request.stop && request.stop()); };
  return search(search_request);
}

Sensitivity sensitivity(const ExplainRequest& request, const ExplainedStep& plan) {
  Sensitivity result;
  const PlanTime time = time_of(request.target, plan);
  result.rates = rate_effects(request);
  const std::vector<Fixed> changes = neighbours(request.target, request.strategy, Reach::one_step);
  result.changes = assess_changes(request, request.strategy, changes, time);
  best_first(result.changes);
  result.memory = memory_effect(request, time);
  return result;
}

std::string_view to_text(Rate rate) {
  switch (rate) {
    case Rate::arithmetic:
      return "arithmetic";
    case Rate::memory_bandwidth:
      return "memory bandwidth";
    case Rate::link_within_node:
      return "links within a node";
    case Rate::network:
      return "network";
    case Rate::host:
      return "host";
  }
  return "";
}

std::optional<Target> with_rate(const Target& target, Rate rate, double factor) {
  Parts parts = parts_of(*target.costs);
  switch (rate) {
    case Rate::arithmetic:
      scale_arithmetic(parts, factor);
      break;
    case Rate::memory_bandwidth:
      scale_memory_bandwidth(parts, factor);
      break;
    case Rate::link_within_node:
    case Rate::network:
      if (!scale_links(parts, rate == Rate::link_within_node, factor)) return std::nullopt;
      break;
    case Rate::host:
      scale_host(parts, factor);
      break;
  }
  return with_parts(target, std::move(parts));
}

Target with_memory(const Target& target, std::int64_t times) {
  Parts parts = parts_of(*target.costs);
  for_each_device(parts.cluster, [&](Device& device) { device.memory = device.memory * times; });
  return with_parts(target, std::move(parts));
}

}  // namespace plimsoll
