// Neighbours of a strategy: the changes of one or two choices that lead to another strategy.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/space/space.h"
#include "predict/target.h"

namespace plimsoll {

/// Returns the strategy with these choices. Another choice changes only where it follows:
///
///   - the ranks that mp, pp and cp leave are sharding_degree where the strategy shards, else dp,
///     unless the choices name one of the two;
///   - sharding_stage follows whether there are shards;
///   - layers are spread evenly where the number of the model's parts changes;
///   - choices that would mean nothing take their default: tokens split over one rank, virtual
///     stages of one stage, layers of a recompute that is none, gathers outside sharding stage 3.
///
/// The result may be illegal. Throws UsageError as set_field() does.
Strategy with_choices(const Strategy& strategy, const Fixed& choices, std::int64_t devices);

/// A Reach says which values changes go to.
enum class Reach : std::uint8_t {
  one_step,  ///< the nearest on each side of the strategy's own
  all,
  /// In addition, what takes less memory: replicas that share gradients or parameters, states in
  /// the host's memory, and memory for even routing of experts' rows.
  to_fit,
};

/// Returns changes of one choice each, among the choices that a search varies; a degree also trades
/// places with another one. Some may be illegal. None gives the strategy itself, and no two give
/// the same strategy.
std::vector<Fixed> neighbours(const Target& target, const Strategy& strategy, Reach reach);

/// Returns pairs of one change of each list, as one change, where the two name no common key. If
/// both are the same list, each pair comes once.
std::vector<Fixed> pairs_of(const std::vector<Fixed>& first, const std::vector<Fixed>& second);

/// Whether two sets of choices name a common key.
bool share_a_key(const Fixed& a, const Fixed& b);

}  // namespace plimsoll
