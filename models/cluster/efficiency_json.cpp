// Efficiency parameters and sources are read from and written to cluster files.
#include "models/cluster/efficiency_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/schema_note.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostUnits = 1 << 20;
constexpr double kMostAddedDepth = 1e6;    // steps of an inner dimension
constexpr double kMostFittedFlops = 1e21;  // of one op
constexpr Seconds kMostFixedTime{1};       // of one kernel or collective: a slip of the pen
constexpr double kMostSlowdown = 10;
constexpr double kLeastFraction = 1e-3;  // below, the peak is not this device's
constexpr double kMostFp8Rate = 2;       // then 16-bit products reach half of their peak at most

Seconds fixed_time(JsonObject& object) {
  const Seconds time = object.seconds("fixed_time");
  if (time > kMostFixedTime) {
    object.fail("fixed_time", fmt::format("at most {} is allowed", exact_text(kMostFixedTime)));
  }
  return time;
}

std::optional<FitRange<Flops>> fitted_flops(JsonObject& object) {
  if (!object.has("fitted")) return std::nullopt;
  JsonObject fit = object.object("fitted");
  FitRange<Flops> range;
  range.from = Flops(fit.number("from_flops", 1, kMostFittedFlops));
  range.to = Flops(fit.number("to_flops", range.from.value(), kMostFittedFlops));
  range.error = fit.number("error", 0, 1);
  fit.finish();
  return range;
}

std::optional<FitRange<Bytes>> fitted_bytes(JsonObject& object) {
  if (!object.has("fitted")) return std::nullopt;
  JsonObject fit = object.object("fitted");
  FitRange<Bytes> range;
  range.from = fit.bytes("from");
  range.to = fit.bytes("to");
  if (range.to < range.from) fit.fail("to", "at least what `from` says is required");
  range.error = fit.number("error", 0, 1);
  fit.finish();
  return range;
}

MatmulEfficiency matmul_from(JsonObject object) {
  MatmulEfficiency matmul;
  matmul.peak_fraction = object.number("peak_fraction", kLeastFraction, 1);
  matmul.units = object.integer("units", 1, kMostUnits);
  matmul.added_depth = object.number("added_depth", 0, kMostAddedDepth);
  matmul.half_rate_reuse = object.number("half_rate_reuse", 0, kMostAddedDepth);
  matmul.fixed_time = fixed_time(object);
  if (object.has("unaligned_rate"))
    matmul.unaligned_rate = object.number("unaligned_rate", kLeastFraction, 1);
  if (object.has("fp8_rate"))
    matmul.fp8_rate = object.number("fp8_rate", kLeastFraction, kMostFp8Rate);
  if (matmul.peak_fraction * matmul.fp8_rate > 1)
    object.fail("fp8_rate", "times peak_fraction it is more than the peak");
  if (object.has("rowwise_rate"))
    matmul.rowwise_rate = object.number("rowwise_rate", kLeastFraction, 1);
  if (object.has("f32_across_rate"))
    matmul.f32_across_rate = object.number("f32_across_rate", kLeastFraction, 1);
  matmul.fitted = fitted_flops(object);
  object.finish();
  return matmul;
}

AttentionEfficiency attention_from(JsonObject object) {
  AttentionEfficiency attention;
  attention.peak_fraction = object.number("peak_fraction", kLeastFraction, 1);
  attention.fixed_time = fixed_time(object);
  attention.fitted = fitted_flops(object);
  object.finish();
  return attention;
}

MemoryEfficiency memory_from(JsonObject object) {
  MemoryEfficiency memory;
  memory.bandwidth_fraction = object.number("bandwidth_fraction", kLeastFraction, 1);
  memory.fixed_time = fixed_time(object);
  memory.fitted = fitted_bytes(object);
  object.finish();
  return memory;
}

LevelEfficiency level_efficiency_from(JsonObject& object) {
  LevelEfficiency level;
  level.bandwidth_fraction = object.number("bandwidth_fraction", kLeastFraction, 1);
  level.fixed_time = fixed_time(object);
  level.fitted = fitted_bytes(object);
  object.finish();
  return level;
}

