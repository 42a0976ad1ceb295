// Arena ranges are the elements on which an op of the update works: the parts of an arena that its
// rank owns, or one whole tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/backend.h"

namespace plimsoll {

/// Returns the ranges of an operand. For an arena they are the parts that this rank owns, of one
/// attribute group if `group` is given. For a tensor it is the whole tensor, whose norm weight and
/// decay are the op's parameters.
std::vector<OwnedRange> ranges_of(const Tensor& operand, const RankContext& context,
                                  std::optional<std::int64_t> group);

/// Returns whether the operand is an arena that holds only the rank's own parts: gradients from
/// sharding stage 2 on, parameters in stage 3, and masters. Ranges then have the offsets of the
/// optimizer's state.
bool keeps_part(const Tensor& operand, const RankContext& context);
inline std::int64_t offset_in(const OwnedRange& range, bool part) {
  return part ? range.state_offset : range.arena_offset;
}

/// An op of a whole tensor has the final weight decay in its parameters; the segments of an arena
/// have their own.
inline double weight_decay_of(const OwnedRange& range, double optimizer) {
  return range.weight_decay.value_or(range.decay ? optimizer : 0);
}

}  // namespace plimsoll
