// Which elements an op of the update works on: the parts of an arena that its rank owns, or one
// whole tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/cpu/kernels.h"

namespace plimsoll {

/// Ranges of input `operand`. An arena: what this rank owns of it, of one attribute group when
/// given. Else the whole tensor, which counts and decays as the op's parameters say.
std::vector<OwnedRange> ranges_of(const KernelRequest& request, std::size_t operand,
                                  std::optional<std::int64_t> group);

}  // namespace plimsoll