OverlapEfficiency overlap_from(JsonObject object) {
  OverlapEfficiency overlap;
  if (object.has("compute_slowdown"))
    overlap.compute_slowdown = object.number("compute_slowdown", 1, kMostSlowdown);
  if (object.has("communication_slowdown"))
    overlap.communication_slowdown = object.number("communication_slowdown", 1, kMostSlowdown);
  object.finish();
  return overlap;
}

Json flops_json(const FitRange<Flops>& range) {
  return {
      {"from_flops", range.from.value()}, {"to_flops", range.to.value()}, {"error", range.error}};
}

Json attention_json(const AttentionEfficiency& attention) {
  Json json = {{"peak_fraction", attention.peak_fraction},
               {"fixed_time", exact_text(attention.fixed_time)}};
  if (attention.fitted) json["fitted"] = flops_json(*attention.fitted);
  return json;
}

Json bytes_json(const FitRange<Bytes>& range) {
  return {{"from", exact_text(range.from)}, {"to", exact_text(range.to)}, {"error", range.error}};
}

/// JSON pointers of what needs a source: numbers, and texts that spell quantities. The note of the
/// file's schema says nothing of the cluster.
void collect(const Json& value, const std::string& at, std::vector<std::string>& pointers) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      const bool label = key == "name" || key == "kind" || key == "source" || key == kSchemaNote;
      if (!label) collect(member, json_pointer(at, key), pointers);
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      collect(value[i], json_pointer(at, std::to_string(i)), pointers);
    }
  } else if (!value.is_null()) {
    pointers.push_back(at);
  }
}

bool covers(const std::string& source, const std::string& pointer) {
  return pointer == source || pointer.starts_with(source + "/");
}

std::string filled(JsonObject& object, const char* key) {
  std::string text = object.text(key);
  if (text.empty()) object.fail(key, "it must not be empty");
  return text;
}

/// 2020, 2020-06 or 2020-06-30.
bool is_date(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  if (text.size() != 4 && text.size() != 7 && text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (kForm[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != '-') return false;
  }
  return true;
}

}  // namespace

Efficiency efficiency_from(JsonObject object, std::optional<std::size_t> levels) {
  Efficiency efficiency;
  efficiency.matmul = matmul_from(object.object("matmul"));
  efficiency.attention_forward = attention_from(object.object("attention_forward"));
  efficiency.attention_backward = attention_from(object.object("attention_backward"));
  efficiency.memory = memory_from(object.object("memory"));
  if (object.has("overlap")) efficiency.overlap = overlap_from(object.object("overlap"));
  if (levels) {
    std::vector<JsonObject> objects = object.objects("levels");
    if (objects.size() != *levels) {
      object.fail("levels", fmt::format("one for each of the {} levels is required", *levels));
    }
    for (JsonObject& level : objects) efficiency.levels.push_back(level_efficiency_from(level));
  }
  object.finish();
  return efficiency;
}

Json efficiency_json(const Efficiency& efficiency) {
  const MatmulEfficiency& matmul = efficiency.matmul;
  Json matmul_json = {{"peak_fraction", matmul.peak_fraction},
                      {"units", matmul.units},
                      {"added_depth", matmul.added_depth},
                      {"half_rate_reuse", matmul.half_rate_reuse},
                      {"fixed_time", exact_text(matmul.fixed_time)}};
  if (matmul.unaligned_rate != 1) matmul_json["unaligned_rate"] = matmul.unaligned_rate;
  if (matmul.fp8_rate != 1) matmul_json["fp8_rate"] = matmul.fp8_rate;
  if (matmul.rowwise_rate != 1) matmul_json["rowwise_rate"] = matmul.rowwise_rate;
  if (matmul.f32_across_rate != 1) matmul_json["f32_across_rate"] = matmul.f32_across_rate;
  if (matmul.fitted) matmul_json["fitted"] = flops_json(*matmul.fitted);
  const auto moving = [](double fraction, Seconds fixed, const auto& fitted) {
    Json json = {{"bandwidth_fraction", fraction}, {"fixed_time", exact_text(fixed)}};
    if (fitted) json["fitted"] = bytes_json(*fitted);
    return json;
  };
  Json levels = Json::array();
  for (const LevelEfficiency& level : efficiency.levels) {
    levels.push_back(moving(level.bandwidth_fraction, level.fixed_time, level.fitted));
  }
  const MemoryEfficiency& memory = efficiency.memory;
  Json json = {{"matmul", matmul_json},
               {"attention_forward", attention_json(efficiency.attention_forward)},
               {"attention_backward", attention_json(efficiency.attention_backward)},
               {"memory", moving(memory.bandwidth_fraction, memory.fixed_time, memory.fitted)}};
  const OverlapEfficiency& overlap = efficiency.overlap;
  if (overlap.compute_slowdown != 1) json["overlap"]["compute_slowdown"] = overlap.compute_slowdown;
  if (overlap.communication_slowdown != 1)
    json["overlap"]["communication_slowdown"] = overlap.communication_slowdown;
  json["levels"] = levels;
  return json;
}

