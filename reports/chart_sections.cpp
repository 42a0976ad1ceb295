// The sections that are charts: pipeline timeline, memory curve, training curve.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "reports/gantt.h"
#include "reports/markup.h"
#include "reports/memory_chart.h"
#include "reports/numbers.h"
#include "reports/report_sections.h"

namespace plimsoll {
namespace {

/// Memory curves shown: all ranks up to this many, else one of each stage.
constexpr std::size_t kMostMemoryCharts = 8;

Picoseconds span_of(const Timeline& timeline) {
  return timeline_end(timeline) - timeline_begin(timeline);
}

/// One scale for all charts: the longest of the timelines and of the step times marked on them.
Picoseconds common_span(const ReportInput& input) {
  Picoseconds span =
      std::max(span_of(input.plan.timeline), to_picoseconds(input.plan.prediction.step_time));
  if (input.measured) {
    span = std::max({span, span_of(input.measured->timeline),
                     to_picoseconds(input.measured->median_step_time)});
  }
  return span;
}

std::string cap_note(std::size_t intervals, bool truncated) {
  if (truncated) {
    return fmt::format("Only the first {} intervals of the step are in the plan.",
                       grouped(std::int64_t(kMostIntervals)));
  }
  if (intervals <= kMostIntervals) return "";
  return fmt::format("The first {} of {} intervals are drawn.",
                     grouped(std::int64_t(kMostIntervals)), grouped(std::int64_t(intervals)));
}

std::int64_t stage_of(const Plan& plan, std::int64_t rank) {
  const Grid grid = grid_of(plan.strategy);
  return rank < grid.world_size() ? grid.coordinates(rank)[std::size_t(Axis::pp)] : -1;
}

/// Of the devices that a stage is on.
Bytes capacity_of(const Plan& plan, std::int64_t stage) {
  for (const StagePrediction& predicted : plan.prediction.stages) {
    if (predicted.stage == stage) return predicted.capacity;
  }
  return {};
}

/// What the byte axis reaches: a little above the peaks, or the capacity where it is near.
Bytes byte_axis(const ReportInput& input, Bytes capacity) {
  Bytes most;
  for (const RankMemory& memory : input.plan.timeline.memory) most = std::max(most, memory.peak);
  if (input.measured) {
    for (const RankMemory& memory : input.measured->timeline.memory) {
      most = std::max(most, memory.peak);
    }
  }
  most += Bytes(most.count() / 12);
  return capacity < most * 2 ? std::max(most, capacity + Bytes(capacity.count() / 12)) : most;
}

std::string memory_chart(const ReportInput& input, const Timeline& timeline,
                         const RankMemory& memory, std::string_view word, Bytes capacity) {
  const std::string title = fmt::format(
      "rank {}{}, {}: peak {} bytes", memory.rank,
      input.plan.strategy.pp > 1 ? fmt::format(" (stage {})", stage_of(input.plan, memory.rank))
                                 : "",
      word, grouped(memory.peak.count()));
  return memory_svg(memory, {title, timeline_begin(timeline), common_span(input),
                             timeline_end(timeline), byte_axis(input, capacity), capacity});
}

/// Predicted (of the rank's class) beside measured, or only what there is.
std::string memory_row(const ReportInput& input, const RankMemory& predicted,
                       const RankMemory* measured, Bytes capacity) {
  std::string html = "<div class=\"columns\">\n" +
                     memory_chart(input, input.plan.timeline, predicted, "predicted", capacity);
  if (measured != nullptr) {
    html += memory_chart(input, input.measured->timeline, *measured, "measured", capacity);
  }
  return html + "</div>\n";
}

struct Series {
  std::string_view label, style;
  std::vector<double> values;
  bool from_zero = false;
};

constexpr double kPlotWidth = 552, kPlotHeight = 170, kPlotLeft = 70, kPlotTop = 22,
                 kPlotBottom = 24;

/// A line over steps; values that are not finite are left out.
std::string line_svg(const Series& series) {
  double least = 0, most = 0;
  bool any = false;
  for (double value : series.values) {
    if (!std::isfinite(value)) continue;
    least = any ? std::min(least, value) : value;
    most = any ? std::max(most, value) : value;
    any = true;
  }
  if (!any) return "";
  if (series.from_zero) least = 0;
  const double range = most > least ? most - least : 1;
  const double last = static_cast<double>(std::max<std::size_t>(series.values.size(), 2) - 1);
  const auto x = [&](double step) {
    return kPlotLeft + step / last * (kPlotWidth - kPlotLeft - 12);
  };
  const auto y = [&](double value) {
    return kPlotHeight - kPlotBottom -
           (value - least) / range * (kPlotHeight - kPlotTop - kPlotBottom);
  };
  std::string svg = fmt::format(
      "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 {} {}\" "
      "aria-label=\"{} per step\">\n<text class=\"title\" x=\"{}\" "
      "y=\"12\">{} per step</text>\n",
      kPlotWidth, kPlotHeight, series.label, kPlotLeft, series.label);
  for (double value : {least, (least + most) / 2, most}) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\"/>"
        "<text class=\"bytes\" x=\"{3}\" y=\"{2:.2f}\">{4:.4g}</text>\n",
        kPlotLeft, kPlotWidth - 12, y(value), kPlotLeft - 6, value);
  }
  for (double tick : ticks(last, 8)) {
    if (tick != std::floor(tick)) continue;
    svg += fmt::format("<text class=\"tick\" x=\"{:.2f}\" y=\"{}\">{}</text>\n", x(tick),
                       kPlotHeight - 8, tick);
  }
  svg += fmt::format("<polyline class=\"{}\" points=\"", series.style);
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (!std::isfinite(series.values[i])) continue;
    fmt::format_to(std::back_inserter(svg), "{:.2f},{:.2f} ", x(static_cast<double>(i)),
                   y(series.values[i]));
  }
  return svg + "\"/>\n</svg>\n";
}

}  // namespace

