// Arrangements: finds the ways in which a strategy may lay a model over its pipeline.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "planner/space/space.h"

namespace plimsoll {

/// Which fields arrangements vary. Other fields keep the strategy's value.
struct ArrangementChoices {
  bool schedule = true, virtual_stages = true, ends = true, recompute_layers = true;
  /// Whether a strategy may have its number of recomputed layers.
  std::function<bool(const Strategy&)> may_recompute;
  /// Returns the rate of each stage's slowest device; nothing where all are alike, or where other
  /// cuts are not tried.
  std::function<std::vector<double>(const Strategy&)> stage_rates;
};

/// Finds the legal arrangements of strategies. Strategies that are alike for the rules share them.
class ArrangementFinder {
 public:
  /// `is_legal` checks a whole strategy.
  ArrangementFinder(const Job& job, const Framework& framework, ArrangementChoices choices,
                    std::function<bool(const Strategy&)> is_legal);

  /// Returns the arrangements of a strategy, whatever arrangement it has itself. They are in the
  /// order of schedules, virtual stages, ends and recompute_layers, with the plainest first.
  std::shared_ptr<const Arrangements> of(const Strategy& strategy);

 private:
  /// The fields that decide which arrangements are legal.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, Recompute, SetOf<RecomputedModule>,
                         std::int64_t, bool, bool, bool, bool, bool, bool, std::vector<double>>;
  std::shared_ptr<const Arrangements> find(const Strategy& strategy) const;
  void add_layouts(const Strategy& plain, Arrangements& found) const;
  void add_cuts(const Strategy& plain, Arrangements& found) const;
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
