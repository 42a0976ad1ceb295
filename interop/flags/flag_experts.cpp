// Which layers have experts, and on which ranks they are, as flags state it.
#include "interop/flags/flag_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/json.h"
#include "interop/flags/flag_values.h"
#include "models/job/job_limits.h"
#include "models/job/layer_forms.h"

namespace plimsoll {
namespace {

/// Layers of a pattern, of which the first ones are dense.
std::string alternating(const Json& pattern, std::int64_t dense, std::int64_t layers) {
  std::string list;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool has = layer >= dense && pattern[std::size_t(layer) % pattern.size()] == 1;
    list += has ? ",1" : ",0";
  }
  return "[" + list.substr(1) + "]";
}

StatedFields pattern_fields(const std::vector<bool>& pattern) {
  Json layers = Json::array();
  for (const bool has : pattern) layers.push_back(has ? 1 : 0);
  return {{"experts.dense_layers", "0"}, {"experts.pattern", layers.dump()}};
}

[[noreturn]] void refuse_pattern() {
  throw std::invalid_argument("a number, or a list of 0 and 1 such as ([0]*3+[1]*58), is required");
}

/// Reads one list, "[0,1]" or "[0]*3", from the front of the text.
void read_list(std::string_view& text, std::vector<bool>& layers) {
  const std::size_t end = text.find(']');
  if (!text.starts_with('[') || end == text.npos) refuse_pattern();
  std::vector<bool> part;
  for (std::size_t i = 1; i < end; i += 2) {
    if (text[i] != '0' && text[i] != '1') refuse_pattern();
    if (i + 1 < end && text[i + 1] != ',') refuse_pattern();
    part.push_back(text[i] == '1');
  }
  text.remove_prefix(end + 1);
  std::int64_t times = 1;
  if (text.starts_with('*')) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789", 1), text.size());
    times = integer_from(text.substr(1, digits - 1)).value_or(0);
    text.remove_prefix(digits);
  }
  const auto width = std::int64_t(part.size());
  if (times < 1 || times > kMostLayers || width * times > kMostLayers) refuse_pattern();
  for (std::int64_t i = 0; i < times; ++i) layers.insert(layers.end(), part.begin(), part.end());
}

std::vector<bool> pattern_from(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ' && c != '(' && c != ')') plain += c;
  }
  std::string_view rest = plain;
  std::vector<bool> layers;
  while (true) {
    read_list(rest, layers);
    if (rest.empty()) return layers;
    if (!rest.starts_with('+') || std::ssize(layers) > kMostLayers) refuse_pattern();
    rest.remove_prefix(1);
  }
}

/// The number of ranks that share each expert where etp is not stated.
std::int64_t usual_ranks(const FlagFields& fields) {
  return count_of(fields, "ep").value_or(1) > 1 ? 1 : count_of(fields, "mp").value_or(1);
}

StatedFields part_from(const FlagFields& fields, const char* key, std::string_view of_part,
                       std::string_view text) {
  if (text == "false" && fields.contains(of_part))
    throw std::invalid_argument(fmt::format("{} is stated", of_part));
  return {{key, std::string(text)}};
}

}  // namespace

std::optional<std::string> has_experts(const FlagFields& fields) {
  return fields.contains("experts.count") ? "true" : "false";
}

StatedFields experts_from(const FlagFields& fields, std::string_view text) {
  return part_from(fields, "has_experts", "experts.count", text);
}

std::optional<std::string> has_latent(const FlagFields& fields) {
  return fields.contains("latent.kv_rank") ? "true" : "false";
}

StatedFields latent_from(const FlagFields& fields, std::string_view text) {
  return part_from(fields, "has_latent", "latent.kv_rank", text);
}

/// Megatron-LM megatron/training/arguments.py, moe_freq_type: an integer, or a Python expression of
/// lists with * and +.
std::optional<std::string> expert_layers(const FlagFields& fields) {
  const auto layers = count_of(fields, "layers");
  const auto dense = fields.find("experts.dense_layers");
  if (!layers || dense == fields.end()) return std::nullopt;
  const std::int64_t first = integer_from(dense->second).value_or(0);
  const auto pattern = fields.find("experts.pattern");
  if (pattern != fields.end()) return alternating(Json::parse(pattern->second), first, *layers);
  if (first == 0) return "1";
  return fmt::format("([0]*{}+[1]*{})", first, *layers - first);
}

StatedFields dense_layers_from(const FlagFields& fields, std::string_view text) {
  if (const auto every = integer_from(text)) {
    if (*every < 1 || *every > kMostLayers) refuse_pattern();
    if (*every == 1) return {{"experts.dense_layers", "0"}};
    std::vector<bool> pattern(static_cast<std::size_t>(*every));
    pattern[0] = true;
    return pattern_fields(pattern);
  }
  const std::vector<bool> layers = pattern_from(text);
  if (const auto all = count_of(fields, "layers"); all && *all != std::ssize(layers))
    throw std::invalid_argument(
        fmt::format("it has {} layers, and the model {}", layers.size(), *all));
  const auto first = std::ranges::find(layers, true);
  if (first == layers.end()) throw std::invalid_argument("no layer has experts");
  if (std::find(first, layers.end(), false) != layers.end())
    return pattern_fields(shortest_period(layers));
  return {{"experts.dense_layers", decimal(first - layers.begin())}};
}

/// Megatron-LM core/transformer/moe/moe_utils.py, group_limited_topk: the groups that a token takes
/// are those with the largest sums of topk / group_topk scores.
std::optional<std::string> best_groups(const FlagFields& fields) {
  const auto chosen = count_of(fields, "experts.chosen"),
             groups = count_of(fields, "experts.top_groups"),
             best = count_of(fields, "experts.group_best");
  if (!chosen || !groups || !best || *best != *chosen / *groups) return std::nullopt;
  return decimal(*groups);
}

StatedFields groups_from(const FlagFields& fields, std::string_view text) {
  const std::int64_t groups = integer_from(text).value_or(0);
  const auto chosen = count_of(fields, "experts.chosen");
  if (!chosen || groups < 1 || groups > *chosen)
    throw std::invalid_argument("a number of groups, at most the experts of a token, is required");
  return {{"experts.top_groups", decimal(groups)},
          {"experts.group_best", decimal(*chosen / groups)}};
}

std::optional<std::string> expert_ranks(const FlagFields& fields) {
  return decimal(count_of(fields, "etp").value_or(usual_ranks(fields)));
}

StatedFields etp_from(const FlagFields& fields, std::string_view text) {
  const auto ranks = integer_from(text);
  if (!ranks || *ranks < 1) throw std::invalid_argument("a number from 1 is required");
  return {{"etp", *ranks == usual_ranks(fields) ? "0" : decimal(*ranks)}};
}

}  // namespace plimsoll
