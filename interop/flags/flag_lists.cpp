// Reads values of flags that are lists over layers or stages.
#include "interop/flags/flag_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <stdexcept>

#include "base/json.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kMostEntries = 100'000;  // layers of a job
constexpr std::int64_t kMostValue = std::int64_t{1} << 30;

std::optional<std::int64_t> whole_number(std::string_view text) {
  const auto value = whole_integer(text);
  return value && *value >= 0 && *value <= kMostValue ? value : std::nullopt;
}

/// Returns the numbers between commas.
Numbers numbers_of(std::string_view text) {
  Numbers numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view piece = text.substr(begin, end - begin);
    while (piece.starts_with(' ')) piece.remove_prefix(1);
    while (piece.ends_with(' ')) piece.remove_suffix(1);
    const auto number = whole_number(piece);
    if (!number)
      throw std::invalid_argument("a list of integers, as \"1,1,1\", is required; it has " +
                                  printable(piece));
    numbers.push_back(*number);
    if (std::int64_t(numbers.size()) > kMostEntries)
      throw std::invalid_argument("a list of at most 100,000 integers is required");
    begin = end + 1;
  }
  return numbers;
}

/// Returns the layers of the job, where they are known.
std::optional<std::int64_t> known_layers(const SettingFields& fields) {
  const auto layers = fields.find("layers");
  return layers == fields.end() ? std::nullopt : whole_number(layers->second);
}

/// Returns the numbers, one for each layer.
Numbers over_layers(const SettingFields& fields, std::string_view text) {
  Numbers numbers = numbers_of(text);
  const auto layers = known_layers(fields);
  if (layers && std::int64_t(numbers.size()) != *layers)
    throw std::invalid_argument(
        fmt::format("it has {} numbers; one for each of the {} layers is "
                    "required",
                    numbers.size(), *layers));
  return numbers;
}

/// Returns the layers whose number is 1. Others have 0.
Numbers chosen_layers(const Numbers& numbers) {
  Numbers chosen;
  for (std::size_t layer = 0; layer < numbers.size(); ++layer) {
    if (numbers[layer] > 1)
      throw std::invalid_argument(fmt::format(
          "layer {} has {}; 0 (kept) or 1 (recomputed) is required", layer, numbers[layer]));
    if (numbers[layer] == 1) chosen.push_back(std::int64_t(layer));
  }
  return chosen;
}

std::vector<std::pair<std::string, std::string>> recomputed_from(const SettingFields& fields,
                                                                 std::string_view text) {
  const Numbers numbers = over_layers(fields, text);
  const Numbers chosen = chosen_layers(numbers);
  if (chosen.empty()) return {{"recompute", "none"}};
  if (chosen.size() == numbers.size()) return {{"recompute", "full"}};
  return {{"recompute", "full"}, {"recompute_list", fmt::format("{}", fmt::join(chosen, "+"))}};
}

std::vector<std::pair<std::string, std::string>> split_from(const SettingFields& fields,
                                                            std::string_view text) {
  const Numbers numbers = numbers_of(text);
  const auto stages = fields.find("pp");
  if (stages != fields.end() && whole_number(stages->second) != std::int64_t(numbers.size()))
    throw std::invalid_argument(
        fmt::format("it has {} numbers; one for each of the {} stages is "
                    "required",
                    numbers.size(), stages->second));
  const std::int64_t sum = std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
  const auto layers = known_layers(fields);
  if (layers && sum != *layers)
    throw std::invalid_argument(
        fmt::format("its sum is {}; the {} layers of the job are required", sum, *layers));
  const bool even = std::ranges::count(numbers, numbers[0]) == std::ptrdiff_t(numbers.size());
  if (even) return {};
  return {{"layer_split", fmt::format("{}", fmt::join(numbers, "+"))}};
}

}  // namespace

std::optional<std::int64_t> whole_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string from_each_layer(const SettingFields& fields, std::string_view text) {
  const Numbers numbers = over_layers(fields, text);
  const auto other =
      std::ranges::find_if(numbers, [&](std::int64_t number) { return number != numbers[0]; });
  if (other != numbers.end())
    throw std::invalid_argument(
        fmt::format("layer 0 has {} and layer {} has {}; a strategy has one for all layers",
                    numbers[0], other - numbers.begin(), *other));
  return fmt::format("{}", numbers[0]);
}

std::string to_each_layer(const SettingFields& fields, std::string_view value) {
  const auto layers = known_layers(fields);
  if (!layers || *layers < 1 || *layers > kMostEntries)
    throw std::invalid_argument("the number of layers is required");
  std::string list(value);
  for (std::int64_t layer = 1; layer < *layers; ++layer) list += fmt::format(",{}", value);
  return list;
}

std::optional<std::vector<std::pair<std::string, std::string>>> fields_of_list(
    const SettingFields& fields, std::string_view key, std::string_view text) {
  if (key == "recomputed") return recomputed_from(fields, text);
  if (key == "stage_layers") return split_from(fields, text);
  if (key != "each_one") return std::nullopt;
  if (from_each_layer(fields, text) != "1")
    throw std::invalid_argument("1 for each layer is required");
  return std::vector<std::pair<std::string, std::string>>{};
}

}  // namespace plimsoll
