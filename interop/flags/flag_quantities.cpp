// The list of quantities that flags state and files do not.
#include "interop/flags/flag_quantities.h"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>

#include "base/json.h"
#include "interop/flags/flag_adapters.h"
#include "interop/flags/flag_experts.h"
#include "interop/flags/flag_parts.h"
#include "interop/flags/flag_values.h"
#include "models/presets/known_json.h"
#include "passes/strategy/recompute_rules.h"

namespace plimsoll {
namespace {

using Value = std::optional<std::string>;
using Count = std::optional<std::int64_t>;

Value text_of(bool value) { return value ? "true" : "false"; }
Value text_of(Count value) { return value ? Value(decimal(*value)) : std::nullopt; }

Count product(Count a, Count b) {
  if (!a || !b || *a > (std::int64_t{1} << 53) / *b) return std::nullopt;
  return *a * *b;
}

Count quotient(Count whole, Count part) {
  if (!whole || !part || *whole % *part != 0) return std::nullopt;
  return *whole / *part;
}

// --- Ranks and batches ---

/// Returns the ranks that each read other sequences, by the degrees alone.
Count readers(const FlagFields& fields) {
  const Count copies = count_of(fields, "dp"), shards = count_of(fields, "sharding_degree");
  if (!copies || !shards || *copies > kMostRanks || *shards > kMostRanks) return std::nullopt;
  return *copies * *shards;
}

/// Returns all ranks, if fields state their degrees.
Value ranks_of(const FlagFields& fields) {
  if (fields.contains("nodes"))
    return text_of(product(count_of(fields, "nodes"), count_of(fields, "devices_per_node")));
  Count ranks = readers(fields);
  for (const std::string_view key : {"mp", "pp", "cp"}) {
    const std::int64_t degree = count_of(fields, key).value_or(1);
    if (!ranks || *ranks > kMostRanks || degree > kMostRanks) return std::nullopt;
    ranks = *ranks * degree;
  }
  return text_of(ranks);
}

/// "-1" is all ranks that no other degree uses.
StatedFields shards_from(const FlagFields& fields, std::string_view text) {
  const Count shards = integer_from(text);
  if (shards && *shards >= 1 && *shards <= kMostRanks)
    return {{"sharding_degree", decimal(*shards)}};
  if (!shards || *shards != -1)
    throw std::invalid_argument("a number from 1, or -1 for the ranks that are left, is required");
  if (!fields.contains("devices"))
    throw std::invalid_argument("the ranks that are left follow from --devices, which is required");
  const Count left = quotient(data_parallel(fields), count_of(fields, "dp").value_or(1));
  if (!left) throw std::invalid_argument("the other degrees do not divide the number of devices");
  return {{"sharding_degree", decimal(*left)}};
}

Count step_batch(const FlagFields& fields) {
  return quotient(count_of(fields, "global_batch"), readers(fields));
}

Value one_step_batch_of_each(const FlagFields& fields) {
  if (!fields.contains("step_batch")) return std::nullopt;
  return text_of(product(count_of(fields, "step_batch"), readers(fields)));
}

Value micro_batches(const FlagFields& fields) {
  return text_of(quotient(count_of(fields, "global_batch"),
                          product(count_of(fields, "micro_batch"), readers(fields))));
}

/// Megatron-LM core/distributed/distributed_data_parallel.py: max(40000000, 1000000 * dp_size)
/// parameters, where dp_size includes ranks of context parallelism.
Value usual_bucket(const FlagFields& fields) {
  const std::int64_t width = data_parallel(fields).value_or(1) * count_of(fields, "cp").value_or(1);
  return decimal(std::max<std::int64_t>(40'000'000, 1'000'000 * width));
}

// --- Sizes of the model ---

Value grouped(const FlagFields& fields) {
  const Count heads = count_of(fields, "heads"), groups = count_of(fields, "kv_heads");
  return heads && groups ? text_of(*heads != *groups) : std::nullopt;
}

Value gated(const FlagFields& fields) {
  const auto activation = fields.find("activation");
  if (activation == fields.end()) return std::nullopt;
  return text_of(activation->second == "swiglu" || activation->second == "geglu");
}

StatedFields gate_from(const FlagFields& fields, std::string_view text) {
  const Value follows = gated(fields);
  if (follows && *follows != text)
    throw std::invalid_argument("the activation is " + fields.find("activation")->second);
  return {{"gated", std::string(text)}};
}

Value head_width(const FlagFields& fields) {
  const Count hidden = count_of(fields, "hidden"), heads = count_of(fields, "heads");
  return hidden && heads ? Value(decimal(*hidden / *heads)) : std::nullopt;
}

Value two_thirds_of_4_hidden(const FlagFields& fields) {
  const Count hidden = count_of(fields, "hidden");
  if (!hidden || *hidden > std::int64_t{1} << 40) return std::nullopt;
  return decimal(*hidden * 8 / 3 / 64 * 64);
}

/// Returns a share of the square of the hidden size, rounded down.
Value hidden_squared(const FlagFields& fields, double share) {
  const Count hidden = count_of(fields, "hidden");
  if (!hidden || *hidden > kMostRanks) return std::nullopt;
  return decimal(std::int64_t(share * double(*hidden * *hidden)));
}

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// Returns the multiple with which the framework pads as a plan has padded, else its usual one.
Value padding_multiple(const FlagFields& fields) {
  const Count rows =
      fields.contains("padded_vocabulary") ? count_of(fields, "padded_vocabulary") : std::nullopt;
  const Count usual = count_of(fields, "framework.vocabulary_multiple");
  if (!rows) return text_of(usual);
  FlagFields others = fields;
  others.erase("padded_vocabulary");
  if (usual && padded_vocabulary(others) == decimal(*rows)) return decimal(*usual);
  return decimal(multiple_for(fields, *rows, count_of(fields, "mp").value_or(1)));
}

StatedFields multiple_from(const FlagFields&, std::string_view text) {
  const Count multiple = integer_from(text);
  if (!multiple || *multiple < 1) throw std::invalid_argument("a number from 1 is required");
  return {{"framework.vocabulary_multiple", decimal(*multiple)}};
}

// --- Tokenizers ---

/// A name without the organisation in front: "meta-llama/Meta-Llama-3-8B" has two parts.
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

std::map<std::string, std::int64_t, std::less<>> known_tokenizers() {
  std::map<std::string, std::int64_t, std::less<>> known;
  const Json json = known_json(reader_presets(), "tokenizers");
  for (const Json& one : json.at("tokenizers")) {
    for (const std::string name : one.at("names"))
      known.emplace(last_part(name), one.at("tokens").get<std::int64_t>());
  }
  return known;
}

/// Returns the tokens of the tokenizer of that name, by models/presets/readers/tokenizers.json:
/// pieces and added ones, as the library counts them. A path counts by its last folder that has a
/// model's name.
Count tokens_of(std::string_view name) {
  static const auto known = known_tokenizers();
  while (name.ends_with('/')) name.remove_suffix(1);
  if (last_part(name).starts_with("tokenizer.")) {  // a file in the model's folder
    name = name.substr(0, name.size() - last_part(name).size());
    while (name.ends_with('/')) name.remove_suffix(1);
  }
  const auto found = known.find(last_part(name));
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

StatedFields tokens_from(const FlagFields&, std::string_view text) {
  const Count tokens = tokens_of(text);
  return tokens ? StatedFields{{"tokenizer_tokens", decimal(*tokens)}} : StatedFields{};
}

// --- Sharded parameters, optimizer ---

/// The elements of the matrices of a layer, and of its largest matrix.
struct LayerSizes {
  std::int64_t layer = 0, largest = 0;
};

std::optional<LayerSizes> layer_sizes(const FlagFields& fields) {
  const Count hidden = count_of(fields, "hidden"), heads = count_of(fields, "heads"),
              groups = count_of(fields, "kv_heads"), inner = count_of(fields, "ffn_hidden");
  constexpr std::int64_t kMostSize = std::int64_t{1} << 22;  // models/presets/schemas/job.json
  if (!hidden || !heads || !groups || !inner || *groups > *heads) return std::nullopt;
  if (*hidden > kMostSize || *inner > kMostSize) return std::nullopt;
  const std::int64_t matrices = gated(fields) == "true" ? 3 : 2;
  const std::int64_t head = count_of(fields, "head_size").value_or(*hidden / *heads);
  if (head > kMostSize / *heads) return std::nullopt;
  return LayerSizes{*hidden * (2 * head * (*heads + *groups) + matrices * *inner),
                    *hidden * std::max(head * *heads, *inner)};
}

/// Returns the elements that are gathered ahead of their use: those of `prefetch_depth` layers, or
/// of as many matrices.
Value prefetch_elements(const FlagFields& fields) {
  const auto depth = fields.find("prefetch_depth"), gather = fields.find("gather");
  const auto sizes = layer_sizes(fields);
  if (depth == fields.end() || gather == fields.end() || !sizes) return std::nullopt;
  const Count uses = integer_from(depth->second);
  if (!uses || *uses < 0 || *uses > 1 << 16) return std::nullopt;
  if (gather->second == "layer") return decimal(*uses * sizes->layer);
  return gather->second == "module" ? Value(decimal(*uses * sizes->largest)) : std::nullopt;
}

/// A bucket that holds one layer or more is filled with whole layers, a smaller one with modules.
/// Without a bucket each module is gathered when it is used.
StatedFields prefetch_from(const FlagFields& fields, std::string_view text) {
  const Count elements = integer_from(text);
  if (!elements || *elements < 0 || *elements > std::int64_t{1} << 50)
    throw std::invalid_argument("a number of elements is required");
  const auto sizes = layer_sizes(fields);
  if (!sizes)
    throw std::invalid_argument("the sizes of the model's layers are required: name a job");
  const bool layers = *elements >= sizes->layer &&
                      (*elements % sizes->layer == 0 || *elements % sizes->largest != 0);
  const std::int64_t uses =
      layers ? *elements / sizes->layer : (*elements + sizes->largest - 1) / sizes->largest;
  return {{"prefetch_depth", decimal(std::min<std::int64_t>(uses, 1 << 16))},
          {"gather", layers ? "layer" : "module"}};
}

Value precision_aware(const FlagFields& fields) {
  return text_of(differs(fields, "offload_optimizer_percent", "0") ||
                 differs(fields, "main_gradient_type", "f32") ||
                 differs(fields, "main_parameter_type", "f32") ||
                 differs(fields, "moment_type", "f32"));
}

/// Returns n if the loss scale begins with 2^n.
Value loss_scale_power(const FlagFields& fields) {
  const auto scale = fields.find("loss_scale.initial");
  const auto value = scale == fields.end() ? std::nullopt : number_from(scale->second);
  if (!value || *value < 1 || *value > 1e15) return std::nullopt;
  const auto whole = static_cast<std::uint64_t>(*value);
  if (double(whole) != *value || !std::has_single_bit(whole)) return std::nullopt;
  return decimal(std::bit_width(whole) - 1);
}

StatedFields loss_scale_from(const FlagFields&, std::string_view text) {
  const Count power = integer_from(text);
  if (!power || *power < 0 || *power > 49)
    throw std::invalid_argument("a power of two from 0 to 49 is required");
  return {{"loss_scale.initial", decimal(std::int64_t{1} << *power)}};
}

StatedFields fused_loss(const FlagFields& fields, std::string_view text) {
  if (text != "true") throw std::invalid_argument("true is required");
  const Count vocabulary = count_of(fields, "vocab"), hidden = count_of(fields, "hidden"),
              tokens = quotient(count_of(fields, "sequence"), count_of(fields, "cp").value_or(1));
  if (!vocabulary || !hidden || !tokens) return {};
  return {{"loss_chunks", decimal(usual_loss_chunks(*vocabulary, *hidden, *tokens))}};
}

/// A quantity without `value` is read only. One without `states` is compared with what follows from
/// fields, or is a field that other rows name.
struct FlagQuantity {
  std::string_view key;
  Value (*value)(const FlagFields&);
  StatedFields (*states)(const FlagFields&, std::string_view text) = nullptr;
};

const FlagQuantity kQuantities[] = {
    {"devices", ranks_of},
    {"shards",
     [](const FlagFields& fields) { return text_of(count_of(fields, "sharding_degree")); },
     shards_from},
    {"step_batch", [](const FlagFields& fields) { return text_of(step_batch(fields)); }},
    {"one_micro_batch_of_each",
     [](const FlagFields& fields) {
       return text_of(product(count_of(fields, "micro_batch"), readers(fields)));
     }},
    {"one_step_batch_of_each", one_step_batch_of_each},
    {"one_micro_batch_each",
     [](const FlagFields& fields) {
       return text_of(product(count_of(fields, "micro_batch"), data_parallel(fields)));
     }},
    {"micro_batches", micro_batches},
    {"usual_bucket", usual_bucket},
    {"grouped", grouped},
    {"gated", gated, gate_from},
    {"head_width", head_width},
    {"4_hidden",
     [](const FlagFields& fields) { return text_of(product(count_of(fields, "hidden"), 4)); }},
    {"10_hidden",
     [](const FlagFields& fields) { return text_of(product(count_of(fields, "hidden"), 10)); }},
    {"two_thirds_of_4_hidden", two_thirds_of_4_hidden},
    {"hidden_squared", [](const FlagFields& fields) { return hidden_squared(fields, 1); }},
    {"nine_tenths_of_hidden_squared",
     [](const FlagFields& fields) { return hidden_squared(fields, 0.9); }},
    {"padded_vocabulary", padded_vocabulary},
    {"padding_multiple", padding_multiple, multiple_from},
    {"tokenizer_name", nullptr, tokens_from},
    {"has_experts", has_experts, experts_from},
    {"has_latent", has_latent, latent_from},
    {"expert_layers", expert_layers, dense_layers_from},
    {"expert_ranks", expert_ranks, etp_from},
    {"best_groups", best_groups, groups_from},
    {"split", split_of},
    {"layout", layout_of, split_from_layout},
    {"layers_per_virtual_stage", nullptr, virtual_stages_from},
    {"every_nth_layer", every_nth_layer, layers_from_step},
    {"prefetch_elements", prefetch_elements, prefetch_from},
    {"precision_aware", precision_aware},
    {"loss_scale_power", loss_scale_power, loss_scale_from},
    {"every_linear", nullptr, every_linear},
    {"fused_loss", nullptr, fused_loss},
    {"2_ranks",
     [](const FlagFields& fields) {
       return text_of(product(count_of(fields, "adapters.rank"), 2));
     }},
};

const FlagQuantity* quantity_of(std::string_view key) {
  const auto* found = std::ranges::find(kQuantities, key, &FlagQuantity::key);
  return found == std::end(kQuantities) ? nullptr : found;
}

}  // namespace

Count data_parallel(const FlagFields& fields) {
  Count left = count_of(fields, "devices");
  if (left && *left > kMostRanks) return std::nullopt;
  for (const std::string_view key : {"mp", "pp", "cp"})
    left = quotient(left, count_of(fields, key).value_or(1));
  return left;
}

/// Megatron-LM megatron/training/tokenizer/tokenizer.py, _vocab_size_with_padding.
Value padded_vocabulary(const FlagFields& fields) {
  const Count rows = count_of(fields, "vocab");
  const Count multiple = count_of(fields, "framework.vocabulary_multiple");
  const std::int64_t ranks = count_of(fields, "mp").value_or(1);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!rows || !multiple || *rows > kMost || *multiple > kMost || ranks > kMost)
    return std::nullopt;
  return decimal(rounded_up(*rows, *multiple * ranks));
}

std::int64_t multiple_for(const FlagFields& fields, std::int64_t rows, std::int64_t ranks) {
  const std::int64_t vocabulary = count_of(fields, "vocab").value_or(1);
  for (std::int64_t multiple = 1; multiple <= rows; multiple *= 2) {
    if (rounded_up(vocabulary, multiple * ranks) == rows) return multiple;
  }
  return rows / ranks;
}

std::optional<std::string> derived_value(const FlagFields& fields, std::string_view key) {
  const FlagQuantity* quantity = quantity_of(key);
  if (quantity == nullptr) return text_of(integer_from(key));  // a number stands for itself
  return quantity->value == nullptr ? std::nullopt : quantity->value(fields);
}

std::optional<StatedFields> stated_fields(const FlagFields& fields, std::string_view key,
                                          std::string_view text) {
  const FlagQuantity* quantity = quantity_of(key);
  if (quantity == nullptr || quantity->states == nullptr) return std::nullopt;
  return quantity->states(fields, text);
}

}  // namespace plimsoll
