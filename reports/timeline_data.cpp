// Writes a timeline as columns of small numbers.
#include "reports/timeline_data.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "graph/step_flops.h"
#include "plan/timeline_detail.h"

namespace plimsoll {
namespace {

/// Units that a span has about. Their lengths can be told apart after zooming to a thousandth.
constexpr std::int64_t kUnitsOfSpan = 10'000'000;

/// The columns of a lane; those of which all entries are equal to the default are left out.
struct LaneColumns {
  std::vector<std::int64_t> gap, length, name, phase, layer, micro_batch, ops, wait;
  std::int64_t end = 0;  ///< of the interval before
};

struct Writer {
  const TimelineClock clock;
  std::map<std::string, std::int64_t> index_of;
  std::vector<std::string> names;

  std::int64_t name(const Interval& interval) {
    std::string text(interval.kind ? to_text(*interval.kind) : "");
    if (!interval.routine.empty() && interval.routine != text) {
      text += (text.empty() ? "" : " \u00b7 ") + interval.routine;
    }
    const auto [at, added] = index_of.emplace(text, std::int64_t(names.size()));
    if (added) names.push_back(text);
    return at->second;
  }

  void add(LaneColumns& lane, const Interval& interval) {
    const std::int64_t begin = clock.units(interval.begin), end = clock.units(interval.end);
    lane.gap.push_back(begin - lane.end);
    lane.length.push_back(end - begin);
    lane.end = end;
    lane.name.push_back(name(interval));
    lane.phase.push_back(interval.stream == Stream::compute ? std::int64_t(interval.phase)
                                                            : std::int64_t(kPhases));
    lane.layer.push_back(interval.layer ? *interval.layer + 1 : 0);
    lane.micro_batch.push_back(interval.micro_batch ? *interval.micro_batch + 1 : 0);
    lane.ops.push_back(interval.ops);
    lane.wait.push_back(interval.posted < interval.begin ? begin - clock.units(interval.posted)
                                                         : 0);
  }
};

Json lane_json(std::string_view rank, Stream stream, LaneColumns& lane) {
  Json json = {{"rank", rank},
               {"stream", stream_label(stream)},
               {"tall", stream == Stream::compute},
               {"gap", std::move(lane.gap)},
               {"length", std::move(lane.length)},
               {"name", std::move(lane.name)},
               {"phase", std::move(lane.phase)}};
  const auto column = [&](const char* key, std::vector<std::int64_t>& values, std::int64_t none) {
    const auto is_none = [&](std::int64_t value) { return value == none; };
    if (!std::ranges::all_of(values, is_none)) json[key] = std::move(values);
  };
  column("layer", lane.layer, 0);
  column("micro_batch", lane.micro_batch, 0);
  column("ops", lane.ops, 1);
  column("wait", lane.wait, 0);
  return json;
}

}  // namespace

std::string timeline_data(const std::vector<TimelinePart>& parts, const Strategy& strategy,
                          const GanttOptions& options) {
  std::int64_t unit = std::max<std::int64_t>(1, options.span.count() / kUnitsOfSpan);
  Writer writer{{options.begin, unit}, {}, {}};
  Json lanes = Json::array();
  for (const TimelinePart& part : parts) {
    const std::vector<std::int64_t> drawn = ranks_spread(part.timeline, options.most_ranks);
    std::map<std::pair<std::int64_t, Stream>, LaneColumns> columns;
    for (const Interval& interval : part.timeline.intervals) {
      if (std::ranges::binary_search(drawn, interval.rank))
        writer.add(columns[{interval.rank, interval.stream}], interval);
    }
    for (auto& [key, lane] : columns) {
      const std::string rank = rank_label(key.first, strategy) + std::string(part.suffix);
      lanes.push_back(lane_json(rank, key.second, lane));
    }
  }
  Json phases = Json::array();
  for (std::size_t phase = 0; phase < kPhases; ++phase) phases.push_back(to_text(Phase(phase)));
  phases.push_back("transfer");
  const TimelineClock span{{}, unit};
  const Json json = {{"unit_s", double(unit) * 1e-12},
                     {"span", span.units(options.span)},
                     {"step", span.units(to_picoseconds(options.step_time))},
                     {"names", writer.names},
                     {"phases", std::move(phases)},
                     {"lanes", std::move(lanes)}};
  return json.dump(-1, ' ', true);
}

}  // namespace plimsoll
