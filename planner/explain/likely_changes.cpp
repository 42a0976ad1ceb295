// Orders changes by bounds of their step time, without those that bounds rule out.
#include "planner/explain/likely_changes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/parallel.h"

namespace plimsoll {
namespace {

std::optional<LikelyChange> likely(const ExplainRequest& request, const Bounds& bounds,
                                   const Strategy& changed, const Fixed& change) {
  const Target& target = request.target;
  const Strategy strategy = with_choices(changed, change, target.devices);
  if (strategy == request.strategy || !legal(target, strategy)) return std::nullopt;
  const Bytes room = room_for_program(target, strategy, largest_memory(target));
  if (bounds.persistent(strategy) > room) return std::nullopt;
  if (bounds.memory(strategy).reserved > room) return std::nullopt;
  try {
    return LikelyChange{change, bounds.bottleneck(strategy)};
  } catch (const InfeasibleError&) {  // too long for the clock
    return std::nullopt;
  }
}

}  // namespace

std::vector<LikelyChange> likely_changes(const ExplainRequest& request, const Bounds& bounds,
                                         const Strategy& strategy, std::span<const Fixed> changes) {
  std::vector<std::optional<LikelyChange>> all(changes.size());
  for_each_index(changes.size(), request.threads,
                 [&](std::size_t i) { all[i] = likely(request, bounds, strategy, changes[i]); });
  std::vector<LikelyChange> order;
  for (std::optional<LikelyChange>& one : all) {
    if (one) order.push_back(std::move(*one));
  }
  std::ranges::stable_sort(order, {}, &LikelyChange::least_time);
  return order;
}

std::vector<Fixed> pairs_of(const std::vector<Fixed>& first, const std::vector<Fixed>& second) {
  std::vector<Fixed> pairs;
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t k = &first == &second ? i + 1 : 0; k < second.size(); ++k) {
      if (share_a_key(first[i], second[k])) continue;
      pairs.push_back(first[i]);
      pairs.back().insert(pairs.back().end(), second[k].begin(), second[k].end());
    }
  }
  return pairs;
}

}  // namespace plimsoll
