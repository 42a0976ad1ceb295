// Efficiency parameters and sources are read from and written to cluster files.
#include "models/cluster/efficiency_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/field_list.h"
#include "base/schema_note.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostUnits = 1 << 20;
constexpr double kMostAddedDepth = 1e6;    // steps of an inner dimension
constexpr double kMostFittedFlops = 1e21;  // of one op
constexpr double kMostSlowdown = 10;
constexpr double kLeastFraction = 1e-3;  // below, the peak is not this device's
constexpr Allowed kFraction(kLeastFraction, 1);
constexpr Allowed kFixedTime(0, 1);  // of one kernel or collective: more is a slip of the pen
constexpr double kMostFp8Rate = 2;   // then 16-bit products reach half of their peak at most

constexpr auto kFlopsRange = [](auto& fields, auto& range) {
  fields.required("from_flops", range.from, {1, kMostFittedFlops});
  fields.required("to_flops", range.to, {range.from.value(), kMostFittedFlops});
  fields.required("error", range.error, {0, 1});
};

constexpr auto kBytesRange = [](auto& fields, auto& range) {
  fields.required("from", range.from);
  fields.required("to", range.to);
  fields.check(range.to >= range.from, "to", "at least what `from` says is required");
  fields.required("error", range.error, {0, 1});
};

constexpr auto kMatmul = [](auto& fields, auto& matmul) {
  fields.required("peak_fraction", matmul.peak_fraction, kFraction);
  fields.required("units", matmul.units, {1, kMostUnits});
  fields.required("added_depth", matmul.added_depth, {0, kMostAddedDepth});
  fields.required("half_rate_reuse", matmul.half_rate_reuse, {0, kMostAddedDepth});
  fields.required("fixed_time", matmul.fixed_time, kFixedTime);
  fields.unless(1, "unaligned_rate", matmul.unaligned_rate, kFraction);
  fields.unless(1, "fp8_rate", matmul.fp8_rate, {kLeastFraction, kMostFp8Rate});
  fields.check(matmul.peak_fraction * matmul.fp8_rate <= 1, "fp8_rate",
               "times peak_fraction it is more than the peak");
  fields.unless(1, "rowwise_rate", matmul.rowwise_rate, kFraction);
  fields.unless(1, "f32_across_rate", matmul.f32_across_rate, kFraction);
  fields.optional("fitted", matmul.fitted, kFlopsRange);
};

constexpr auto kAttention = [](auto& fields, auto& attention) {
  fields.required("peak_fraction", attention.peak_fraction, kFraction);
  fields.required("fixed_time", attention.fixed_time, kFixedTime);
  fields.optional("fitted", attention.fitted, kFlopsRange);
};

/// Memory and levels have the same fields.
constexpr auto kMoving = [](auto& fields, auto& moving) {
  fields.required("bandwidth_fraction", moving.bandwidth_fraction, kFraction);
  fields.required("fixed_time", moving.fixed_time, kFixedTime);
  fields.optional("fitted", moving.fitted, kBytesRange);
};

constexpr auto kOverlap = [](auto& fields, auto& overlap) {
  fields.unless(1, "compute_slowdown", overlap.compute_slowdown, {1, kMostSlowdown});
  fields.unless(1, "communication_slowdown", overlap.communication_slowdown, {1, kMostSlowdown});
};

constexpr auto kKernels = [](auto& fields, auto& efficiency) {
  fields.required("matmul", efficiency.matmul, kMatmul);
  fields.required("attention_forward", efficiency.attention_forward, kAttention);
  fields.required("attention_backward", efficiency.attention_backward, kAttention);
  fields.required("memory", efficiency.memory, kMoving);
  fields.optional("overlap", efficiency.overlap, kOverlap);
};

constexpr auto kEfficiency = [](auto& fields, auto& efficiency) {
  kKernels(fields, efficiency);
  fields.required("levels", efficiency.levels, kMoving);
};

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
  levels ? read_listed(object, efficiency, kEfficiency, Units::texts)
         : read_listed(object, efficiency, kKernels, Units::texts);
  if (levels && efficiency.levels.size() != *levels)
    object.fail("levels", fmt::format("one for each of the {} levels is required", *levels));
  object.finish();
  return efficiency;
}

Json efficiency_json(const Efficiency& efficiency) {
  return listed_json(efficiency, kEfficiency, Units::texts);
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
