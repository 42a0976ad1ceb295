// Measurement files are read and written here.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "graph/op_table.h"
#include "models/kinds/file_kind.h"
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
  one.sent = byte_count(object, "sent_bytes");
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

Json experts_json(const std::vector<MeasuredExperts>& experts) {
  Json json = Json::array();
  for (const MeasuredExperts& one : experts) {
    json.push_back({{"layer", one.layer}, {"choices", one.choices}, {"dropped", one.dropped}});
    if (one.load == 0) continue;
    json.back()["load"] = one.load;
    json.back()["highest_load"] = one.highest_load;
  }
  return json;
}

MeasuredExperts experts_from(JsonObject& object) {
  MeasuredExperts one;
  one.layer = object.integer("layer", 0, kMostJsonInteger);
  one.choices = object.integer("choices", 0, kMostJsonInteger);
  one.dropped = object.integer("dropped", 0, one.choices);
  if (object.has("load")) {
    one.load = object.number("load", 1, double(kMostJsonInteger));
    one.highest_load = object.number("highest_load", 1, double(kMostJsonInteger));
  }
  object.finish();
  return one;
}

}  // namespace

std::optional<double> measured_load(const Measured& measured) {
  double sum = 0;
  for (const MeasuredExperts& one : measured.experts) sum += one.load;
  if (sum == 0) return std::nullopt;
  return sum / double(measured.experts.size());
}

std::string measured_text(const Measured& measured) {
  Json step_times = Json::array();
  for (Seconds time : measured.step_times) step_times.push_back(time.value());
  Json json = {{"version", kMeasuredVersion},
               {"plan_digest", measured.plan_digest},
               {"backend", measured.backend},
               {"communicator", measured.communicator},
               {"date", measured.date},
               {"host_cpu", measured.host_cpu},
               {"steps", measured.steps},
               {"warm_up_steps", measured.warm_up_steps},
               {"median_step_time_s", measured.median_step_time.value()},
               {"step_times_s", std::move(step_times)},
               {"losses", numbers_json(measured.losses)},
               {"gradient_norms", numbers_json(measured.gradient_norms)},
               {"resident_bytes", measured.resident.count()},
               {"traffic", traffic_json(measured.traffic)},
               {"timeline", timeline_json(measured.timeline)}};
  if (!measured.loss_scales.empty()) {
    json["loss_scales"] = numbers_json(measured.loss_scales);
    json["skipped_steps"] = measured.skipped_steps;
  }
  if (!measured.experts.empty()) json["experts"] = experts_json(measured.experts);
  if (!measured.device.empty()) {
    json["device"] = measured.device;
    json["device_memory_before_bytes"] = measured.device_memory_before.count();
    json["device_memory_bytes"] = measured.device_memory.count();
  }
  return line_text(json);
}

Measured parse_measured(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::measured, text, file);
  JsonObject object(json, file);
  if (object.integer("version", 0, kMostJsonInteger) != kMeasuredVersion) {
    object.fail("version", "this build reads version " + std::to_string(kMeasuredVersion));
  }
  Measured measured;
  measured.plan_digest = object.text("plan_digest");
  measured.backend = object.text("backend");
  measured.communicator = object.text("communicator");
  measured.date = object.text("date");
  measured.host_cpu = object.text("host_cpu");
  measured.steps = object.integer("steps", 0, kMostJsonInteger);
  measured.warm_up_steps = object.integer("warm_up_steps", 0, kMostJsonInteger);
  measured.median_step_time = Seconds(object.number("median_step_time_s", 0, kMostJsonSeconds));
  for (double time : object.numbers("step_times_s")) {
    if (!(time >= 0 && time <= kMostJsonSeconds)) {
      object.fail("step_times_s", fmt::format("must hold times from 0 to {} s", kMostJsonSeconds));
    }
    measured.step_times.push_back(Seconds(time));
  }
  measured.losses = numbers_or_null(object, "losses");
  measured.gradient_norms = numbers_or_null(object, "gradient_norms");
  if (object.has("loss_scales")) {
    measured.loss_scales = numbers_or_null(object, "loss_scales");
    measured.skipped_steps = object.integer("skipped_steps", 0, kMostJsonInteger);
  }
  measured.resident = byte_count(object, "resident_bytes");
  if (object.has("device")) {
    measured.device = object.text("device");
    measured.device_memory_before = byte_count(object, "device_memory_before_bytes");
    measured.device_memory = byte_count(object, "device_memory_bytes");
  }
  if (object.has("experts")) {
    for (JsonObject& entry : object.objects("experts"))
      measured.experts.push_back(experts_from(entry));
  }
  measured.timeline = timeline_from(object.object("timeline"));
  measured.traffic = all_traffic_from(object, measured.timeline.memory.size());
  object.finish();
  return measured;
}

Measured read_measured(const std::filesystem::path& path) {
  return parse_measured(read_file(path), path.string());
}

}  // namespace plimsoll
