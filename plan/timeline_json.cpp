// Timelines are read from JSON and written to it.
#include "plan/timeline_json.h"

#include <fmt/format.h>

#include <cmath>

#include "graph/step_flops.h"
#include "plan/json_fields.h"

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

}  // namespace

std::span<const std::string_view> role_texts() {
  static const auto texts = texts_of<TensorRole>(kTensorRoles);
  return texts;
}

void list_fields(Fields& io, Interval& interval) {
  static const auto streams = texts_of<Stream>(kStreams);
  static const auto kinds = texts_of<OpKind>(kOpKinds);
  static const auto phases = texts_of<Phase>(kPhases);
  io("rank", interval.rank);
  io.choice("stream", interval.stream, streams);
  io.choice("kind", interval.kind, kinds);
  io.choice("phase", interval.phase, phases);
  io("routine", interval.routine);
  io.optional("layer", interval.layer);
  io.optional("micro_batch", interval.micro_batch);
  std::optional<Picoseconds> posted;
  if (interval.posted != interval.begin) posted = interval.posted;
  io.optional("posted_ps", posted, -kMostJsonInteger);
  io("begin_ps", interval.begin, -kMostJsonInteger);
  io("end_ps", interval.end, -kMostJsonInteger);
  if (io.reads()) interval.posted = posted.value_or(interval.begin);
  io.unless(std::int64_t{1}, "ops", interval.ops, std::int64_t{1});
}

void list_fields(Fields& io, RankMemory& memory) {
  io("rank", memory.rank);
  io("peak_bytes", memory.peak);
  io.by_name("by_class", memory.by_role, role_texts());
  io("arena_bytes", memory.arena);
  io.as("curve", memory.curve, curve_json, curve_from);
}

void list_fields(Fields& io, Timeline& timeline) {
  io.list("intervals", timeline.intervals);
  io.list("memory", timeline.memory);
}

Json timeline_json(const Timeline& timeline) { return fields_json(timeline); }

Timeline timeline_from(JsonObject object) {
  const std::string file = object.file(), pointer = object.pointer();
  auto timeline = read_fields<Timeline>(std::move(object));
  double all = 0;  // readers sum durations by rank or kind
  for (const Interval& one : timeline.intervals)
    all += std::abs((one.end - one.begin).seconds().value());
  if (all <= kMostTimelineSeconds) return timeline;
  throw InputError(file, pointer + "/intervals",
                   fmt::format("found intervals of {} s together; at most {} s are allowed", all,
                               kMostTimelineSeconds));
}

}  // namespace plimsoll
