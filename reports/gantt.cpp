// The pipeline timeline: one row per rank and stream, one bar per interval.
#include "reports/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "graph/step_flops.h"
#include "passes/strategy/pipeline_order.h"
#include "plan/timeline_detail.h"
#include "reports/markup.h"

namespace plimsoll {
namespace {

// All in user units of a drawing that is kWidth wide.
constexpr double kWidth = 1120, kGutter = 222, kRight = 14;  // the gutter: of a rank and a stream
constexpr double kTop = 18, kAxis = 26, kRankGap = 10, kLaneGap = 2;
constexpr double kComputeLane = 20, kOtherLane = 11;
constexpr double kLeastBar = 0.5;

constexpr std::array<std::string_view, kStreams> kStreamLabels = {
    "compute",       "mp group",  "data group",   "world", "context group",
    "experts",       "to host",   "to device",    "host",  "send next",
    "send previous", "recv next", "recv previous"};

struct Lane {
  std::int64_t rank = 0;
  Stream stream = Stream::compute;
  double y = 0, height = 0;
};

using LaneKey = std::pair<std::int64_t, Stream>;

double height_of(Stream stream) { return stream == Stream::compute ? kComputeLane : kOtherLane; }

/// A lane for every stream that a rank uses, ranks apart.
std::map<LaneKey, Lane> lay_out(const Timeline& timeline, std::size_t most_ranks) {
  const std::vector<std::int64_t> drawn = ranks_spread(timeline, most_ranks);
  std::map<LaneKey, Lane> lanes;
  for (const Interval& i : timeline.intervals) {
    if (!std::binary_search(drawn.begin(), drawn.end(), i.rank)) continue;
    lanes.emplace(LaneKey(i.rank, i.stream), Lane{i.rank, i.stream, 0, height_of(i.stream)});
  }
  double y = kTop;
  const Lane* before = nullptr;
  for (auto& [key, lane] : lanes) {
    if (before != nullptr) y += before->rank == lane.rank ? kLaneGap : kRankGap;
    lane.y = y;
    y += lane.height;
    before = &lane;
  }
  return lanes;
}

double bottom_of(const std::map<LaneKey, Lane>& lanes) {
  if (lanes.empty()) return kTop + kComputeLane;
  const Lane& last = lanes.rbegin()->second;
  return last.y + last.height;
}

struct TimeAxis {
  Picoseconds begin;
  double per_picosecond = 0;  ///< user units
  double x(Picoseconds time) const {
    return kGutter + static_cast<double>((time - begin).count()) * per_picosecond;
  }
};

std::string style_of(const Interval& interval) {
  return std::string(interval.stream == Stream::compute ? to_text(interval.phase) : "transfer");
}

/// The bars of one lane, as the data of one path for each colour.
struct LanePaths {
  std::map<std::string, std::string> bars;  ///< by style
  std::string waits;
};

void append_bar(LanePaths& paths, const Interval& interval, const Lane& lane,
                const TimeAxis& axis) {
  const double x = axis.x(interval.begin);
  if (interval.posted < interval.begin) {
    const double posted = axis.x(interval.posted);
    fmt::format_to(std::back_inserter(paths.waits), "M{:.1f} {}h{:.1f}v2h{:.1f}z", posted,
                   lane.y + lane.height / 2 - 1, x - posted, posted - x);
  }
  const double width = std::max(axis.x(interval.end) - x, kLeastBar);
  fmt::format_to(std::back_inserter(paths.bars[style_of(interval)]), "M{:.1f} {}h{:.2f}v{}h{:.2f}z",
                 x, lane.y, width, lane.height, -width);
}

void append_bars(std::string& svg, const Timeline& timeline, const std::map<LaneKey, Lane>& lanes,
                 const TimeAxis& axis) {
  std::map<LaneKey, LanePaths> all;
  for (const Interval& interval : timeline.intervals) {
    const LaneKey key(interval.rank, interval.stream);
    const auto lane = lanes.find(key);
    if (lane != lanes.end()) append_bar(all[key], interval, lane->second, axis);
  }
  for (const auto& [key, paths] : all) {
    if (!paths.waits.empty()) svg += fmt::format("<path class=\"wait\" d=\"{}\"/>\n", paths.waits);
    for (const auto& [style, data] : paths.bars)
      svg += fmt::format("<path class=\"interval {}\" d=\"{}\"/>\n", style, data);
  }
}

void append_labels(std::string& svg, const std::map<LaneKey, Lane>& lanes,
                   const Strategy& strategy) {
  std::optional<std::int64_t> labelled;
  for (const auto& [key, lane] : lanes) {
    const double middle = lane.y + lane.height / 2;
    if (labelled != lane.rank) {
      svg += fmt::format("<text class=\"rank\" x=\"0\" y=\"{}\">{}</text>\n", middle,
                         rank_label(lane.rank, strategy));
      labelled = lane.rank;
    }
    svg += fmt::format("<text class=\"stream\" x=\"{}\" y=\"{}\">{}</text>\n", kGutter - 8, middle,
                       stream_label(lane.stream));
    svg += fmt::format("<rect class=\"lane\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                       kGutter, lane.y, kWidth - kGutter - kRight, lane.height);
  }
}

void append_axis(std::string& svg, const TimeAxis& axis, const GanttOptions& options,
                 double bottom) {
  const double span = static_cast<double>(options.span.count());
  for (double tick : ticks(span, 10)) {
    const auto time = Picoseconds(static_cast<std::int64_t>(tick));
    const double x = axis.x(axis.begin + time);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text class=\"tick\" x=\"{0:.2f}\" y=\"{3}\">{4}</text>\n",
        x, kTop - 4, bottom + 4, bottom + 17, tick == 0 ? "0" : to_text(time.seconds()));
  }
  const Picoseconds step = to_picoseconds(options.step_time);
  if (step <= Picoseconds() || step > options.span) return;
  const double x = axis.x(axis.begin + step);
  svg += fmt::format(
      "<line class=\"step\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1}\" y2=\"{2}\"/>"
      "<text class=\"step\" x=\"{0:.2f}\" y=\"{3}\">step time {4}</text>\n",
      x, kTop - 4, bottom + 4, kTop - 8, to_text(options.step_time));
}

}  // namespace

Picoseconds timeline_begin(const Timeline& timeline) {
  std::optional<Picoseconds> begin;
  const auto take = [&](Picoseconds time) { begin = begin ? std::min(*begin, time) : time; };
  for (const Interval& interval : timeline.intervals)
    take(std::min(interval.posted, interval.begin));
  for (const RankMemory& memory : timeline.memory) {
    if (!memory.curve.empty()) take(memory.curve.front().time);
  }
  return begin.value_or(Picoseconds());
}

Picoseconds timeline_end(const Timeline& timeline) {
  Picoseconds end = timeline_begin(timeline);
  for (const Interval& interval : timeline.intervals) end = std::max(end, interval.end);
  for (const RankMemory& memory : timeline.memory) {
    if (!memory.curve.empty()) end = std::max(end, memory.curve.back().time);
  }
  return end;
}

std::string_view stream_label(Stream stream) { return kStreamLabels[std::size_t(stream)]; }

std::string rank_label(std::int64_t rank, const Strategy& strategy) {
  const Grid grid = grid_of(strategy);
  if (strategy.pp == 1 || rank < 0 || rank >= grid.world_size())
    return fmt::format("rank {}", rank);
  return fmt::format("rank {} · stage {}", rank, grid.coordinates(rank)[std::size_t(Axis::pp)]);
}

std::string gantt_table(const Timeline& timeline, const Strategy& strategy,
                        std::size_t most_ranks) {
  constexpr std::size_t kTransfer = kPhases, kWait = kPhases + 1;
  std::map<std::int64_t, std::array<Picoseconds, kPhases + 2>> times;
  for (const std::int64_t rank : ranks_spread(timeline, most_ranks)) times[rank];
  for (const Interval& interval : timeline.intervals) {
    const auto of_rank = times.find(interval.rank);
    if (of_rank == times.end()) continue;
    const bool computes = interval.stream == Stream::compute;
    of_rank->second[computes ? std::size_t(interval.phase) : kTransfer] +=
        interval.end - interval.begin;
    if (interval.posted < interval.begin)
      of_rank->second[kWait] += interval.begin - interval.posted;
  }
  std::vector<std::string> labels = {
      "forward",   "recompute", "backward",        "gradients of weights",
      "optimizer", "transfers", "waiting for them"};
  std::vector<Column> columns = {{"", ""}};
  for (const std::string& label : labels) columns.push_back({label, "number", "s"});
  std::vector<std::vector<Cell>> rows;
  for (const auto& [rank, of_rank] : times) {
    rows.push_back({heading_cell(rank_label(rank, strategy))});
    for (const Picoseconds time : of_rank) rows.back().push_back(exact_cell(time.seconds()));
  }
  return table("Times of each rank in the step; transfers and waits may be hidden by compute",
               columns, rows);
}

std::string gantt_svg(const Timeline& timeline, const Strategy& strategy,
                      const GanttOptions& options) {
  const std::map<LaneKey, Lane> lanes = lay_out(timeline, options.most_ranks);
  const double bottom = bottom_of(lanes);
  const auto bars = std::count_if(timeline.intervals.begin(), timeline.intervals.end(),
                                  [&](const Interval& interval) {
                                    return lanes.contains({interval.rank, interval.stream});
                                  });
  const double span = std::max(1.0, static_cast<double>(options.span.count()));
  const TimeAxis axis{options.begin, (kWidth - kGutter - kRight) / span};
  std::string svg = fmt::format(
      "<svg class=\"chart\" id=\"{}\" role=\"img\" viewBox=\"0 0 {} {}\" "
      "data-interval-count=\"{}\" data-interval-total=\"{}\" aria-label=\"{}\">\n",
      options.id, kWidth, bottom + kAxis, bars, timeline.intervals.size(), escaped(options.title));
  append_labels(svg, lanes, strategy);
  append_axis(svg, axis, options, bottom);
  append_bars(svg, timeline, lanes, axis);
  return svg + "</svg>\n";
}

std::string gantt_legend(const Strategy& strategy) {
  std::vector<LegendEntry> entries = {{"forward", "forward"}};
  if (strategy.recompute != Recompute::none) entries.push_back({"recompute", "recompute"});
  entries.push_back({"backward", "backward"});
  if (splits_backward(strategy.schedule)) {
    entries.push_back({"backward_weight", "backward: gradients of weights"});
  }
  entries.insert(entries.end(), {{"optimizer", "optimizer"},
                                 {"transfer", "communication"},
                                 {"wait", "waiting for the other side"}});
  return legend(entries);
}

}  // namespace plimsoll
