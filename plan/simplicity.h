// Simplicity: of plans that are as good as each other, which is easier to set up and to explain.
#pragma once

#include <compare>
#include <cstdint>

#include "plan/plan.h"

namespace plimsoll {

/// Compared field by field, in this order; less is simpler.
struct Simplicity {
  std::int64_t degrees = 0;  ///< how many of mp, pp, cp, dp and sharding_degree are above 1
  /// How many other choices are not the default. Sizes that every plan has (micro_batch, bytes of
  /// gradient buckets) are none.
  std::int64_t choices = 0;
  /// mp x pp x cp: ranks that work on the same sequences. Of files, hence larger than an integer.
  double parts = 0;
  auto operator<=>(const Simplicity&) const = default;
};
Simplicity simplicity_of(const Strategy& strategy);

/// The runners-up and Pareto points that cannot be told apart from the chosen plan.
struct Ties {
  std::size_t shown = 0;  ///< plans beside the chosen one
  std::size_t count = 0;  ///< of these: tied
  /// The simplest, the chosen one included: it is, where no other is simpler.
  const Strategy* simplest = nullptr;
  Seconds simplest_step, slowest_step;
  /// Half widths of the intervals of their ratios to the chosen step, relative.
  double least_open = 0, most_open = 0;
};
/// Points into the plan.
Ties ties_of(const Plan& plan);

}  // namespace plimsoll
