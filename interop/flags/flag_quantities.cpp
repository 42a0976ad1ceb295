// Quantities that flags state and files do not.
#include "interop/flags/flag_quantities.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "base/error.h"
#include "interop/flags/flag_experts.h"
#include "interop/flags/flag_parts.h"
#include "interop/flags/settings_quantities.h"
#include "interop/flags/tokenizers.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "true" : "false"; }

/// Returns whether a field is known and has another value than `usual`.
bool differs(const FlagFields& fields, std::string_view key, std::string_view usual) {
  const auto field = fields.find(key);
  return field != fields.end() && field->second != usual;
}

/// Returns the ranks that read different sequences.
std::optional<std::int64_t> data_parallel(const FlagFields& fields) {
  const auto devices = count_of(fields, "devices");
  if (!devices || *devices > kMostDevices) return std::nullopt;
  std::int64_t left = *devices;
  for (const std::string_view key : {"mp", "pp", "cp"}) {
    const std::int64_t degree = count_of(fields, key).value_or(1);
    if (left % degree != 0) return std::nullopt;
    left /= degree;
  }
  return left;
}

/// Returns the ranks that each read other sequences, by the degrees alone.
std::optional<std::int64_t> readers(const FlagFields& fields) {
  const auto copies = count_of(fields, "dp"), shards = count_of(fields, "sharding_degree");
  if (!copies || !shards || *copies > kMostDevices || *shards > kMostDevices) return std::nullopt;
  return *copies * *shards;
}

std::optional<std::string> product(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  if (!a || !b || *a > (std::int64_t{1} << 53) / *b) return std::nullopt;
  return text_of(*a * *b);
}

/// Returns a share of the square of the hidden size, rounded down.
std::optional<std::string> hidden_squared(const FlagFields& fields, double share) {
  const auto hidden = count_of(fields, "hidden");
  if (!hidden || *hidden > kMostDevices) return std::nullopt;
  return text_of(std::int64_t(share * double(*hidden * *hidden)));
}

/// All ranks, where fields state their degrees.
std::optional<std::string> ranks_of(const FlagFields& fields) {
  if (fields.contains("nodes"))
    return product(count_of(fields, "nodes"), count_of(fields, "devices_per_node"));
  const auto width = readers(fields);
  if (!width) return std::nullopt;
  std::int64_t ranks = *width;
  for (const std::string_view key : {"mp", "pp", "cp"}) {
    const std::int64_t degree = count_of(fields, key).value_or(1);
    if (ranks > kMostDevices || degree > kMostDevices) return std::nullopt;
    ranks *= degree;
  }
  return text_of(ranks);
}

/// "-1" is all ranks that no other degree uses.
StatedFields shards_from(const FlagFields& fields, std::string_view text) {
  const auto shards = integer_from(text);
  if (shards && *shards >= 1 && *shards <= kMostDevices)
    return {{"sharding_degree", text_of(*shards)}};
  if (!shards || *shards != -1)
    throw std::invalid_argument("a number from 1, or -1 for the ranks that are left, is required");
  if (!fields.contains("devices"))
    throw std::invalid_argument("the ranks that are left follow from --devices, which is required");
  const auto width = data_parallel(fields);
  const std::int64_t copies = count_of(fields, "dp").value_or(1);
  if (!width || *width % copies != 0)
    throw std::invalid_argument("the other degrees do not divide the number of devices");
  return {{"sharding_degree", text_of(*width / copies)}};
}

/// The sequences of a rank's step, all of its micro-batches together.
/// Whether the MLP's activation is one of a gate.
std::optional<std::string> gated(const FlagFields& fields) {
  const auto activation = fields.find("activation");
  if (activation == fields.end()) return std::nullopt;
  return text_of(activation->second == "swiglu" || activation->second == "geglu");
}

std::optional<std::string> step_batch(const FlagFields& fields) {
  const auto batch = count_of(fields, "global_batch"), ranks = readers(fields);
  if (!batch || !ranks || *batch % *ranks != 0) return std::nullopt;
  return text_of(*batch / *ranks);
}

std::int64_t bytes_of_gradient(const FlagFields& fields) {
  return differs(fields, "gradient_type", "f32") && differs(fields, "precision", "fp32") ? 2 : 4;
}

