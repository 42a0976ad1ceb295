// Measurement files are read and written here.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "graph/op_table.h"
#include "models/kinds/file_kind.h"
#include "plan/json_forms.h"
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

Json step_times_json(const std::vector<Seconds>& times) {
  Json json = Json::array();
  for (const Seconds time : times) json.push_back(time.value());
  return json;
}

std::vector<Seconds> step_times_from(JsonObject& object, std::string_view key) {
  std::vector<Seconds> times;
  for (const double time : object.numbers(key)) {
    if (!(time >= 0 && time <= kMostJsonSeconds))
      object.fail(key, fmt::format("must hold times from 0 to {} s", kMostJsonSeconds));
    times.push_back(Seconds(time));
  }
  return times;
}

constexpr Form kNumbers{numbers_json, numbers_or_null};
constexpr Allowed kLoads(1, kMostJsonInteger);

constexpr auto kExperts = [](auto& fields, auto& experts) {
  fields.required("layer", experts.layer);
  fields.required("choices", experts.choices);
  fields.required("dropped", experts.dropped, {0, double(experts.choices)});
  fields.optional("load", experts.load, kLoads);
  if (experts.load != 0) fields.required("highest_load", experts.highest_load, kLoads);
};

/// Whether a key that may be left out is there, in the file that is read or in the values.
bool shows(auto& fields, std::string_view key, bool is_there) {
  if constexpr (kReading<decltype(fields)>) return fields.object().has(key);
  return is_there;
}

constexpr auto kMeasured = [](auto& fields, auto& measured) {
  fields.version(kMeasuredVersion);
  fields.required("plan_digest", measured.plan_digest);
  fields.required("backend", measured.backend);
  fields.required("communicator", measured.communicator);
  fields.required("date", measured.date);
  fields.required("host_cpu", measured.host_cpu);
  fields.required("steps", measured.steps);
  fields.required("warm_up_steps", measured.warm_up_steps);
  fields.required("median_step_time_s", measured.median_step_time, kTimes);
  fields.required("step_times_s", measured.step_times, Form{step_times_json, step_times_from});
  fields.required("losses", measured.losses, kNumbers);
  fields.required("gradient_norms", measured.gradient_norms, kNumbers);
  fields.required("resident_bytes", measured.resident);
  if constexpr (!kReading<decltype(fields)>)
    fields.json()["traffic"] = traffic_json(measured.traffic);
  fields.required("timeline", measured.timeline, Form{timeline_json, timeline_from});
  if constexpr (kReading<decltype(fields)>)
    measured.traffic = all_traffic_from(fields.object(), measured.timeline.memory.size());
  if (shows(fields, "loss_scales", !measured.loss_scales.empty())) {
    fields.required("loss_scales", measured.loss_scales, kNumbers);
    fields.required("skipped_steps", measured.skipped_steps);
  }
  fields.optional("experts", measured.experts, kExperts);
  if (!shows(fields, "device", !measured.device.empty())) return;
  fields.required("device", measured.device);
  fields.required("device_memory_before_bytes", measured.device_memory_before);
  fields.required("device_memory_bytes", measured.device_memory);
};

}  // namespace

std::optional<double> measured_load(const Measured& measured) {
  double sum = 0;
  for (const MeasuredExperts& one : measured.experts) sum += one.load;
  if (sum == 0) return std::nullopt;
  return sum / double(measured.experts.size());
}

std::string measured_text(const Measured& measured) {
  return line_text(listed_json(measured, kMeasured));
}

Measured parse_measured(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::measured, text, file);
  return read_listed<Measured>(JsonObject(json, file), kMeasured);
}

Measured read_measured(const std::filesystem::path& path) {
  return parse_measured(read_file(path), path.string());
}

}  // namespace plimsoll
