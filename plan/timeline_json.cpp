// Timelines are read from JSON and written to it.
#include "plan/timeline_json.h"

#include <fmt/format.h>

#include <cmath>

#include "graph/step_flops.h"
#include "plan/json_forms.h"

namespace plimsoll {
namespace {

constexpr double kMostTimelineSeconds = 9e6;  // what a clock in picoseconds holds

Json curve_json(const std::vector<MemoryPoint>& curve) {
  Json times = Json::array(), by_class = Json::object();
  for (const MemoryPoint& point : curve) times.push_back(point.time.count());
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    Json column = Json::array();
    for (const MemoryPoint& point : curve) column.push_back(point.by_role[role].count());
    by_class[std::string(to_text(static_cast<TensorRole>(role)))] = std::move(column);
  }
  return {{"time_ps", std::move(times)}, {"by_class", std::move(by_class)}};
}

std::vector<MemoryPoint> curve_from(JsonObject object) {
  std::vector<MemoryPoint> curve;
  for (std::int64_t time : object.integers("time_ps", -kMostJsonInteger, kMostJsonInteger)) {
    curve.push_back({Picoseconds(time), {}});
  }
  JsonObject by_class = object.object("by_class");
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    const std::string_view key = to_text(static_cast<TensorRole>(role));
    const auto column = by_class.integers(key, 0, kMostJsonInteger);
    if (column.size() != curve.size()) by_class.fail(key, "must be as long as time_ps");
    for (std::size_t i = 0; i < curve.size(); ++i) curve[i].by_role[role] = Bytes(column[i]);
  }
  by_class.finish();
  object.finish();
  return curve;
}

constexpr Allowed kInstant(-double(kMostJsonInteger), kMostJsonInteger);

constexpr auto kInterval = [](auto& fields, auto& interval) {
  static const auto streams = texts_of<Stream>(kStreams);
  static const auto phases = texts_of<Phase>(kPhases);
  fields.required("rank", interval.rank);
  fields.required("stream", interval.stream, streams);
  fields.or_null("kind", interval.kind, kOpNames);
  fields.required("phase", interval.phase, phases);
  fields.required("routine", interval.routine);
  fields.optional("layer", interval.layer);
  fields.optional("micro_batch", interval.micro_batch);
  std::optional<Picoseconds> posted;
  if (interval.posted != interval.begin) posted = interval.posted;
  fields.optional("posted_ps", posted, kInstant);
  fields.required("begin_ps", interval.begin, kInstant);
  fields.required("end_ps", interval.end, kInstant);
  if constexpr (kReading<decltype(fields)>) interval.posted = posted.value_or(interval.begin);
  fields.unless(1, "ops", interval.ops, {1, kMostJsonInteger});
};

constexpr auto kRankMemory = [](auto& fields, auto& memory) {
  fields.required("rank", memory.rank);
  fields.required("peak_bytes", memory.peak);
  fields.required("by_class", memory.by_role, kByClass);
  fields.required("arena_bytes", memory.arena);
  fields.required("curve", memory.curve, Form{curve_json, curve_from});
};

constexpr auto kTimeline = [](auto& fields, auto& timeline) {
  fields.required("intervals", timeline.intervals, kInterval);
  fields.required("memory", timeline.memory, kRankMemory);
};

}  // namespace

Json timeline_json(const Timeline& timeline) { return listed_json(timeline, kTimeline); }

Timeline timeline_from(JsonObject object) {
  const std::string file = object.file(), pointer = object.pointer();
  auto timeline = read_listed<Timeline>(std::move(object), kTimeline);
  double all = 0;  // readers sum durations by rank or kind
  for (const Interval& one : timeline.intervals)
    all += std::abs((one.end - one.begin).seconds().value());
  if (all <= kMostTimelineSeconds) return timeline;
  throw InputError(file, pointer + "/intervals",
                   fmt::format("found intervals of {} s together; at most {} s are allowed", all,
                               kMostTimelineSeconds));
}

}  // namespace plimsoll
