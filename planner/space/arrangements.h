// Arrangements: the ways in which a strategy may lay a model over its pipeline.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "planner/space/space.h"

namespace plimsoll {

/// The fields that arrangements may vary; the others stay as a strategy has them.
struct ArrangementChoices {
  bool schedule = true, virtual_stages = true, ends = true, recompute_layers = true;
};

/// Finds the legal arrangements of strategies; those of alike ones once.
class ArrangementFinder {
 public:
  /// `is_legal` says whether a whole strategy is.
  ArrangementFinder(const Job& job, const Framework& framework, ArrangementChoices choices,
                    std::function<bool(const Strategy&)> is_legal);

  /// The arrangements of a strategy, whatever its own is. They are in the order of schedules,
  /// virtual stages, ends and recompute_layers, with the plainest first; none where no arrangement
  /// is legal.
  std::shared_ptr<const Arrangements> of(const Strategy& strategy);

 private:
  /// The fields that the rules about arrangements look at.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, Recompute, std::int64_t, bool, bool,
                         bool, bool, bool, bool>;
  std::shared_ptr<const Arrangements> find(const Strategy& strategy) const;
  void add_layouts(const Strategy& plain, Arrangements& found) const;
  void add_group(const Strategy& layout, Arrangements& found) const;

  const Job& job_;
  const Framework& framework_;
  ArrangementChoices choices_;
  std::function<bool(const Strategy&)> is_legal_;
  /// How many layers the embedding and the loss may count as.
  std::vector<std::pair<std::int64_t, std::int64_t>> ends_;
  std::map<Key, std::shared_ptr<const Arrangements>> known_;
};

}  // namespace plimsoll
