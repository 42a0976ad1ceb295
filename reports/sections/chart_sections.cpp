// The sections that are charts: pipeline timeline, memory curve, training curve.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "graph/program.h"
#include "passes/strategy/sharding_rules.h"
#include "plan/filling.h"
#include "plan/timeline_detail.h"
#include "reports/gantt.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/page.h"
#include "reports/sections/report_sections.h"
#include "reports/timeline_data.h"

namespace plimsoll {
namespace {

struct MemoryChartOptions {
  std::string_view title;   ///< above the chart
  Picoseconds begin, span;  ///< begin and length of the time axis
  Picoseconds end;          ///< the last point is drawn up to here
  Bytes most;               ///< end of the byte axis; equal for charts that are compared
  Bytes reserved;           ///< memory reserved for live bytes: a dotted line
  Bytes room;  ///< memory that a device has for them: a dashed line where it is on the axis
};

constexpr double kChartWidth = 552, kChartHeight = 190;
constexpr double kChartLeft = 70, kChartRight = 8, kChartTop = 22, kChartBottom = 24;

/// Bottom of the stack first: what lives longest.
constexpr std::array<TensorRole, kTensorRoles> kStack = {
    TensorRole::frozen_parameter, TensorRole::parameter,       TensorRole::master_parameter,
    TensorRole::gradient,         TensorRole::optimizer_state, TensorRole::workspace,
    TensorRole::scalar,           TensorRole::saved,           TensorRole::communication,
    TensorRole::activation};

Bytes total(const BytesByRole& by_role) {
  return std::accumulate(by_role.begin(), by_role.end(), Bytes());
}

struct Axes {
  const MemoryChartOptions& options;
  double x(Picoseconds time) const {
    const double span = std::max(1.0, static_cast<double>(options.span.count()));
    const double share = static_cast<double>((time - options.begin).count()) / span;
    return kChartLeft + std::clamp(share, 0.0, 1.0) * (kChartWidth - kChartLeft - kChartRight);
  }
  double y(Bytes bytes) const {
    const double most = std::max(1.0, static_cast<double>(options.most.count()));
    return kChartHeight - kChartBottom -
           static_cast<double>(bytes.count()) / most * (kChartHeight - kChartTop - kChartBottom);
  }
};

/// Bytes of the stack below `layer` at a point; layer == kTensorRoles is the whole stack.
Bytes below(const MemoryPoint& point, std::size_t layer) {
  Bytes sum;
  for (std::size_t i = 0; i < layer; ++i) sum += point.by_role[std::size_t(kStack[i])];
  return sum;
}

/// One layer: its upper edge forward in time, its lower edge back. Values hold until the next
/// point.
void append_layer(std::string& svg, const std::vector<MemoryPoint>& curve, std::size_t layer,
                  const Axes& axes) {
  const auto role = std::size_t(kStack[layer]);
  if (std::all_of(curve.begin(), curve.end(),
                  [&](const MemoryPoint& point) { return point.by_role[role] == Bytes(); })) {
    return;
  }
  const double end = axes.x(axes.options.end);
  const auto until = [&](std::size_t i) {
    return i + 1 < curve.size() ? axes.x(curve[i + 1].time) : end;
  };
  svg += fmt::format("<path class=\"{}\" d=\"M{:.2f} {:.2f}", to_text(kStack[layer]),
                     axes.x(curve.front().time), axes.y(below(curve.front(), layer + 1)));
  const auto out = std::back_inserter(svg);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    fmt::format_to(out, "V{:.2f}H{:.2f}", axes.y(below(curve[i], layer + 1)), until(i));
  }
  for (std::size_t i = curve.size(); i-- > 0;) {
    fmt::format_to(out, "V{:.2f}H{:.2f}", axes.y(below(curve[i], layer)), axes.x(curve[i].time));
  }
  svg += "Z\"/>\n";
}

/// Round positions on a byte axis: about four of them, a power of two apart.
std::vector<Bytes> byte_ticks(Bytes most) {
  Bytes step(1);
  while (step * 5 < most) step = step * 2;
  std::vector<Bytes> positions;
  for (Bytes at; at <= most; at += step) positions.push_back(at);
  return positions;
}

void append_axes(std::string& svg, const Axes& axes) {
  const MemoryChartOptions& options = axes.options;
  for (Bytes bytes : byte_ticks(options.most)) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\"/>"
        "<text class=\"bytes\" x=\"{3}\" y=\"{2:.2f}\">{4}</text>\n",
        kChartLeft, kChartWidth - kChartRight, axes.y(bytes), kChartLeft - 6,
        bytes == Bytes() ? "0" : to_text(bytes));
  }
  for (double tick : ticks(static_cast<double>(options.span.count()), 5)) {
    const auto time = Picoseconds(static_cast<std::int64_t>(tick));
    svg += fmt::format("<text class=\"tick\" x=\"{:.2f}\" y=\"{}\">{}</text>\n",
                       axes.x(options.begin + time), kChartHeight - 8,
                       tick == 0 ? "0" : to_text(time.seconds()));
  }
}

