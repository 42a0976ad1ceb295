// Quantities that flags state and files do not.
#include "passes/strategy/flag_quantities.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "base/json.h"

namespace plimsoll {
namespace {

using Stated = std::vector<std::pair<std::string, std::string>>;
/// The most layers that a layout may name (docs/reference/job.md).
constexpr std::int64_t kMostLayers = 100'000;
constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;
constexpr int kMostDepth = 64;  // of brackets in a layout

std::optional<std::int64_t> integer_from(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Returns a field that is an integer of at least 1.
std::optional<std::int64_t> count_of(const FlagFields& fields, std::string_view key) {
  const auto text = value_of(fields, key);
  const auto value = text ? integer_from(*text) : std::nullopt;
  if (!value || *value < 1 || *value > std::int64_t{1} << 53) return std::nullopt;
  return value;
}

std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "true" : "false"; }

/// Returns whether a field is known and has another value than `usual`.
bool differs(const FlagFields& fields, std::string_view key, std::string_view usual) {
  const auto field = fields.find(key);
  return field != fields.end() && field->second != usual;
}

/// The parts of a model and what its layers are spread by.
struct Parts {
  Job job;
  Strategy strategy;
};

std::optional<Parts> parts_of(const FlagFields& fields) {
  const auto layers = fields.find("layers");
  if (layers == fields.end()) return std::nullopt;
  Parts parts;
  parts.job.layers = integer_from(layers->second).value_or(0);
  for (const std::string_view key :
       {"pp", "virtual_stages", "layer_split", "embedding_as_layers", "loss_as_layers"}) {
    const auto field = fields.find(key);
    if (field != fields.end()) set_field(parts.strategy, key, field->second);
  }
  return parts;
}

/// Returns "even" where counts of layers need not be listed: Megatron-LM spreads layers, with one
/// for each end of the model that counts as a layer, where parts divide them.
std::optional<std::string> split_of(const FlagFields& fields) {
  const auto parts = parts_of(fields);
  if (!parts) return std::nullopt;
  const Strategy& strategy = parts->strategy;
  const std::int64_t embedding = strategy.embedding_as_layers, loss = strategy.loss_as_layers;
  const bool even =
      strategy.layer_split.empty() && embedding <= 1 && loss <= 1 &&
      (parts->job.layers + embedding + loss) % (strategy.pp * strategy.virtual_stages) == 0;
  return even ? "even" : "listed";
}

/// Returns embedding, layers and loss of each part of the model: "Et*3|t*4|t*3L" (Megatron-LM
/// megatron/training/arguments.py, --pipeline-model-parallel-layout).
std::optional<std::string> layout_of(const FlagFields& fields) {
  const auto parts = parts_of(fields);
  if (!parts) return std::nullopt;
  const Strategy& strategy = parts->strategy;
  if (strategy.pp > kMostLayers || strategy.pp * strategy.virtual_stages > 2 * kMostLayers)
    return std::nullopt;
  const std::vector<std::int64_t> layers = layers_per_part(parts->job, strategy);
  std::string layout = "E";
  for (std::size_t part = 0; part < layers.size(); ++part) {
    if (part > 0) layout += "|";
    if (layers[part] > 0) layout += "t*" + text_of(layers[part]);
  }
  return layout + "L";
}

/// Writes out "(...)*3" and "t*3" of a layout (Megatron-LM
/// core/transformer/pipeline_parallel_layer_layout.py).
std::string written_out(std::string_view& text, int depth) {
  if (depth > kMostDepth) throw std::invalid_argument("a layout with fewer ( is required");
  std::string out;
  while (!text.empty() && (text.front() != ')' || depth == 0)) {
    const char c = text.front();
    text.remove_prefix(1);
    std::string piece(1, c);
    if (c == '(') {
      piece = written_out(text, depth + 1);
      if (text.empty()) throw std::invalid_argument("a layout with a ) for each ( is required");
      text.remove_prefix(1);
    } else if (std::string_view("EtL|,").find(c) == std::string_view::npos) {
      throw std::invalid_argument(
          fmt::format("found {}; a layout of E, t, L and | is required", printable({&c, 1})));
    }
    if (!text.empty() && text.front() == '*') {
      text.remove_prefix(1);
      std::int64_t times = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), times);
      if (error != std::errc() || times < 1 || times > kMostLayers ||
          std::int64_t(piece.size()) * times > 4 * kMostLayers)
        throw std::invalid_argument("a layout with a count behind each * is required");
      text.remove_prefix(std::size_t(end - text.data()));
      std::string repeated;
      for (std::int64_t i = 0; i < times; ++i) repeated += piece;
      piece = std::move(repeated);
    }
    out += piece;
    if (std::int64_t(out.size()) > 4 * kMostLayers)
      throw std::invalid_argument("a shorter layout is required");
  }
  return out;
}

