// Computes what files of settings have beside the fields of jobs and strategies.
#include "interop/flags/settings_quantities.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "interop/flags/flag_lists.h"

namespace plimsoll {
namespace {

using Count = std::optional<std::int64_t>;

constexpr std::int64_t kMostCounted = std::int64_t{1} << 24;
constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

std::optional<std::string_view> stated(const SettingFields& fields, std::string_view key) {
  const auto field = fields.find(key);
  return field == fields.end() ? std::nullopt : std::optional<std::string_view>(field->second);
}

/// Returns a field that is an integer from 1.
Count stated_count(const SettingFields& fields, std::string_view key) {
  const auto text = stated(fields, key);
  const Count value = text ? whole_integer(*text) : std::nullopt;
  return value && *value >= 1 && *value <= std::int64_t{1} << 53 ? value : std::nullopt;
}

std::optional<double> finite_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

Count quotient(Count whole, std::int64_t part) {
  if (!whole || part < 1 || *whole % part != 0) return std::nullopt;
  return *whole / part;
}

std::string text_of_count(std::int64_t value) { return fmt::format("{}", value); }

/// Returns dp x sharding_degree.
Count counted_data_parallel(const SettingFields& fields) {
  const Count copies = stated_count(fields, "dp"), shards = stated_count(fields, "sharding_degree");
  if (!copies || !shards || *copies > kMostCounted || *shards > kMostCounted) return std::nullopt;
  return *copies * *shards;
}

/// Returns global_batch / (micro_batch x data-parallel ranks).
Count counted_micro_batches(const SettingFields& fields) {
  const Count width = counted_data_parallel(fields), each = stated_count(fields, "micro_batch");
  if (!width || !each || *each > kMostCounted || *width > kMostCounted) return std::nullopt;
  return quotient(stated_count(fields, "global_batch"), *each * *width);
}

/// The elements of the matrices of a layer, and of its largest matrix.
struct LayerSizes {
  std::int64_t layer = 0, largest = 0;
};

std::optional<LayerSizes> layer_sizes(const SettingFields& fields) {
  const Count hidden = stated_count(fields, "hidden"), heads = stated_count(fields, "heads"),
              groups = stated_count(fields, "kv_heads"), inner = stated_count(fields, "ffn_hidden");
  constexpr std::int64_t kMostSize = std::int64_t{1} << 22;  // models/presets/schemas/job.json
  if (!hidden || !heads || !groups || !inner || *groups > *heads) return std::nullopt;
  if (*hidden > kMostSize || *inner > kMostSize) return std::nullopt;
  const auto activation = stated(fields, "activation");
  const bool gated = activation && (*activation == "swiglu" || *activation == "geglu");
  const std::int64_t matrices = gated ? 3 : 2;
  const std::int64_t head = stated_count(fields, "head_size").value_or(*hidden / *heads);
  if (head > kMostSize / *heads) return std::nullopt;
  return LayerSizes{*hidden * (2 * head * (*heads + *groups) + matrices * *inner),
                    *hidden * std::max(head * *heads, *inner)};
}

/// Returns the elements that are gathered ahead of their use: of so many layers, or of so many
/// matrices.
Count prefetch_elements(const SettingFields& fields) {
  const auto depth = stated(fields, "prefetch_depth");
  const auto gather = stated(fields, "gather");
  const auto sizes = layer_sizes(fields);
  const Count uses = depth ? whole_integer(*depth) : std::nullopt;
  if (!uses || *uses < 0 || *uses > 1 << 16 || !gather || !sizes) return std::nullopt;
  if (*gather == "layer") return *uses * sizes->layer;
  return *gather == "module" ? Count(*uses * sizes->largest) : std::nullopt;
}

/// A bucket that holds one layer or more is filled with whole layers, a smaller one with modules.
/// Without a bucket each module is gathered when it is used.
std::vector<std::pair<std::string, std::string>> prefetch_from(const SettingFields& fields,
                                                               std::string_view text) {
  const Count elements = whole_integer(text);
  if (!elements || *elements < 0 || *elements > std::int64_t{1} << 50)
    throw std::invalid_argument("a number of elements is required");
  const auto sizes = layer_sizes(fields);
  if (!sizes)
    throw std::invalid_argument("the sizes of the model's layers are required: name a job");
  const bool layers = *elements >= sizes->layer &&
                      (*elements % sizes->layer == 0 || *elements % sizes->largest != 0);
  const std::int64_t uses =
      layers ? *elements / sizes->layer : (*elements + sizes->largest - 1) / sizes->largest;
  return {{"prefetch_depth", text_of_count(std::min<std::int64_t>(uses, 1 << 16))},
          {"gather", layers ? "layer" : "module"}};
}

/// Returns n where the loss scale begins with 2^n.
Count loss_scale_power(const SettingFields& fields) {
  const auto scale = stated(fields, "loss_scale.initial");
  const auto value = scale ? finite_number(*scale) : std::nullopt;
  if (!value || *value < 1 || *value > 1e15) return std::nullopt;
  const auto whole = static_cast<std::uint64_t>(*value);
  if (double(whole) != *value || !std::has_single_bit(whole)) return std::nullopt;
  return std::bit_width(whole) - 1;
}

std::int64_t bytes_of_parameter(const SettingFields& fields) {
  const auto precision = stated(fields, "precision");
  return precision && *precision == "fp32" ? 4 : 2;
}

}  // namespace

std::optional<std::string> settings_value(const SettingFields& fields, std::string_view key) {
  Count count;
  if (key == "data_parallel") count = counted_data_parallel(fields);
  if (key == "micro_batches") count = counted_micro_batches(fields);
  if (key == "prefetch_elements") count = prefetch_elements(fields);
  if (key == "loss_scale_power") count = loss_scale_power(fields);
  if (!count) count = whole_integer(key);  // a number stands for itself
  return count ? std::optional(text_of_count(*count)) : std::nullopt;
}

std::optional<std::vector<std::pair<std::string, std::string>>> fields_of_setting(
    const SettingFields& fields, std::string_view key, std::string_view text) {
  if (key == "prefetch_elements") return prefetch_from(fields, text);
  if (key != "loss_scale_power") return fields_of_list(fields, key, text);
  const Count power = whole_integer(text);
  if (!power || *power < 0 || *power > 49)
    throw std::invalid_argument("a power of two from 0 to 49 is required");
  return std::vector<std::pair<std::string, std::string>>{
      {"loss_scale.initial", text_of_count(std::int64_t{1} << *power)}};
}

std::optional<std::string> in_settings_unit(const SettingFields& fields, std::string_view unit,
                                            std::string_view value) {
  if (unit == "each_layer") return to_each_layer(fields, value);
  if (unit != "parameters" && unit != "MiB" && unit != "whole_MiB") return std::nullopt;
  const Count bytes = whole_integer(value);
  if (!bytes) throw std::invalid_argument("an integer is required");
  if (unit == "parameters") return text_of_count(*bytes / bytes_of_parameter(fields));
  if (unit == "MiB") {
    const std::string number = fmt::format("{}", double(*bytes) / double(kMebibyte));
    return number.find_first_of(".e") == number.npos ? number + ".0" : number;
  }
  return text_of_count(std::max<std::int64_t>(1, (*bytes + kMebibyte / 2) / kMebibyte));
}

std::optional<std::string> from_settings_unit(const SettingFields& fields, std::string_view unit,
                                              std::string_view text) {
  if (unit == "each_layer") return from_each_layer(fields, text);
  if (unit != "parameters" && unit != "MiB" && unit != "whole_MiB") return std::nullopt;
  const auto number = finite_number(text);
  const double most = 1e15;
  if (!number || *number < 0 || *number > most)
    throw std::invalid_argument("a number from 0 to 1e15 is required");
  const double factor =
      unit == "parameters" ? double(bytes_of_parameter(fields)) : double(kMebibyte);
  if (*number * factor > most * 8) throw std::invalid_argument("a smaller number is required");
  return text_of_count(std::int64_t(*number * factor));
}

void complete_devices(SettingFields& fields) {
  if (fields.contains("devices") || fields.contains("nodes")) return;
  Count width = stated_count(fields, "data_parallel");
  if (!width) {
    const Count each = stated_count(fields, "micro_batch"),
                count = stated_count(fields, "micro_batches");
    if (each && count && *each <= kMostCounted && *count <= kMostCounted)
      width = quotient(stated_count(fields, "global_batch"), *each * *count);
  }
  if (!width) return;
  std::int64_t devices = *width;
  for (const std::string_view key : {"mp", "pp", "cp"}) {
    const std::int64_t degree = stated_count(fields, key).value_or(1);
    if (devices > kMostCounted || degree > kMostCounted)
      throw std::invalid_argument("at most 2^22 devices are supported");
    devices *= degree;
  }
  fields["devices"] = text_of_count(devices);
}

void complete_batch(SettingFields& fields, std::int64_t width) {
  const Count ranks = stated_count(fields, "data_parallel");
  if (ranks && *ranks != width)
    throw std::invalid_argument(fmt::format(
        "{} data-parallel ranks are stated; the other degrees leave {}", *ranks, width));
  const Count count = stated_count(fields, "micro_batches");
  if (!count) return;
  if (*count > kMostCounted)
    throw std::invalid_argument("at most 2^24 micro-batches are supported");
  const std::int64_t parts = *count * width;
  const Count each = stated_count(fields, "micro_batch"),
              all = stated_count(fields, "global_batch");
  if (!each && all) {
    const Count part = quotient(all, parts);
    if (!part)
      throw std::invalid_argument(fmt::format(
          "{} sequences do not divide into {} micro-batches on each of {} data-parallel "
          "ranks",
          *all, *count, width));
    fields["micro_batch"] = text_of_count(*part);
  } else if (each && *each <= kMostCounted && (!all || *all != *each * parts)) {
    if (all)
      throw std::invalid_argument(
          fmt::format("{} sequences are not {} micro-batches of {} on each of {} data-parallel "
                      "ranks",
                      *all, *count, *each, width));
    fields["global_batch"] = text_of_count(*each * parts);
  }
}

}  // namespace plimsoll