void read_sources(JsonObject& object, const Json& document, Cluster& cluster) {
  if (!object.has("source") || object.raw("source").is_string()) {
    cluster.source = object.text("source");
    if (cluster.source.empty()) {
      object.fail("source", "say where the numbers come from: document, table or page, date");
    }
    return;
  }
  std::vector<std::string> pointers;
  collect(document, "", pointers);
  JsonObject sources = object.object("source");
  for (const std::string& key : sources.keys()) {
    JsonObject entry = sources.object(key);
    Source source{key, filled(entry, "document"), filled(entry, "where"), filled(entry, "date")};
    if (!is_date(source.date)) entry.fail("date", "a date like 2020-06-30 or 2020-06 is required");
    entry.finish();
    const auto covered = [&](const std::string& pointer) { return covers(key, pointer); };
    if (std::none_of(pointers.begin(), pointers.end(), covered)) {
      sources.fail(key, "this file has no number there");
    }
    cluster.sources.push_back(std::move(source));
  }
  for (const std::string& pointer : pointers) {
    const auto covering = [&](const Source& source) { return covers(source.covers, pointer); };
    if (std::none_of(cluster.sources.begin(), cluster.sources.end(), covering)) {
      object.fail("source", fmt::format("a source of {} is required", pointer));
    }
  }
}

Json sources_json(const Cluster& cluster) {
  if (cluster.sources.empty()) return cluster.source;
  Json json = Json::object();
  for (const Source& source : cluster.sources) {
    json[source.covers] = {
        {"document", source.document}, {"where", source.where}, {"date", source.date}};
  }
  return json;
}

std::string fits_of(const Cluster& cluster) {
  const Efficiency& efficiency = *cluster.efficiency;
  const auto part = [](std::string_view name, const auto& fitted) {
    return fitted ? fmt::format("{} fitted to {:.0f} %", name, 100 * fitted->error)
                  : fmt::format("{} datasheet", name);
  };
  const auto kernels = [&](const Efficiency& of) {
    return fmt::format("{}, {}, {}", part("matmul", of.matmul.fitted),
                       part("attention", of.attention_forward.fitted),
                       part("memory", of.memory.fitted));
  };
  std::string text = kernels(efficiency);
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    text += ", " + part(cluster.levels[l].name, efficiency.levels[l].fitted);
  }
  for (const OtherDevices& other : cluster.other_devices) {
    text += fmt::format("; {}: {}", printable(other.device.name),
                        other.efficiency ? kernels(*other.efficiency) : "datasheet rates");
  }
  return text;
}

std::string source_of(const Cluster& cluster, std::string_view pointer) {
  const Source* best = nullptr;
  for (const Source& source : cluster.sources) {
    if (!covers(source.covers, std::string(pointer))) continue;
    if (best == nullptr || source.covers.size() > best->covers.size()) best = &source;
  }
  return best == nullptr ? cluster.source
                         : fmt::format("{}, {}, {}", best->document, best->where, best->date);
}

}  // namespace plimsoll
