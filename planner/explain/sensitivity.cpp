// Simulates the plan's Programs with other rates, and its neighbours with its own rates.
#include "planner/explain/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/parallel.h"
#include "graph/op_table.h"
#include "planner/search/search.h"
#include "predict/default_efficiency.h"

namespace plimsoll {
namespace {

/// Communications of a critical rank, each named by its kind and group, and copies with the host.
struct NamedOps {
  std::vector<std::string> names;               ///< "", then in order of appearance
  std::map<std::string, std::string> group_of;  ///< by name
};

/// Lets the groups of the critical rank's ops be indices of their names.
NamedOps name_communications(Simulation& simulation) {
  NamedOps named;
  named.names = {""};
  for (CriticalOp& op : simulation.critical) {
    std::string name;
    if (const std::string& group = simulation.groups[op.group]; !group.empty()) {
      name = communicates(op.kind) ? fmt::format("{} over {}", to_text(op.kind), group)
                                   : std::string(to_text(op.kind));
      named.group_of[name] = group;
    }
    const auto at = std::ranges::find(named.names, name);
    op.group = std::uint16_t(at - named.names.begin());
    if (at == named.names.end()) named.names.push_back(name);
  }
  return named;
}

/// Returns the time of local ops that only move data, as far as they belong to this step.
Picoseconds traffic_of(const Simulation& simulation) {
  const auto& critical = simulation.critical;
  if (critical.empty()) return {};
  const Picoseconds start = std::ranges::min_element(critical, {}, &CriticalOp::posted)->posted;
  const Picoseconds end = start + to_picoseconds(simulation.step_time);
  Picoseconds total;
  for (const CriticalOp& op : critical) {
    if (row(op.kind).op_class != OpClass::memory_bound) continue;
    const Picoseconds last = std::min(op.end, end);
    if (op.begin < last) total += last - op.begin;
  }
  return total;
}

std::vector<Filling> fillings_of(const Target& target, const Strategy& strategy,
                                 std::span<const StagePrediction> stages) {
  const Bytes outside = outside_program(target, strategy);
  std::vector<Filling> fillings;
  for (const StagePrediction& stage : stages)
    fillings.push_back(filling_of(stage, outside, target.reserve));
  return fillings;
}

/// Returns how many stages away the peers of a rank's transfers are.
std::set<std::int64_t> transfer_offsets(std::span<const Program> programs, std::int64_t rank) {
  const std::int64_t stage = programs[0].grid.coordinates(rank)[std::size_t(Axis::pp)];
  std::set<std::int64_t> offsets;
  for (const Program& program : programs) {
    if (program.stage != stage) continue;
    for (const Routine& routine : program.routines) {
      for (const Op& op : routine.ops) {
        if (const auto* transfer = std::get_if<TransferParams>(&op.params))
          offsets.insert(transfer->stage_offset);
      }
    }
  }
  return offsets;
}

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

std::string link_of(const CostModel& costs, std::span<const Program> programs,
                    const std::string& group, std::int64_t rank) {
  const std::vector<Level>& levels = costs.cluster().levels;
  if (levels.empty()) return "memory of the node";
  if (group == "host") return "link to the host";
  const Grid& grid = programs[0].grid;
  std::size_t level = 0;
  if (group == "pp") {
    for (const std::int64_t offset : transfer_offsets(programs, rank)) {
      const std::int64_t peer = pipeline_peer(grid, rank, offset);
      const std::array<std::int64_t, 2> pair = {std::min(rank, peer), std::max(rank, peer)};
      level = std::max(level, costs.spread(pair).level);
    }
  } else if (const std::optional<Group> known = group_from(group)) {
    level = costs.spread(members(grid, *known, rank)).level;
  }
  return levels[level].name;
}

ExplainedStep explain_step(const Target& target, const Strategy& strategy) {
  ExplainedStep step;
  step.strategy = strategy;
  step.slowest = slowest_rank(target, strategy);
  const Footprint footprint = lay_out(target, strategy, Proof::none);
  step.prediction =
      predict(target, strategy, footprint, Folding::folded, Detail::critical).prediction;
  Simulation simulation =
      simulate(footprint.programs, costs_of(target, strategy), Folding::folded, Detail::critical);
  const NamedOps named = name_communications(simulation);
  step.parts = take_apart(simulation.critical, named.names, simulation.step_time, strategy.pp > 1);
  const Grid& grid = footprint.programs[0].grid;
  for (const GroupTime& time : step.parts.communication) {
    step.links.push_back(link_of(*target.costs, footprint.programs, named.group_of.at(time.group),
                                 simulation.critical_rank));
  }
  step.memory_traffic = traffic_of(simulation);
  step.critical_stage = grid.coordinates(simulation.critical_rank)[std::size_t(Axis::pp)];
  step.fillings = fillings_of(target, strategy, footprint.stages);
  const std::size_t fullest = fullest_of(step.fillings);
  step.fullest =
      memory_at_peak(target, strategy, footprint.programs[fullest], footprint.stages[fullest]);
  step.fits = std::ranges::all_of(step.fillings, &Filling::fits);
  return step;
}

PlanTime time_of(const Target& target, const ExplainedStep& step) {
  return plan_time(target, step.strategy, step.prediction.step_time, step.prediction.breakdown);
}

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
