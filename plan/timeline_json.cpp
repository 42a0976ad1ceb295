// Timelines are read from JSON and written to it.
#include "plan/timeline_json.h"

#include <fmt/format.h>

#include <cmath>

namespace plimsoll {
namespace {

/// The texts of an enum with `count` values, as JsonObject::choice wants them.
template <class Enum>
std::vector<std::string_view> texts_of(std::size_t count) {
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(to_text(static_cast<Enum>(i)));
  return texts;
}

constexpr double kMostTimelineSeconds = 9e6;  // what a clock in picoseconds holds
constexpr std::size_t kPhases = std::size_t(Phase::optimizer) + 1;

Json interval_json(const Interval& interval) {
  Json json = {{"rank", interval.rank},
               {"stream", to_text(interval.stream)},
               {"kind", interval.kind ? Json(to_text(*interval.kind)) : Json(nullptr)},
               {"phase", to_text(interval.phase)},
               {"routine", interval.routine}};
  if (interval.layer) json["layer"] = *interval.layer;
  if (interval.micro_batch) json["micro_batch"] = *interval.micro_batch;
  if (interval.posted != interval.begin) json["posted_ps"] = interval.posted.count();
  json["begin_ps"] = interval.begin.count();
  json["end_ps"] = interval.end.count();
  if (interval.ops > 1) json["ops"] = interval.ops;
  return json;
}

Interval interval_from(JsonObject object) {
  static const auto streams = texts_of<Stream>(kStreams);
  static const auto kinds = texts_of<OpKind>(kOpKinds);
  static const auto phases = texts_of<Phase>(kPhases);
  const auto time = [&](std::string_view key) {
    return Picoseconds(object.integer(key, -kMostJsonInteger, kMostJsonInteger));
  };
  const auto index = [&](std::string_view key) -> std::optional<std::int64_t> {
    if (!object.has(key)) return std::nullopt;
    return object.integer(key, 0, kMostJsonInteger);
  };
  Interval interval;
  interval.rank = object.integer("rank", 0, kMostJsonInteger);
  interval.stream = static_cast<Stream>(object.choice("stream", streams));
  interval.kind.reset();
  if (!object.raw("kind").is_null()) {
    interval.kind = static_cast<OpKind>(object.choice("kind", kinds));
  }
  interval.phase = static_cast<Phase>(object.choice("phase", phases));
  interval.routine = object.text("routine");
  interval.layer = index("layer");
  interval.micro_batch = index("micro_batch");
  interval.begin = time("begin_ps");
  interval.end = time("end_ps");
  interval.posted = object.has("posted_ps") ? time("posted_ps") : interval.begin;
  if (object.has("ops")) interval.ops = object.integer("ops", 1, kMostJsonInteger);
  object.finish();
  return interval;
}

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

Json memory_json(const RankMemory& memory) {
  return {{"rank", memory.rank},
          {"peak_bytes", memory.peak.count()},
          {"by_class", by_role_json(memory.by_role)},
          {"arena_bytes", memory.arena.count()},
          {"curve", curve_json(memory.curve)}};
}

RankMemory memory_from(JsonObject object) {
  RankMemory memory;
  memory.rank = object.integer("rank", 0, kMostJsonInteger);
  memory.peak = byte_count(object, "peak_bytes");
  memory.by_role = by_role_from(object.object("by_class"));
  memory.arena = byte_count(object, "arena_bytes");
  memory.curve = curve_from(object.object("curve"));
  object.finish();
  return memory;
}

}  // namespace

Json by_role_json(const BytesByRole& by_role) {
  Json json = Json::object();
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    json[std::string(to_text(static_cast<TensorRole>(role)))] = by_role[role].count();
  }
  return json;
}

BytesByRole by_role_from(JsonObject object) {
  BytesByRole by_role;
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    by_role[role] = byte_count(object, to_text(static_cast<TensorRole>(role)));
  }
  object.finish();
  return by_role;
}

Json timeline_json(const Timeline& timeline) {
  Json intervals = Json::array(), memory = Json::array();
  for (const Interval& interval : timeline.intervals) intervals.push_back(interval_json(interval));
  for (const RankMemory& rank : timeline.memory) memory.push_back(memory_json(rank));
  return {{"intervals", std::move(intervals)}, {"memory", std::move(memory)}};
}

Timeline timeline_from(JsonObject object) {
  Timeline timeline;
  double all = 0;  // readers sum durations by rank or kind
  for (JsonObject& json : object.objects("intervals")) {
    const Interval& interval = timeline.intervals.emplace_back(interval_from(std::move(json)));
    all += std::abs((interval.end - interval.begin).seconds().value());
  }
  if (all > kMostTimelineSeconds) {
    throw InputError(object.file(), object.pointer() + "/intervals",
                     fmt::format("found intervals of {} s together; at most {} s are allowed", all,
                                 kMostTimelineSeconds));
  }
  for (JsonObject& memory : object.objects("memory")) {
    timeline.memory.push_back(memory_from(std::move(memory)));
  }
  object.finish();
  return timeline;
}

Json rank_times_json(const std::vector<RankTimes>& times) {
  Json json = Json::array();
  for (const RankTimes& rank : times) {
    Json kinds = Json::object();
    for (std::size_t kind = 0; kind < rank.by_kind.size(); ++kind) {
      if (rank.by_kind[kind] == Picoseconds()) continue;
      kinds[std::string(to_text(OpKind(kind)))] = rank.by_kind[kind].count();
    }
    json.push_back({{"rank", rank.rank},
                    {"exposed_wait_ps", rank.exposed.wait.count()},
                    {"exposed_transfer_ps", rank.exposed.transfer.count()},
                    {"by_kind_ps", std::move(kinds)}});
  }
  return json;
}

std::vector<RankTimes> rank_times_from(JsonObject& parent) {
  std::vector<RankTimes> times;
  for (JsonObject& object : parent.objects("rank_times")) {
    const auto time = [](JsonObject& from, std::string_view key) {
      return Picoseconds(from.integer(key, 0, kMostJsonInteger));
    };
    RankTimes rank;
    rank.rank = object.integer("rank", 0, kMostJsonInteger);
    rank.exposed.wait = time(object, "exposed_wait_ps");
    rank.exposed.transfer = time(object, "exposed_transfer_ps");
    rank.by_kind.resize(kOpKinds);
    JsonObject kinds = object.object("by_kind_ps");
    for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
      const std::string_view key = to_text(OpKind(kind));
      if (kinds.has(key)) rank.by_kind[kind] = time(kinds, key);
    }
    kinds.finish();
    object.finish();
    times.push_back(std::move(rank));
  }
  return times;
}

Bytes byte_count(JsonObject& object, std::string_view key) {
  return Bytes(object.integer(key, 0, kMostJsonInteger));
}

}  // namespace plimsoll