/// Megatron-LM core/distributed/distributed_data_parallel.py: max(40000000, 1000000 * dp_size)
/// parameters, where dp_size includes ranks of context parallelism.
std::optional<std::string> usual_bucket(const FlagFields& fields) {
  const auto ranks = data_parallel(fields);
  const std::int64_t width = ranks.value_or(1) * count_of(fields, "cp").value_or(1);
  return text_of(std::max<std::int64_t>(40'000'000, 1'000'000 * width));
}

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// Megatron-LM megatron/training/tokenizer/tokenizer.py, _vocab_size_with_padding.
std::optional<std::string> padded(const FlagFields& fields) {
  const auto rows = count_of(fields, "vocab");
  const auto multiple = count_of(fields, "framework.vocabulary_multiple");
  const std::int64_t ranks = count_of(fields, "mp").value_or(1);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!rows || !multiple || *rows > kMost || *multiple > kMost || ranks > kMost)
    return std::nullopt;
  return text_of(rounded_up(*rows, *multiple * ranks));
}

/// Returns the least power of two with which the vocabulary is padded to so many rows, else the one
/// multiple that does so.
std::int64_t multiple_for(const FlagFields& fields, std::int64_t rows, std::int64_t ranks) {
  const std::int64_t vocabulary = count_of(fields, "vocab").value_or(1);
  for (std::int64_t multiple = 1; multiple <= rows; multiple *= 2) {
    if (rounded_up(vocabulary, multiple * ranks) == rows) return multiple;
  }
  return rows / ranks;
}

/// The multiple with which the framework pads as a plan has padded, else its usual one.
std::optional<std::string> padding_multiple(const FlagFields& fields) {
  const auto rows =
      fields.contains("padded_vocabulary") ? count_of(fields, "padded_vocabulary") : std::nullopt;
  const auto usual = count_of(fields, "framework.vocabulary_multiple");
  if (!rows) return usual ? std::optional(text_of(*usual)) : std::nullopt;
  FlagFields others = fields;
  others.erase("padded_vocabulary");
  if (usual && padded(others) == text_of(*rows)) return text_of(*usual);
  return text_of(multiple_for(fields, *rows, count_of(fields, "mp").value_or(1)));
}

struct FlagQuantity {
  std::string_view key;
  std::optional<std::string> (*value)(const FlagFields&);
};

const FlagQuantity kQuantities[] = {
    {"devices", ranks_of},
    {"shards",
     [](const FlagFields& fields) -> std::optional<std::string> {
       const auto shards = count_of(fields, "sharding_degree");
       return shards ? std::optional(text_of(*shards)) : std::nullopt;
     }},
    {"step_batch", step_batch},
    {"one_micro_batch_of_each",
     [](const FlagFields& fields) {
       return product(count_of(fields, "micro_batch"), readers(fields));
     }},
    {"one_step_batch_of_each",
     [](const FlagFields& fields) {
       return fields.contains("step_batch")
                  ? product(count_of(fields, "step_batch"), readers(fields))
                  : std::nullopt;
     }},
    {"every_nth_layer", every_nth_layer},
    {"grouped",
     [](const FlagFields& fields) -> std::optional<std::string> {
       const auto heads = count_of(fields, "heads"), groups = count_of(fields, "kv_heads");
       if (!heads || !groups) return std::nullopt;
       return text_of(*heads != *groups);
     }},
    {"gated", gated},
    {"head_width",
     [](const FlagFields& fields) -> std::optional<std::string> {
       const auto hidden = count_of(fields, "hidden"), heads = count_of(fields, "heads");
       if (!hidden || !heads) return std::nullopt;
       return text_of(*hidden / *heads);
     }},
    {"4_hidden", [](const FlagFields& fields) { return product(count_of(fields, "hidden"), 4); }},
    {"two_thirds_of_4_hidden",
     [](const FlagFields& fields) -> std::optional<std::string> {
       const auto hidden = count_of(fields, "hidden");
       if (!hidden || *hidden > std::int64_t{1} << 40) return std::nullopt;
       return text_of(*hidden * 8 / 3 / 64 * 64);
     }},
    {"hidden_squared", [](const FlagFields& fields) { return hidden_squared(fields, 1); }},
    {"nine_tenths_of_hidden_squared",
     [](const FlagFields& fields) { return hidden_squared(fields, 0.9); }},
    {"10_hidden", [](const FlagFields& fields) { return product(count_of(fields, "hidden"), 10); }},
    {"one_micro_batch_each",
     [](const FlagFields& fields) {
       return product(count_of(fields, "micro_batch"), data_parallel(fields));
     }},
    {"padded_vocabulary", padded},
    {"padding_multiple", padding_multiple},
    {"split", split_of},
    {"layout", layout_of},
    {"precision_aware",
     [](const FlagFields& fields) -> std::optional<std::string> {
       return text_of(differs(fields, "offload_optimizer_percent", "0") ||
                      differs(fields, "main_gradient_type", "f32") ||
                      differs(fields, "main_parameter_type", "f32") ||
                      differs(fields, "moment_type", "f32"));
     }},
    {"usual_bucket", usual_bucket},
};

}  // namespace

