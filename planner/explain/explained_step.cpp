// Simulates one strategy op by op, and names its communications by kind, group and link.
#include "planner/explain/explained_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// Communications of a critical rank, each named by its kind and group.
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
    if (communicates(op.kind)) {
      const std::string& group = simulation.groups[op.group];
      name = fmt::format("{} over {}", to_text(op.kind), group);
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

}  // namespace

std::string link_of(const CostModel& costs, std::span<const Program> programs,
                    const std::string& group, std::int64_t rank) {
  const std::vector<Level>& levels = costs.cluster().levels;
  if (levels.empty()) return "memory of the node";
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

Picoseconds compute_of(const StepParts& parts) {
  return parts.forward + parts.recompute + parts.backward + parts.optimizer;
}

Picoseconds exposed_of(const StepParts& parts) {
  Picoseconds exposed;
  for (const GroupTime& time : parts.communication) exposed += time.wait + time.transfer;
  return exposed;
}

PlanTime time_of(const Target& target, const ExplainedStep& step) {
  return plan_time(target, step.strategy, step.prediction.step_time, step.prediction.breakdown);
}

}  // namespace plimsoll
