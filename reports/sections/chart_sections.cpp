// The sections that are charts: pipeline timeline, memory curve, training curve.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "graph/program.h"
#include "passes/strategy/sharding_rules.h"
#include "plan/filling.h"
#include "reports/gantt.h"
#include "reports/markup.h"
#include "reports/memory_chart.h"
#include "reports/numbers.h"
#include "reports/page.h"
#include "reports/sections/report_sections.h"
#include "reports/timeline_data.h"

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

std::string detail_note(const Timeline& timeline, Picoseconds resolution) {
  std::string note;
  if (resolution > Picoseconds(1)) {
    note = fmt::format(
        "What follows each other within {} on a stream is drawn together, phase by phase.",
        to_text(resolution.seconds()));
  }
  if (timeline.memory.size() <= kMostRanksInDetail) return note;
  return note + fmt::format("{}Of {} ranks {} are drawn.", note.empty() ? "" : " ",
                            timeline.memory.size(), kMostRanksInDetail);
}

/// The end of the byte axis: a little above the peaks and what is reserved, or the room that there
/// is for it where that is near.
Bytes byte_axis(const ReportInput& input, const Filling& filling) {
  Bytes most = filling.reserved;
  for (const RankMemory& memory : input.plan.timeline.memory) most = std::max(most, memory.peak);
  if (input.measured) {
    for (const RankMemory& memory : input.measured->timeline.memory) {
      most = std::max(most, memory.peak);
    }
  }
  most += Bytes(most.count() / 12);
  const Bytes room = filling.room();
  return room < most * 2 ? std::max(most, room + Bytes(room.count() / 12)) : most;
}

std::string memory_chart(const ReportInput& input, const Timeline& timeline,
                         const RankMemory& memory, const std::string& name,
                         const Filling& filling) {
  const std::string title = fmt::format("{}: live peak {}", name, to_text(memory.peak));
  return "<div>" +
         memory_svg(memory,
                    {title, timeline_begin(timeline), common_span(input), timeline_end(timeline),
                     byte_axis(input, filling), filling.reserved, filling.room()}) +
         folded("Table of " + name, memory_table(memory, timeline_begin(timeline))) + "</div>\n";
}

/// Predicted of the rank's class, beside what was measured.
std::string measured_charts(const ReportInput& input, const std::vector<Filling>& fillings) {
  const Plan& plan = input.plan;
  std::map<std::size_t, const RankMemory*> predicted;
  for (const RankMemory& memory : plan.timeline.memory) {
    predicted.emplace(class_of_rank(plan.strategy, memory.rank), &memory);
  }
  const auto& ranks = input.measured->timeline.memory;
  std::set<std::size_t> shown;
  std::string html;
  for (const RankMemory& memory : ranks) {
    const std::size_t of_rank = class_of_rank(plan.strategy, memory.rank);
    if (!predicted.contains(of_rank)) continue;
    if (ranks.size() > kMostMemoryCharts && !shown.insert(of_rank).second) continue;
    std::string name = fmt::format("rank {}", memory.rank);
    if (plan.strategy.pp > 1)
      name += fmt::format(" ({})", name_of(plan.prediction.stages[of_rank]));
    const Filling& filling = fillings.at(of_rank);
    html +=
        memory_chart(input, plan.timeline, *predicted.at(of_rank), name + ", predicted", filling);
    html += memory_chart(input, input.measured->timeline, memory, name + ", measured", filling);
  }
  html = "<div class=\"columns\">\n" + html + "</div>\n";
  if (ranks.size() <= kMostMemoryCharts) return html;
  return html +
         "<p class=\"note\">One measured rank of each stage is drawn; the table above has "
         "all.</p>\n";
}