std::optional<std::int64_t> integer_from(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> count_of(const FlagFields& fields, std::string_view key) {
  const auto text = value_of(fields, key);
  const auto value = text ? integer_from(*text) : std::nullopt;
  if (!value || *value < 1 || *value > std::int64_t{1} << 53) return std::nullopt;
  return value;
}

std::optional<double> number_from(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::string plain_number(std::string_view text) {
  if (const auto integer = integer_from(text)) return text_of(*integer);
  return fmt::format("{}", number_from(text).value_or(0));
}

std::optional<std::string> derived_value(const FlagFields& fields, std::string_view key) {
  for (const FlagQuantity& quantity : kQuantities) {
    if (quantity.key == key) return quantity.value(fields);
  }
  if (auto value = expert_value(fields, key)) return value;
  return settings_value(fields, key);
}

std::optional<StatedFields> stated_fields(const FlagFields& fields, std::string_view key,
                                          std::string_view text) {
  if (key == "layout") return split_from_layout(fields, text);
  if (key == "layers_per_virtual_stage") return virtual_stages_from(fields, text);
  if (key == "shards") return shards_from(fields, text);
  if (key == "padding_multiple") {
    const auto multiple = integer_from(text);
    if (!multiple || *multiple < 1) throw std::invalid_argument("a number from 1 is required");
    return StatedFields{{"framework.vocabulary_multiple", text_of(*multiple)}};
  }
  if (key == "tokenizer_name") {
    const auto tokens = tokens_of(text);
    return tokens ? StatedFields{{"tokenizer_tokens", text_of(*tokens)}} : StatedFields{};
  }
  if (key == "every_nth_layer") return layers_from_step(fields, text);
  if (key == "gated") {
    const auto follows = gated(fields);
    if (follows && *follows != text)
      throw std::invalid_argument("the activation is " + fields.find("activation")->second);
    return StatedFields{{"gated", std::string(text)}};
  }
  if (auto states = fields_of_experts(fields, key, text)) return states;
  return fields_of_setting(fields, key, text);
}

namespace {

std::string percent_of(std::string_view share) {
  const auto number = number_from(share);
  if (!number || *number < 0 || *number > 1)
    throw std::invalid_argument("a number from 0 to 1 is required");
  const double percent = *number * 100;
  if (std::abs(percent - std::round(percent)) > 1e-9)
    throw std::invalid_argument("whole percents are required");
  return text_of(std::int64_t(std::llround(percent)));
}

/// Shards of one rank are none, and nothing is gathered.
void drop_sharding(FlagFields& fields) {
  fields["sharding_stage"] = "0";
  for (const char* key : {"gather", "segment_broadcast_bytes", "prefetch_depth", "max_live_bytes",
                          "reuse_distance_bytes", "persistence_threshold", "keep_gathered"})
    fields.erase(key);
}

}  // namespace

std::string in_unit(const FlagFields& fields, std::string_view unit, std::string_view value) {
  if (auto text = in_settings_unit(fields, unit, value)) return *std::move(text);
  const auto number = integer_from(value);
  if (unit == "text") return std::string(value);
  if (unit == "float") return number ? fmt::format("{}.0", *number) : std::string(value);
  if (!number) throw std::invalid_argument("an integer is required");
  if (unit == "share") {
    const std::string share = fmt::format("{}", double(*number) / 100);
    return share.find('.') == share.npos ? share + ".0" : share;
  }
  if (unit == "elements") return text_of(*number / bytes_of_gradient(fields));
  INVARIANT(unit == "without_end", "flag tables name units that there are");
  return text_of(*number - 1);
}

std::string from_unit(const FlagFields& fields, std::string_view unit, std::string_view text) {
  if (auto value = from_settings_unit(fields, unit, text)) return *std::move(value);
  if (unit == "float" || unit == "text") return std::string(text);
  if (unit == "share") return percent_of(text);
  const auto number = integer_from(text);
  if (!number || *number < 1 || *number > std::int64_t{1} << 50)
    throw std::invalid_argument("an integer from 1 to 2^50 is required");
  if (unit == "elements") return text_of(*number * bytes_of_gradient(fields));
  INVARIANT(unit == "without_end", "flag tables name units that there are");
  return text_of(*number + 1);
}

/// Layers of the first and the last stage; those between share the rest.
void split_by_ends(FlagFields& fields) {
  const auto first = fields.find("first_stage_layers"), last = fields.find("last_stage_layers");
  if (first == fields.end() && last == fields.end()) return;
  const std::int64_t layers = count_of(fields, "layers").value_or(0);
  const std::int64_t stages = count_of(fields, "pp").value_or(1);
  if (stages > layers) throw std::invalid_argument("there are more stages than layers");
  std::int64_t left = layers, between = stages;
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages));
  for (const auto& [end, at] :
       {std::pair(first, std::size_t{0}), std::pair(last, split.size() - 1)}) {
    if (end == fields.end()) continue;
    split[at] = integer_from(end->second).value_or(0);
    left -= split[at];
    --between;
  }
  if (between < 1 || left < between || left % between != 0)
    throw std::invalid_argument("the stages between the first and the last have no equal layers");
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    const bool stated = (stage == 0 && first != fields.end()) ||
                        (stage + 1 == split.size() && last != fields.end());
    if (!stated) split[stage] = left / between;
  }
  fields["layer_split"] = fmt::format("{}", fmt::join(split, "+"));
}

