// Reads lists of values, and multiplies them.
#include "planner/space/tried.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "planner/space/space.h"

namespace plimsoll {
namespace {

bool is_among(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

/// Whether every search that can take this value does so.
bool is_usual(const Strategy& strategy, std::string_view key) {
  if (key == "schedule") {
    return strategy.schedule == Schedule::one_f_one_b || strategy.schedule == Schedule::zb_h1;
  }
  return field_text(strategy, key) == field_text(Strategy(), key);
}

void check_key(std::string_view key) {
  Strategy any;
  if (!is_among(strategy_keys(), key)) set_field(any, key, "");  // throws, naming the nearest
  if (key == "schedule" || is_among(not_searched(), key)) return;
  throw UsageError(fmt::format("--try {}: {}", key,
                               is_among(chosen_by_stage(), key)
                                   ? "it is chosen by stage, after the search; --fix sets it"
                                   : "every search varies this key; --fix, --max, --min and "
                                     "--exclude leave values out"));
}

}  // namespace

TriedKey make_tried(std::string_view key, std::string_view list) {
  check_key(key);
  TriedKey tried{std::string(key), {}};
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    Strategy strategy;
    set_field(strategy, key, list.substr(begin, end - begin));
    std::string value = field_text(strategy, key);
    const bool is_there = std::ranges::find(tried.values, value) != tried.values.end();
    if (!is_usual(strategy, key) && !is_there) tried.values.push_back(std::move(value));
    begin = end + 1;
  }
  if (tried.values.empty())
    throw UsageError(fmt::format("--try {}={}: every search takes this value", key, list));
  return tried;
}

std::optional<std::string> contradiction(const Fixed& fixed, const Limits& limits,
                                         const Tried& tried) {
  std::size_t count = 1;
  for (const TriedKey& one : tried) {
    if (std::ranges::count(tried, one.key, &TriedKey::key) > 1)
      return fmt::format("--try {} is given twice", one.key);
    if (is_fixed(fixed, one.key))
      return fmt::format("--fix {} and {} exclude each other", one.key, tried_text(one));
    for (const Limit& limit : limits) {
      if (limit.key == one.key && std::ranges::find(one.values, limit.value) != one.values.end())
        return fmt::format("{} and {} exclude each other", tried_text(one), limit_text(limit));
    }
    count *= one.values.size() + 1;
    if (count > kMostCombinations) {
      return fmt::format("--try: more than {} combinations of values", kMostCombinations);
    }
  }
  return std::nullopt;
}

std::vector<Fixed> combinations(const Fixed& fixed, const Tried& tried) {
  std::vector<Fixed> all = {fixed};
  for (const TriedKey& one : tried) {
    std::vector<Fixed> more;
    for (const Fixed& combination : all) {
      more.push_back(combination);
      for (const std::string& value : one.values) {
        more.push_back(combination);
        more.back().emplace_back(one.key, value);
      }
    }
    all = std::move(more);
  }
  return all;
}

}  // namespace plimsoll