/// One chart for stages that are alike.
std::string predicted_charts(const ReportInput& input, const std::vector<Filling>& fillings) {
  const Plan& plan = input.plan;
  std::string html = "<div class=\"columns\">\n";
  bool several = false;
  for (const AlikeStages& alike : alike_stages(fillings, kMostMemoryCharts)) {
    const auto memory = std::find_if(
        plan.timeline.memory.begin(), plan.timeline.memory.end(), [&](const RankMemory& one) {
          return class_of_rank(plan.strategy, one.rank) == alike.fullest;
        });
    if (memory == plan.timeline.memory.end()) continue;
    several = several || alike.first != alike.last;
    html += memory_chart(
        input, plan.timeline, *memory,
        fmt::format("{} (rank {})", name_of(alike, plan.prediction.stages), memory->rank),
        fillings[alike.fullest]);
  }
  html += "</div>\n";
  if (!several) return html;
  return html + "<p class=\"note\">Of stages that are alike the fullest is drawn.</p>\n";
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

/// The numbers of the training curves.
std::string steps_tables(const Measured& measured) {
  std::vector<std::vector<Cell>> losses, times;
  for (const double loss : measured.losses) {
    losses.push_back({exact_cell(std::int64_t(losses.size())),
                      {fmt::format("{:.5g}", loss), "number", false, fmt::format("{}", loss)}});
  }
  for (const Seconds time : measured.step_times)
    times.push_back({exact_cell(std::int64_t(times.size())), exact_cell(time)});
  return table("Losses", {{"Step", "number"}, {"Loss", "number"}}, losses) +
         table("Times of untraced steps after warm-up",
               {{"Step", "number"}, {"Time", "number", "s"}}, times);
}

/// Returns the intervals of the predicted timeline for the page's script, in finer steps where
/// there is an explanation, with the critical rank op by op where the plan shows whole calls.
std::string predicted_data(const ReportInput& input, GanttOptions options) {
  const Plan& plan = input.plan;
  if (input.explanation == nullptr || input.explanation->timeline.intervals.empty())
    return timeline_data({{plan.timeline, ""}}, plan.strategy, options);
  const Timeline& fine = input.explanation->timeline;
  options.begin = timeline_begin(fine);
  RankMemory rank;  // a timeline has the ranks of its memory
  rank.rank = input.explanation->critical_rank;
  const Timeline critical{input.explanation->critical, {rank}};
  std::vector<TimelinePart> parts = {{fine, ""}};
  if (shows_calls(plan.devices)) parts.push_back({critical, ", op by op"});
  return timeline_data(parts, plan.strategy, options);
}

/// A pipeline chart that can be read without a script, its table, and the data with which the
/// script replaces it by one that can be zoomed.
std::string timeline_figure(std::string_view caption, const Timeline& timeline,
                            const Strategy& strategy, const GanttOptions& options,
                            const std::string& data, const std::string& note) {
  return fmt::format("<div class=\"timeline\" data-timeline=\"{}-data\">\n", options.id) +
         figure(caption, gantt_svg(timeline, strategy, options), note) +
         data_block(fmt::format("{}-data", options.id), data) + "</div>\n" +
         folded("Table of the times of each rank",
                gantt_table(timeline, strategy, options.most_ranks));
}

}  // namespace

std::string timeline_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  const Picoseconds span = common_span(input);
  std::string content = gantt_legend(plan.strategy);
  const GanttOptions predicted = {"predicted-timeline",          "Predicted pipeline timeline",
                                  timeline_begin(plan.timeline), span,
                                  plan.prediction.step_time,     kMostRanksInDetail};
  content += timeline_figure("Predicted: one rank of each stage", plan.timeline, plan.strategy,
                             predicted, predicted_data(input, predicted),
                             detail_note(plan.timeline, plan.timeline_resolution));
  if (input.measured) {
    Timeline timeline = input.measured->timeline;
    const Timeline whole = timeline;
    const Picoseconds resolution = draw_together(timeline, kMostIntervals);
    const GanttOptions measured = {"measured-timeline",
                                   "Measured pipeline timeline",
                                   timeline_begin(timeline),
                                   span,
                                   input.measured->median_step_time,
                                   kMostRanksInDetail};
    content += timeline_figure("Measured: all ranks, the traced last step", timeline, plan.strategy,
                               measured, timeline_data({{whole, ""}}, plan.strategy, measured),
                               detail_note(timeline, resolution));
    content +=
        "<p class=\"note\">Both charts have one time scale. The dashed line is the step time: "
        "the predicted period above, the median of untraced steps below; tracing itself "
        "takes time.</p>\n";
  }
  return section("timeline", "Pipeline timeline", content);
}

std::string memory_section(const ReportInput& input) {
  const Plan& plan = input.plan;
  const std::vector<Filling> fillings = fillings_of(plan);
  if (fillings.empty() || plan.timeline.memory.empty()) return "";
  const Filling& filling = fillings[fullest_of(fillings)];
  const bool arena = plan.framework.memory.allocator.kind == AllocatorKind::arena;
  std::string content = memory_legend(plan.timeline);
  content += input.measured ? measured_charts(input, fillings) : predicted_charts(input, fillings);
  content += fmt::format(
      "<p class=\"note\">Live bytes over the step; the dot is the first peak. The dotted line is "
      "{}. A device of {} has room for {} of it, in addition to {} of context and communicators and {} "
      "that "
      "are kept free: the dashed line, if it is near.</p>\n",
      arena ? "the arena that holds them" : "what the framework's allocator reserves for them",
      to_text(filling.capacity), to_text(filling.room()), to_text(filling.outside),
      to_text(filling.reserve));
  content += peak_tensors_html(input);
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
             line_svg({"Milliseconds", "loss", times, true}) + "</div>\n" +
             folded("Tables of losses and step times", steps_tables(measured));
  return section("training", "The run", content);
}

}  // namespace plimsoll