void complete_fields(FlagFields& fields) {
  split_by_ends(fields);
  complete_devices(fields);
  const auto devices = count_of(fields, "devices");
  if (!devices) return;
  if (*devices > kMostDevices)
    throw std::invalid_argument(
        fmt::format("found {} devices; at most 2^22 are supported", *devices));
  const auto width = data_parallel(fields);
  if (!width) {
    throw std::invalid_argument(
        fmt::format("tensor {} x pipeline {} x context {} ranks do not divide the {} devices",
                    count_of(fields, "mp").value_or(1), count_of(fields, "pp").value_or(1),
                    count_of(fields, "cp").value_or(1), *devices));
  }
  const auto stated_shards = integer_from(value_of(fields, "sharding_degree").value_or("x"));
  const std::int64_t stated_copies = count_of(fields, "dp").value_or(1);
  if (stated_shards && *stated_shards * stated_copies != *width) {
    throw std::invalid_argument(
        fmt::format("{} sets of {} shards are not the {} data-parallel ranks of {} devices",
                    stated_copies, *stated_shards, *width, *devices));
  }
  if (!differs(fields, "sharding_stage", "0")) {
    fields["dp"] = text_of(*width);
    fields["sharding_degree"] = "1";
  } else {
    const std::int64_t copies = count_of(fields, "dp").value_or(1);
    if (*width % copies != 0)
      throw std::invalid_argument(
          fmt::format("{} sets of shards do not divide the {} "
                      "data-parallel ranks",
                      copies, *width));
    fields["dp"] = text_of(copies);
    fields["sharding_degree"] = text_of(*width / copies);
    if (*width == copies && count_of(fields, "cp").value_or(1) == 1) drop_sharding(fields);
  }
  complete_batch(fields, *width);
  // Commands pad to a multiple of this times mp; --padded-vocab-size says what comes out.
  const auto stated = fields.find("padded_vocabulary");
  if (stated == fields.end()) return;
  FlagFields others = fields;
  others.erase("padded_vocabulary");
  const std::int64_t ranks = count_of(fields, "mp").value_or(1);
  const auto rows = integer_from(stated->second);
  if (!rows || *rows % ranks != 0 || *rows < count_of(fields, "vocab").value_or(1))
    throw std::invalid_argument(
        fmt::format("the padded vocabulary of {} is no multiple of {} that holds the vocabulary",
                    stated->second, ranks));
  if (padded(others) != stated->second)
    fields["framework.vocabulary_multiple"] = text_of(multiple_for(fields, *rows, ranks));
}

}  // namespace plimsoll
