// Fitted calibrations are read, written and applied.
#include "models/calibration/fitted_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"

namespace plimsoll {
namespace {

FittedValue value_from(JsonObject object) {
  FittedValue value;
  value.name = object.text("name");
  value.value = object.number("value", 1e-12, 1e12);
  value.prior = object.number("prior", 1e-12, 1e12);
  value.low = object.number("low", 1e-12, value.value);
  value.high = object.number("high", value.value, 1e12);
  value.determined = object.boolean("determined");
  if (object.has("typical")) value.typical = object.boolean("typical");
  object.finish();
  return value;
}

LayerPoint layer_from(JsonObject object) {
  constexpr std::int64_t kMostInteger = std::int64_t{1} << 40;
  LayerPoint point;
  point.shape.tokens = object.integer("tokens", 1, kMostInteger);
  point.shape.sequence = object.integer("sequence", 1, kMostInteger);
  point.shape.hidden = object.integer("hidden", 1, kMostInteger);
  point.shape.mp = object.integer("mp", 1, kMostInteger);
  point.shape.operand_bytes = object.integer("operand_bytes", 1, 4);
  if (object.has("routed")) point.shape.routed = object.integer("routed", 0, kMostInteger);
  point.factor = object.number("factor", 0.01, 100);
  point.deviation = object.number("deviation", 0, 10);
  point.runs = object.integer("runs", 1, kMostInteger);
  object.finish();
  return point;
}

ModelSize size_from(JsonObject object) {
  constexpr std::int64_t kMostInteger = std::int64_t{1} << 40;
  ModelSize size;
  size.layers = object.integer("layers", 1, kMostInteger);
  size.hidden = object.integer("hidden", 1, kMostInteger);
  if (object.has("experts")) size.experts = object.integer("experts", 1, kMostInteger);
  object.finish();
  return size;
}

Json size_json(const ModelSize& size) {
  Json json = {{"layers", size.layers}, {"hidden", size.hidden}};
  if (size.experts > 0) json["experts"] = size.experts;
  return json;
}

RunSpread spread_from(JsonObject object) {
  RunSpread spread;
  spread.deviation = object.number("deviation", 0, 10);
  spread.interval90_deviations = object.number("interval90_deviations", 0, 1e6);
  object.finish();
  return spread;
}

Json spread_json(const RunSpread& spread) {
  return {{"deviation", spread.deviation}, {"interval90_deviations", spread.interval90_deviations}};
}

constexpr std::array<std::string_view, 2> kRepeated = {"none", "full"};

AssumedRecompute assumed_from(JsonObject object) {
  AssumedRecompute assumed;
  const auto scope = [&](const char* key) -> std::optional<bool> {
    if (!object.has(key)) return std::nullopt;
    return object.choice(key, kRepeated) == 1;
  };
  assumed.within_node = scope("within_node");
  assumed.across_nodes = scope("across_nodes");
  object.finish();
  return assumed;
}

Json assumed_json(const AssumedRecompute& assumed) {
  Json json = Json::object();
  const auto write = [&](const char* key, const std::optional<bool>& full) {
    if (full) json[key] = kRepeated[*full ? 1 : 0];
  };
  write("within_node", assumed.within_node);
  write("across_nodes", assumed.across_nodes);
  return json;
}

LearnedSpread learned_from(JsonObject object) {
  LearnedSpread learned;
  learned.noise = object.number("noise", 1e-6, 10);
  learned.names = object.texts("names");
  learned.covariance = object.numbers("covariance");
  if (learned.covariance.size() != learned.names.size() * learned.names.size())
    object.fail("covariance", "the square of the number of names is required");
  object.finish();
  return learned;
}

Json learned_json(const LearnedSpread& learned) {
  return {{"noise", learned.noise}, {"names", learned.names}, {"covariance", learned.covariance}};
}

/// The field that says what the group of a parameter rests on; null where the parameter labels no
/// time of an op.
RestsOn* basis_of_group(const FitParameter& parameter, Efficiency& efficiency) {
  switch (parameter.part) {
    case FitPart::level:
      return &efficiency.levels[parameter.level].rests_on;
    case FitPart::memory:
      return &efficiency.memory.rests_on;
    case FitPart::attention_forward:
      return &efficiency.attention_forward.rests_on;
    case FitPart::attention_backward:
      return &efficiency.attention_backward.rests_on;
    case FitPart::products_of_fp8:
      return &efficiency.matmul.fp8_rests_on;
    case FitPart::products:
    case FitPart::products_of_16_bits:
      return &efficiency.matmul.rests_on;
    case FitPart::products_by_rows:
    case FitPart::overlap:
    case FitPart::host_op:
    case FitPart::host:
      break;
  }
  return nullptr;
}

constexpr double kMostRate = 1e21;  // of a device: bytes or operations per second

constexpr std::array<std::pair<const char*, std::optional<FlopsPerSecond> Device::*>, 4> kPeaks = {
    {{"peak_fp32_flops_per_s", &Device::peak_fp32},
     {"peak_bf16_flops_per_s", &Device::peak_bf16},
     {"peak_fp16_flops_per_s", &Device::peak_fp16},
     {"peak_fp8_flops_per_s", &Device::peak_fp8}}};

Device device_from(JsonObject object) {
  Device device;
  device.name = object.text("name");
  device.memory = Bytes(object.integer("memory_bytes", 1, std::int64_t{1} << 50));
  device.memory_bandwidth =
      BytesPerSecond(object.number("memory_bandwidth_bytes_per_s", 1, kMostRate));
  for (const auto& [key, peak] : kPeaks) {
    if (object.has(key)) device.*peak = FlopsPerSecond(object.number(key, 1, kMostRate));
  }
  object.finish();
  return device;
}

Json device_json(const Device& device) {
  Json json = {{"name", device.name},
               {"memory_bytes", device.memory.count()},
               {"memory_bandwidth_bytes_per_s", device.memory_bandwidth.value()}};
  for (const auto& [key, peak] : kPeaks) {
    if (device.*peak) json[key] = (device.*peak)->value();
  }
  return json;
}

FittedLevel level_from(JsonObject object) {
  FittedLevel level;
  level.name = object.text("name");
  level.least_bandwidth =
      BytesPerSecond(object.number("least_bandwidth_bytes_per_s", 1, kMostRate));
  level.most_bandwidth = BytesPerSecond(
      object.number("most_bandwidth_bytes_per_s", level.least_bandwidth.value(), kMostRate));
  level.latency = Seconds(object.number("latency_s", 0, 1));
  if (object.has("peer_bandwidth_bytes_per_s"))
    level.peer_bandwidth =
        BytesPerSecond(object.number("peer_bandwidth_bytes_per_s", 1, kMostRate));
  level.reduces_in_switch = object.boolean("reduces_in_switch");
  object.finish();
  return level;
}

Json level_json(const FittedLevel& level) {
  Json json = {{"name", level.name},
               {"least_bandwidth_bytes_per_s", level.least_bandwidth.value()},
               {"most_bandwidth_bytes_per_s", level.most_bandwidth.value()},
               {"latency_s", level.latency.value()}};
  if (level.peer_bandwidth) json["peer_bandwidth_bytes_per_s"] = level.peer_bandwidth->value();
  json["reduces_in_switch"] = level.reduces_in_switch;
  return json;
}

}  // namespace

std::string document_of(std::string_view source) {
  return std::string(source.substr(0, source.find_first_of("@, (")));
}

bool has_runs_of(const FittedCalibration& fitted, std::string_view document) {
  return !document.empty() &&
         std::any_of(fitted.sources.begin(), fitted.sources.end(),
                     [&](const std::string& source) { return document_of(source) == document; });
}

bool has_runs_of(const FittedCalibration& fitted, const ModelSize& size) {
  return std::ranges::find(fitted.sizes, size) != fitted.sizes.end();
}

void apply(const FittedCalibration& fitted, Cluster& cluster, Framework& framework) {
  const std::vector<FitParameter> known = fit_parameters(cluster);
  for (const FittedValue& value : fitted.values) {
    const auto parameter = std::find_if(known.begin(), known.end(), [&](const FitParameter& other) {
      return other.name == value.name;
    });
    if (parameter == known.end()) {
      throw InputError("", "/fitted/values",
                       fmt::format("found {}, which {} has no such parameter for",
                                   printable(value.name), printable(cluster.name)));
    }
    parameter->set(cluster, framework, parameter->level, value.value);
    if (!value.determined) continue;
    RestsOn* group = basis_of_group(*parameter, *cluster.efficiency);
    if (group != nullptr) *group = value.typical ? RestsOn::typical : RestsOn::runs;
  }
}

bool is_fitted_calibration(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  return json.is_object() && json.contains("fitted");
}

FittedCalibration parse_fitted_calibration(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonObject whole(json, file);
  JsonObject object = whole.object("fitted");
  FittedCalibration fitted;
  fitted.cluster = object.text("cluster");
  fitted.framework = object.text("framework");
  fitted.device = device_from(object.object("device"));
  for (JsonObject& level : object.objects("levels")) fitted.levels.push_back(level_from(level));
  fitted.sources = object.texts("sources");
  fitted.runs = object.integer("runs", 0, std::int64_t{1} << 40);
  // Fits from before sizes were written have wide intervals.
  if (object.has("sizes")) {
    for (JsonObject& size : object.objects("sizes")) fitted.sizes.push_back(size_from(size));
  }
  fitted.cross_validated_mean = object.number("cross_validated_mean", 0, 1e6);
  fitted.cross_validated_p90 = object.number("cross_validated_p90", 0, 1e6);
  if (object.has("unseen_sizes_mean"))
    fitted.unseen_sizes_mean = object.number("unseen_sizes_mean", 0, 1e6);
  fitted.within_node = spread_from(object.object("within_node"));
  fitted.across_nodes = spread_from(object.object("across_nodes"));
  fitted.assumed_recompute = assumed_from(object.object("assumed_recompute"));
  for (JsonObject& value : object.objects("values")) fitted.values.push_back(value_from(value));
  for (JsonObject& layer : object.objects("layers")) fitted.layers.push_back(layer_from(layer));
  if (object.has("learned")) fitted.learned = learned_from(object.object("learned"));
  object.finish();
  whole.finish();
  return fitted;
}

std::string fitted_calibration_text(const FittedCalibration& fitted) {
  Json object;
  object["cluster"] = fitted.cluster;
  object["framework"] = fitted.framework;
  object["device"] = device_json(fitted.device);
  object["levels"] = Json::array();
  for (const FittedLevel& level : fitted.levels) object["levels"].push_back(level_json(level));
  object["sources"] = fitted.sources;
  object["runs"] = fitted.runs;
  object["sizes"] = Json::array();
  for (const ModelSize& size : fitted.sizes) object["sizes"].push_back(size_json(size));
  object["cross_validated_mean"] = fitted.cross_validated_mean;
  object["cross_validated_p90"] = fitted.cross_validated_p90;
  if (fitted.unseen_sizes_mean) object["unseen_sizes_mean"] = *fitted.unseen_sizes_mean;
  object["within_node"] = spread_json(fitted.within_node);
  object["across_nodes"] = spread_json(fitted.across_nodes);
  object["assumed_recompute"] = assumed_json(fitted.assumed_recompute);
  object["values"] = Json::array();
  for (const FittedValue& value : fitted.values) {
    object["values"].push_back({{"name", value.name},
                                {"value", value.value},
                                {"low", value.low},
                                {"high", value.high},
                                {"prior", value.prior},
                                {"determined", value.determined}});
    if (value.typical) object["values"].back()["typical"] = true;
  }
  object["layers"] = Json::array();
  for (const LayerPoint& point : fitted.layers) {
    object["layers"].push_back({{"tokens", point.shape.tokens},
                                {"sequence", point.shape.sequence},
                                {"hidden", point.shape.hidden},
                                {"mp", point.shape.mp},
                                {"operand_bytes", point.shape.operand_bytes},
                                {"factor", point.factor},
                                {"deviation", point.deviation},
                                {"runs", point.runs}});
    if (point.shape.routed > 0) object["layers"].back()["routed"] = point.shape.routed;
  }
  if (fitted.learned) object["learned"] = learned_json(*fitted.learned);
  return json_text({{"fitted", object}});
}

}  // namespace plimsoll
