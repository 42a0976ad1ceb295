// Measurement files are read and written here.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "graph/op_table.h"
#include "models/kinds/file_kind.h"
#include "plan/json_fields.h"
#include "plan/json_layout.h"
#include "plan/measured.h"
#include "plan/timeline_json.h"

namespace plimsoll {
namespace {

/// JSON has no NaN or infinity: a loss that is not a number is written as null and read as NaN.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::vector<double> numbers_or_null(JsonObject& object, std::string_view key) {
  const Json& values = object.raw(key);
  if (!values.is_array()) object.fail(key, "must be an array of numbers");
  std::vector<double> numbers;
  for (const Json& value : values) {
    if (!value.is_number() && !value.is_null()) {
      object.fail(key, "must hold only numbers, or null for one that is not finite");
    }
    numbers.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                      : value.get<double>());
  }
  return numbers;
}

Json numbers_json(const std::vector<double>& numbers) {
  Json json = Json::array();
  for (double number : numbers) json.push_back(number_json(number));
  return json;
}

Json traffic_json(const std::vector<std::vector<Traffic>>& by_rank) {
  Json json = Json::array();
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const Traffic& one : by_rank[rank]) {
      json.push_back({{"rank", rank},
                      {"kind", to_text(one.kind)},
                      {"group", to_text(one.group)},
                      {"count", one.count},
                      {"sent_bytes", one.sent.count()}});
    }
  }
  return json;
}

Traffic traffic_from(JsonObject& object) {
  Traffic one;
  const std::string kind = object.text("kind"), group = object.text("group");
  const auto known_kind = op_kind_from(kind);
  if (!known_kind || !communicates(*known_kind)) {
    object.fail("kind", "a kind of communication is required");
  }
  const auto known_group = group_from(group);
  if (!known_group) object.fail("group", "axes such as mp or sharding,dp are required");
  one.kind = *known_kind;
  one.group = *known_group;
  one.count = object.integer("count", 1, kMostJsonInteger);
  one.sent = Bytes(object.integer("sent_bytes", 0, kMostJsonInteger));
  object.finish();
  return one;
}

std::vector<std::vector<Traffic>> all_traffic_from(JsonObject& object, std::size_t ranks) {
  std::vector<std::vector<Traffic>> by_rank(ranks);
  for (JsonObject& entry : object.objects("traffic")) {
    const std::int64_t rank = entry.integer("rank", 0, std::int64_t(ranks) - 1);
    by_rank[std::size_t(rank)].push_back(traffic_from(entry));
  }
  return by_rank;
}

void numbers_field(Fields& io, const char* key, std::vector<double>& numbers) {
  if (io.from) numbers = numbers_or_null(*io.from, key);
  if (!io.from) io.json[key] = numbers_json(numbers);
}

std::vector<Seconds> step_times_from(JsonObject& object) {
  std::vector<Seconds> times;
  for (const double time : object.numbers("step_times_s")) {
    if (!(time >= 0 && time <= kMostJsonSeconds))
      object.fail("step_times_s", fmt::format("must hold times from 0 to {} s", kMostJsonSeconds));
    times.push_back(Seconds(time));
  }
  return times;
}

}  // namespace

void list_fields(Fields& io, MeasuredExperts& experts) {
  io("layer", experts.layer);
  io("choices", experts.choices);
  io("dropped", experts.dropped, 0, experts.choices);
  if (!io.shows("load", experts.load != 0)) return;
  io.number("load", experts.load, 1., double(kMostJsonInteger));
  io.number("highest_load", experts.highest_load, 1., double(kMostJsonInteger));
}

void list_fields(Fields& io, Measured& measured) {
  io("plan_digest", measured.plan_digest);
  io("backend", measured.backend);
  io("communicator", measured.communicator);
  io("date", measured.date);
  io("host_cpu", measured.host_cpu);
  io("steps", measured.steps);
  io("warm_up_steps", measured.warm_up_steps);
  io("median_step_time_s", measured.median_step_time);
  if (io.from) measured.step_times = step_times_from(*io.from);
  if (!io.from) {
    io.json["step_times_s"] = Json::array();
    for (const Seconds time : measured.step_times) io.json["step_times_s"].push_back(time.value());
  }
  numbers_field(io, "losses", measured.losses);
  numbers_field(io, "gradient_norms", measured.gradient_norms);
  io("resident_bytes", measured.resident);
  if (!io.from) io.json["traffic"] = traffic_json(measured.traffic);
  io.as("timeline", measured.timeline, timeline_json, timeline_from);
  if (io.from) measured.traffic = all_traffic_from(*io.from, measured.timeline.memory.size());
  if (io.shows("loss_scales", !measured.loss_scales.empty())) {
    numbers_field(io, "loss_scales", measured.loss_scales);
    io("skipped_steps", measured.skipped_steps);
  }
  if (io.shows("experts", !measured.experts.empty())) io.list("experts", measured.experts);
  if (io.shows("device", !measured.device.empty())) {
    io("device", measured.device);
    io("device_memory_before_bytes", measured.device_memory_before);
    io("device_memory_bytes", measured.device_memory);
  }
}

std::optional<double> measured_load(const Measured& measured) {
  double sum = 0;
  for (const MeasuredExperts& one : measured.experts) sum += one.load;
  if (sum == 0) return std::nullopt;
  return sum / double(measured.experts.size());
}

std::string measured_text(const Measured& measured) {
  return line_text(fields_json(measured, {{"version", kMeasuredVersion}}));
}

Measured parse_measured(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::measured, text, file);
  JsonObject object(json, file);
  if (object.integer("version", 0, kMostJsonInteger) != kMeasuredVersion) {
    object.fail("version", "this build reads version " + std::to_string(kMeasuredVersion));
  }
  Fields io(std::move(object));
  Measured measured;
  list_fields(io, measured);
  io.from->finish();
  return measured;
}

Measured read_measured(const std::filesystem::path& path) {
  return parse_measured(read_file(path), path.string());
}

}  // namespace plimsoll
