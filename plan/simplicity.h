// Simplicity ranks plans that are equally good: the simpler one is easier to set up and to explain.
#pragma once

#include <compare>
#include <cstdint>

#include "plan/plan.h"

namespace plimsoll {

/// A Simplicity is compared field by field, in this order; less is simpler.
struct Simplicity {
  std::int64_t degrees = 0;  ///< how many of mp, pp, cp, dp, sharding_degree and ep are above 1
  /// The number of other choices that are not the default. Sizes that every plan has (micro_batch,
  /// bytes of gradient buckets) do not count.
  std::int64_t choices = 0;
  /// mp x pp x cp, the ranks that work on the same sequences. It is a double since the factors come
  /// from files and their product may exceed an integer.
  double parts = 0;
  auto operator<=>(const Simplicity&) const = default;
};
Simplicity simplicity_of(const Strategy& strategy);

/// Ties are the runners-up and Pareto points that cannot be told apart from the chosen plan.
struct Ties {
  std::size_t shown = 0;  ///< plans beside the chosen one
  std::size_t count = 0;  ///< plans that are tied
  /// The simplest of the tied plans and the chosen one. It is the chosen plan where no other is
  /// simpler.
  const Strategy* simplest = nullptr;
  Seconds simplest_step, slowest_step;
  /// The relative half widths of the intervals of the plans' ratios to the chosen step.
  double least_open = 0, most_open = 0;
};
/// Returns the ties; pointers point into the plan.
Ties ties_of(const Plan& plan);

}  // namespace plimsoll
