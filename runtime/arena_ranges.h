// Which elements an op of the update works on: the parts of an arena that its rank owns, or one
// whole tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/backend.h"

namespace plimsoll {

/// Ranges of an operand. An arena: what this rank owns of it, of one attribute group when given.
/// Else the whole tensor, which counts and decays as the op's parameters say.
std::vector<OwnedRange> ranges_of(const Tensor& operand, const RankContext& context,
                                  std::optional<std::int64_t> group);

/// Whether the operand is an arena of which the rank keeps only what it owns (gradients from
/// sharding stage 2 on, parameters in stage 3, masters): ranges lie there as in the state.
bool keeps_part(const Tensor& operand, const RankContext& context);
inline std::int64_t offset_in(const OwnedRange& range, bool part) {
  return part ? range.state_offset : range.arena_offset;
}

/// The parameters of a whole tensor's op are final; an arena's segments have their own.
inline double weight_decay_of(const OwnedRange& range, double optimizer) {
  return range.weight_decay.value_or(range.decay ? optimizer : 0);
}

}  // namespace plimsoll