void append_marks(std::string& svg, const RankMemory& memory, const Axes& axes) {
  const auto peak =
      std::find_if(memory.curve.begin(), memory.curve.end(),
                   [&](const MemoryPoint& point) { return total(point.by_role) == memory.peak; });
  if (peak != memory.curve.end()) {
    svg += fmt::format(
        "<circle class=\"peak\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3\"><title>first "
        "peak: {} bytes</title></circle>\n",
        axes.x(peak->time), axes.y(memory.peak), grouped(memory.peak.count()));
  }
  const MemoryChartOptions& options = axes.options;
  const auto line = [&](const char* style, Bytes bytes, const char* what, double x, double below) {
    svg += fmt::format(
        "<line class=\"{0}\" x1=\"{1}\" x2=\"{2}\" y1=\"{3:.2f}\" y2=\"{3:.2f}\"/>"
        "<text class=\"{0}\" x=\"{4}\" y=\"{5:.2f}\">{6} {7}</text>\n",
        style, kChartLeft, kChartWidth - kChartRight, axes.y(bytes), x, axes.y(bytes) + below, what,
        to_text(bytes));
  };
  // Labels are at the two ends of the chart. The lower line has its label below it, and the upper
  // line above, so that no line crosses a label.
  constexpr double kAbove = -4, kBelow = 11;
  const bool lower = options.reserved < options.room;
  line("reserved", options.reserved, "reserved", kChartLeft + 4, lower ? kBelow : kAbove);
  if (options.room <= options.most)
    line("capacity", options.room, "room", kChartWidth - kChartRight, lower ? kAbove : kBelow);
}

/// Returns the memory curve of a rank as plain SVG: live bytes over the step, with one layer per
/// class and the peak marked.
std::string memory_svg(const RankMemory& memory, const MemoryChartOptions& options) {
  const Axes axes{options};
  std::string svg = fmt::format(
      "<svg class=\"chart memory\" role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{}\">\n"
      "<text class=\"title\" x=\"{}\" y=\"12\">{}</text>\n",
      kChartWidth, kChartHeight, escaped(options.title), kChartLeft, escaped(options.title));
  append_axes(svg, axes);
  if (!memory.curve.empty()) {
    for (std::size_t layer = 0; layer < kTensorRoles; ++layer) {
      append_layer(svg, memory.curve, layer, axes);
    }
  }
  append_marks(svg, memory, axes);
  return svg + "</svg>\n";
}

constexpr std::size_t kMostTablePoints = 100;

/// Returns a table of the curve, with at most kMostTablePoints of its points (thin_curves()). Times
/// count from `begin`.
std::string memory_table(const RankMemory& memory, Picoseconds begin) {
  Timeline thinned{{}, {memory}};
  thin_curves(thinned, kMostTablePoints);
  const std::vector<MemoryPoint>& curve = thinned.memory[0].curve;
  std::vector<TensorRole> roles;
  for (const TensorRole role : kStack) {
    const auto has = [&](const MemoryPoint& p) { return p.by_role[std::size_t(role)] > Bytes(); };
    if (std::ranges::any_of(curve, has)) roles.push_back(role);
  }
  std::vector<Column> columns = {{"From", "number", "s"}, {"all", "number", "bytes"}};
  for (const TensorRole role : roles) columns.push_back({to_text(role), "number", "bytes"});
  std::vector<std::vector<Cell>> rows;
  for (const MemoryPoint& point : curve) {
    rows.push_back({exact_cell((point.time - begin).seconds()), exact_cell(total(point.by_role))});
    for (const TensorRole role : roles)
      rows.back().push_back(exact_cell(point.by_role[std::size_t(role)]));
  }
  return table("Live bytes from an instant on", columns, rows);
}

/// Returns swatches of the classes that occur in `timeline`.
std::string memory_legend(const Timeline& timeline) {
  std::array<bool, kTensorRoles> occurs = {};
  for (const RankMemory& memory : timeline.memory) {
    for (const MemoryPoint& point : memory.curve) {
      for (std::size_t role = 0; role < kTensorRoles; ++role) {
        occurs[role] = occurs[role] || point.by_role[role] > Bytes();
      }
    }
  }
  std::vector<std::string> labels(kTensorRoles);
  std::vector<LegendEntry> entries;
  for (TensorRole role : kStack) {
    if (!occurs[std::size_t(role)]) continue;
    std::string& label = labels[std::size_t(role)];
    label = to_text(role);
    std::replace(label.begin(), label.end(), '_', ' ');
    entries.push_back({to_text(role), label});
  }
  return legend(entries);
}

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