std::string timeline_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  const Picoseconds span = common_span(input);
  std::string content = gantt_legend(plan.strategy);
  content += figure("Predicted: one rank of each stage",
                    gantt_svg(plan.timeline, plan.strategy,
                              {"predicted-timeline", "Predicted pipeline timeline", span,
                               plan.prediction.step_time, kMostIntervals}),
                    cap_note(plan.timeline.intervals.size(), plan.timeline_truncated));
  if (input.measured) {
    const Timeline& timeline = input.measured->timeline;
    content += figure("Measured: all ranks, the traced last step",
                      gantt_svg(timeline, plan.strategy,
                                {"measured-timeline", "Measured pipeline timeline", span,
                                 input.measured->median_step_time, kMostIntervals}),
                      cap_note(timeline.intervals.size(), false));
    content +=
        "<p class=\"note\">Both charts have one time scale. The dashed line is the step time: "
        "the predicted period above, the median of untraced steps below; tracing itself "
        "takes time. Point at a bar to see what it is.</p>\n";
  }
  return section("timeline", "Pipeline timeline", content);
}

std::string memory_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  std::map<std::int64_t, const RankMemory*> predicted;  // by stage
  for (const RankMemory& memory : plan.timeline.memory) {
    predicted.emplace(stage_of(plan, memory.rank), &memory);
  }
  const Bytes capacity = capacity_of(plan, 0);
  std::string content = memory_legend(plan.timeline);
  if (input.measured) {
    const auto& ranks = input.measured->timeline.memory;
    std::map<std::int64_t, bool> shown;
    for (const RankMemory& memory : ranks) {
      const std::int64_t stage = stage_of(plan, memory.rank);
      if (!predicted.contains(stage)) continue;
      if (ranks.size() > kMostMemoryCharts && std::exchange(shown[stage], true)) continue;
      content += memory_row(input, *predicted.at(stage), &memory, capacity_of(plan, stage));
    }
    if (ranks.size() > kMostMemoryCharts) {
      content +=
          "<p class=\"note\">One measured rank of each stage is drawn; the table above has "
          "all.</p>\n";
    }
  } else {
    for (const auto& [stage, memory] : predicted)
      content += memory_row(input, *memory, nullptr, capacity_of(plan, stage));
  }
  content += fmt::format(
      "<p class=\"note\">Live bytes over the step; the dot is the first peak. {}</p>\n",
      capacity > byte_axis(input, capacity) && !plan.mixed_devices
          ? fmt::format("A device has {}, far above these axes.", escaped(to_text(capacity)))
          : std::string("The dashed line is the memory of a device."));
  return section("memory", "Memory", content);
}

std::string training_section(const ReportInput& input) {
  if (!input.measured) return "";
  const Measured& measured = *input.measured;
  std::vector<double> times;
  for (Seconds time : measured.step_times) times.push_back(1e3 * time.value());
  std::string content = fmt::format(
      "<p>{} steps ran on the {} backend with the {} communicator, on {}, {}. The first {} are "
      "warm-up; step time is the median of the {} untraced steps after them, and the last step was "
      "traced. The process peaked at {} of resident memory.</p>\n",
      measured.steps, escaped(measured.backend), escaped(measured.communicator),
      escaped(measured.host_cpu), escaped(measured.date), measured.warm_up_steps,
      measured.step_times.size(), to_text(measured.resident));
  content += "<div class=\"columns\">\n" + line_svg({"Loss", "loss", measured.losses, false}) +
             line_svg({"Milliseconds", "loss", times, true}) + "</div>\n";
  return section("training", "The run", content);
}

}  // namespace plimsoll