Stated split_from_layout(const FlagFields& fields, std::string_view text) {
  const std::string layout = written_out(text, 0);
  std::vector<std::int64_t> layers(1, 0);
  std::string ends;
  for (const char c : layout) {
    if (c == '|') layers.push_back(0);
    if (c == 't') ++layers.back();
    if (c == 'E' || c == 'L') ends += c;
  }
  const std::string_view whole = layout;
  if (ends != "EL" || whole.find('E') > whole.find('t') || whole.rfind('L') < whole.rfind('t'))
    throw std::invalid_argument("a layout that begins with E and ends with L is required");
  const std::int64_t stages = count_of(fields, "pp").value_or(1);
  const auto parts = std::int64_t(layers.size());
  if (parts % stages != 0)
    throw std::invalid_argument(
        fmt::format("found {} parts; a multiple of the {} stages is "
                    "required",
                    parts, stages));
  Stated stated = {{"virtual_stages", text_of(parts / stages)}};
  if (parts > 1) stated.emplace_back("layer_split", fmt::format("{}", fmt::join(layers, "+")));
  return stated;
}

Stated virtual_stages_from(const FlagFields& fields, std::string_view text) {
  const auto each = integer_from(text);
  const auto parts = parts_of(fields);
  if (!each || *each < 1 || !parts) throw std::invalid_argument("a count of layers is required");
  const std::int64_t layers =
      parts->job.layers + parts->strategy.embedding_as_layers + parts->strategy.loss_as_layers;
  const std::int64_t stages = parts->strategy.pp;
  if (layers % stages != 0 || layers / stages % *each != 0)
    throw std::invalid_argument(
        fmt::format("a divisor of the layers of a stage, {} / {}, is required", layers, stages));
  return {{"virtual_stages", text_of(layers / stages / *each)}};
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

std::optional<std::string> product(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  if (!a || !b || *a > (std::int64_t{1} << 53) / *b) return std::nullopt;
  return text_of(*a * *b);
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

struct FlagQuantity {
  std::string_view key;
  std::optional<std::string> (*value)(const FlagFields&);
};

const FlagQuantity kQuantities[] = {
    {"devices",
     [](const FlagFields& fields) {
       return fields.contains("nodes")
                  ? product(count_of(fields, "nodes"), count_of(fields, "devices_per_node"))
                  : std::nullopt;
     }},
    {"grouped",
     [](const FlagFields& fields) -> std::optional<std::string> {
       const auto heads = count_of(fields, "heads"), groups = count_of(fields, "kv_heads");
       if (!heads || !groups) return std::nullopt;
       return text_of(*heads != *groups);
     }},
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
    {"one_micro_batch_each",
     [](const FlagFields& fields) {
       return product(count_of(fields, "micro_batch"), data_parallel(fields));
     }},
    {"padded_vocabulary", padded},
    {"split", split_of},
    {"layout", layout_of},
    {"precision_aware",
     [](const FlagFields& fields) -> std::optional<std::string> {
       return text_of(differs(fields, "main_gradient_type", "f32") ||
                      differs(fields, "main_parameter_type", "f32") ||
                      differs(fields, "moment_type", "f32"));
     }},
    {"usual_bucket", usual_bucket},
};

}  // namespace

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
  return std::nullopt;
}

std::optional<Stated> stated_fields(const FlagFields& fields, std::string_view key,
                                    std::string_view text) {
  if (key == "layout") return split_from_layout(fields, text);
  if (key == "layers_per_virtual_stage") return virtual_stages_from(fields, text);
  return std::nullopt;
}

std::string in_unit(const FlagFields& fields, std::string_view unit, std::string_view value) {
  const auto number = integer_from(value);
  if (!number) throw std::invalid_argument("an integer is required");
  if (unit == "elements") return text_of(*number / bytes_of_gradient(fields));
  INVARIANT(unit == "without_end", "flag tables name units that there are");
  return text_of(*number - 1);
}

std::string from_unit(const FlagFields& fields, std::string_view unit, std::string_view text) {
  const auto number = integer_from(text);
  if (!number || *number < 1 || *number > std::int64_t{1} << 50)
    throw std::invalid_argument("an integer from 1 to 2^50 is required");
  if (unit == "elements") return text_of(*number * bytes_of_gradient(fields));
  INVARIANT(unit == "without_end", "flag tables name units that there are");
  return text_of(*number + 1);
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
    if (*width == copies && count_of(fields, "cp").value_or(1) == 1) fields["sharding_stage"] = "0";
  }
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
