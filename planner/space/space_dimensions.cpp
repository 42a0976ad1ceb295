// Counts the values that a space has to choose from.
#include <algorithm>
#include <cctype>
#include <map>

#include "planner/space/space.h"

namespace plimsoll {
namespace {

/// Sorts numbers by value, then texts as they come.
bool comes_before(const std::string& a, const std::string& b) {
  const auto is_number = [](const std::string& text) {
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0;
  };
  if (is_number(a) && is_number(b) && a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

using Counts = std::vector<std::pair<std::string, std::int64_t>>;

void count_value(Counts& counts, const std::string& value, std::int64_t times) {
  const auto at = std::find_if(counts.begin(), counts.end(),
                               [&](const auto& known) { return known.first == value; });
  if (at != counts.end()) {
    at->second += times;
  } else {
    counts.emplace_back(value, times);
  }
}

bool is_arranged(std::string_view key) {
  return key == "schedule" || key == "virtual_stages" || key == "embedding_as_layers" ||
         key == "loss_as_layers" || key == "recompute_layers";
}

/// Counts values of families. Families share few lists of arrangements, so each is counted once.
Counts counts_of(const StrategyList& legal, std::string_view key) {
  Counts counts;
  if (key == "grad_bucket_bytes") {
    for (const StrategyFamily& family : legal.families()) {
      for (std::size_t i = 0; i < family.buckets; ++i) {
        count_value(counts, field_text(legal.of(family, 0, i), key),
                    std::int64_t(family.arrangements->all.size()));
      }
    }
  } else if (is_arranged(key)) {
    std::vector<std::pair<const Arrangements*, std::int64_t>> lists;  // first met first
    std::map<const Arrangements*, std::size_t> index;                 // looked up only
    for (const StrategyFamily& family : legal.families()) {
      const auto [known, added] = index.try_emplace(family.arrangements.get(), lists.size());
      if (added) lists.emplace_back(family.arrangements.get(), 0);
      lists[known->second].second += std::int64_t(family.buckets);
    }
    for (const auto& [list, times] : lists) {
      for (const Arrangement& arrangement : list->all) {
        Strategy strategy;
        apply(arrangement, strategy);
        count_value(counts, field_text(strategy, key), times);
      }
    }
  } else {
    for (const StrategyFamily& family : legal.families())
      count_value(counts, field_text(family.base, key), std::int64_t(family.count()));
  }
  return counts;
}

}  // namespace

std::vector<Dimension> dimensions(const Space& space) {
  std::vector<Dimension> found;
  for (const std::string_view key : strategy_keys()) {
    Dimension dimension{std::string(key), counts_of(space.legal, key)};
    const bool chosen = dimension.values.size() > 1 || always_shown(key) ||
                        (dimension.values.size() == 1 &&
                         dimension.values.front().first != field_text(Strategy(), key));
    if (chosen) found.push_back(std::move(dimension));
  }
  for (Dimension& dimension : found) {
    if (dimension.key == "grad_bucket_bytes") continue;  // a ladder, in its own order
    std::stable_sort(dimension.values.begin(), dimension.values.end(),
                     [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  }
  return found;
}

}  // namespace plimsoll
