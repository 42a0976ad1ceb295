// Gathers tensors at the peak, communication, a finer timeline and sensitivity for a report.
#include "planner/explain/report_explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "graph/traffic.h"
#include "plan/timeline_detail.h"
#include "simulator/costs/matmul_curves.h"
#include "simulator/costs/size_curve.h"

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

struct SizedPoint {
  Bytes size;
  Sample time;
};

double relative_spread(const Sample& time) { return time.spread / time.median; }

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Returns the curve of points at several sizes, which come in any order.
MeasuredCurve sized_curve(const std::string& what, std::vector<SizedPoint> points) {
  std::ranges::stable_sort(points, {}, &SizedPoint::size);
  MeasuredCurve curve{what, std::int64_t(points.size()), 0, {}};
  std::vector<double> spreads;
  for (std::size_t left = 0; left < points.size(); ++left) {
    spreads.push_back(relative_spread(points[left].time));
    if (left == 0 || left + 1 == points.size()) continue;
    SizeCurve others;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i != left) others.add(points[i].size, points[i].time);
    }
    curve.left_out.push_back(others.at(points[left].size).time / points[left].time.median);
  }
  curve.spread = median_of(std::move(spreads));
  std::ranges::sort(curve.left_out);
  return curve;
}

std::string form_words(const MatmulPoint& point) {
  std::string words = fmt::format("matmul {}", to_text(point.dtype));
  if (point.shape.batch > 1) words += ", batched";
  if (point.transpose_a) words += ", left transposed";
  if (point.transpose_b) words += ", right transposed";
  if (point.accumulate) words += ", accumulating";
  if (point.bias) words += ", with bias";
  return words;
}

/// The bandwidth of the memory is a part of the roofline to which curves are relative. Any sensible
/// one will do, because the curves fit what is left.
BytesPerSecond bandwidth_of(const Calibration& calibration) {
  double most = 0;
  for (const OpPoint& point : calibration.ops)
    most = std::max(most, double(point.moved.count()) / point.time.median.value());
  return BytesPerSecond(most > 0 ? most : 1e12);
}

void add_matmuls(const Calibration& calibration, std::vector<MeasuredCurve>& curves) {
  const std::vector<MatmulPoint>& points = calibration.matmuls;
  std::map<std::string, std::vector<std::size_t>> forms;
  for (std::size_t i = 0; i < points.size(); ++i) forms[form_words(points[i])].push_back(i);
  for (const auto& [what, form] : forms) {
    MeasuredCurve curve{what, std::int64_t(form.size()), 0, {}};
    std::vector<double> spreads;
    for (const std::size_t left : form) {
      const MatmulPoint& point = points[left];
      spreads.push_back(relative_spread(point.time));
      if (form.size() == 1) continue;
      MatmulCurves others(bandwidth_of(calibration));
      for (const std::size_t i : form) {
        if (i != left) others.add(points[i]);
      }
      const MatmulForm key{point.transpose_a, point.transpose_b,     point.accumulate,
                           point.bias,        point.shape.batch > 1, point.dtype};
      curve.left_out.push_back(others.at(point.shape, key).time / point.time.median);
    }
    curve.spread = median_of(std::move(spreads));
    std::ranges::sort(curve.left_out);
    curves.push_back(std::move(curve));
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

MeasuredMachine measured_machine(const Calibration& calibration) {
  MeasuredMachine machine{
      calibration.device, calibration.backend, calibration.date, calibration.versions, {}};
  add_matmuls(calibration, machine.curves);
  std::map<std::string, std::vector<SizedPoint>> ops, collectives;
  for (const OpPoint& point : calibration.ops) {
    std::string what = fmt::format("{} {}", to_text(point.kind), to_text(point.dtype));
    if (point.row > 0) what += fmt::format(", rows of {}", point.row);
    ops[what].push_back({point.moved, point.time});
  }
  for (const CollectivePoint& point : calibration.collectives) {
    std::string what = describe(point);
    if (adds_up(point.kind)) what += fmt::format(" {}", to_text(point.dtype));
    if (point.communicator != calibration.communicator)
      what += fmt::format(", by {}", to_text(point.communicator));
    collectives[what].push_back({point.payload, point.time});
  }
  for (auto* curves : {&ops, &collectives}) {
    for (auto& [what, points] : *curves)
      machine.curves.push_back(sized_curve(what, std::move(points)));
  }
  return machine;
}

}  // namespace plimsoll
