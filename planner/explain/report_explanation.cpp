// Gathers tensors at the peak, communication, a finer timeline and sensitivity for a report.
#include "planner/explain/report_explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "graph/traffic.h"
#include "plan/timeline_detail.h"
#include "planner/explain/measured_curves.h"

namespace plimsoll {
namespace {

/// Stages whose tensors are listed at most.
constexpr std::size_t kMostPeaks = 8;

std::vector<TensorsAtPeak> peaks_of(const ExplainRequest& request, const Footprint& footprint,
                                    const ExplainedStep& step) {
  std::vector<TensorsAtPeak> peaks;
  for (const AlikeStages& alike : alike_stages(step.fillings, kMostPeaks)) {
    const std::size_t stage = alike.fullest;
    const StageMemory memory = memory_at_peak(request.target, request.strategy,
                                              footprint.programs[stage], footprint.stages[stage]);
    TensorsAtPeak peak{stage, memory.stage.allocated, {}};
    for (const AliveTensors& one : memory.alive)
      peak.tensors.push_back({one.name, one.role, one.count, one.bytes});
    peaks.push_back(std::move(peak));
  }
  return peaks;
}

/// Joins the times of the critical rank's communications with the bytes that it sends.
std::vector<Communication> communications_of(const Program& program, std::int64_t rank,
                                             const ExplainedStep& step) {
  std::map<std::string, Traffic> traffic;
  for (const Traffic& one : step_traffic(program, rank)) {
    const std::string axes = one.kind == OpKind::send ? "pp" : to_text(one.group);
    traffic[fmt::format("{} over {}", to_text(one.kind), axes)] = one;
  }
  constexpr std::string_view kOver = " over ";
  std::vector<Communication> list;
  for (std::size_t i = 0; i < step.links.size(); ++i) {
    const GroupTime& time = step.parts.communication[i];
    const std::size_t over = time.group.find(kOver);
    Communication one;
    one.kind = time.group.substr(0, over);
    one.axes = time.group.substr(over + kOver.size());
    one.link = step.links[i];
    const auto sent = traffic.find(time.group);
    if (sent != traffic.end()) {
      one.count = sent->second.count;
      one.sent = sent->second.sent;
    }
    one.wait = time.wait;
    one.transfer = time.transfer;
    one.hidden = time.hidden;
    list.push_back(std::move(one));
  }
  const auto exposed = [](const Communication& one) { return one.wait + one.transfer; };
  std::ranges::stable_sort(list, std::greater(), exposed);
  return list;
}

/// Simulates the step once more, for a timeline with more intervals than a plan file holds.
Simulation add_timeline(const ExplainRequest& request, const Footprint& footprint,
                        Explanation& found) {
  Simulation simulation =
      simulate(footprint.programs, costs_of(request.target, request.strategy), Folding::folded,
               shows_calls(request.target.devices) ? Detail::calls_and_critical : Detail::ops);
  found.timeline = std::move(simulation.timeline);
  Timeline critical{std::move(simulation.critical_intervals), {}};
  if (critical.intervals.empty()) {  // the timeline has them, op by op
    std::ranges::copy_if(
        found.timeline.intervals, std::back_inserter(critical.intervals),
        [&](const Interval& interval) { return interval.rank == simulation.critical_rank; });
  }
  for (RankMemory& memory : found.timeline.memory) memory.curve.clear();  // the plan has them
  found.resolution = draw_together(found.timeline, kMostShownIntervals);
  found.critical_resolution = draw_together(critical, kMostShownIntervals);
  found.critical = std::move(critical.intervals);
  return simulation;
}

void add_sensitivity(const ExplainRequest& request, const ExplainedStep& step, Explanation& found) {
  const Sensitivity sensitive = sensitivity(request, step);
  for (const RateEffect& effect : sensitive.rates) {
    if (!effect.is_there) continue;
    found.rates.push_back(
        {std::string(to_text(effect.rate)), effect.slower, effect.faster, effect.doubled});
  }
  const MemoryEffect& memory = sensitive.memory;
  found.twice_memory = {memory.strategy, memory.step_time, memory.ratio, memory.proven};
  for (const AssessedChange& change : sensitive.changes) {
    found.neighbours.push_back({change.strategy, std::string(to_text(change.outcome)), change.rule,
                                change.need, change.step_time, change.ratio});
  }
}

}  // namespace

Explanation explanation_for_report(const ExplainRequest& request) {
  Explanation found;
  const Footprint footprint =
      lay_out(request.target, request.strategy, Proof::none, AllocatorReplay::run);
  const ExplainedStep step = explain_step(request.target, request.strategy);
  const Simulation simulation = add_timeline(request, footprint, found);
  found.critical_rank = simulation.critical_rank;
  found.critical_stage = step.critical_stage;
  found.peaks = peaks_of(request, footprint, step);
  const Grid& grid = footprint.programs[0].grid;
  const Program& program =
      footprint.programs[class_of(footprint.programs, grid.coordinates(simulation.critical_rank))];
  found.communication = communications_of(program, simulation.critical_rank, step);
  add_sensitivity(request, step, found);
  found.fitted = request.target.costs->fitted();
  if (const auto& measured = request.target.costs->calibration())
    found.measured = measured_machine(*measured);
  return found;
}

}  // namespace plimsoll
