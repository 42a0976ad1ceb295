// The data movement of collectives between buffers that one thread can reach: who adds what in
// which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// Performs all_reduce, reduce_scatter or all_gather over `members` (ascending rank order), each
/// the in-place operand of `elements` elements of one rank. Sums and maxima are taken in ascending
/// rank order for every element, so the result does not depend on who calls. reduce_scatter writes
/// part i of member i only. Reductions of 16-bit types add in f32 and
/// round once.
void move_collective(OpKind kind, Reduction reduction, DType dtype, std::int64_t elements,
                     std::span<std::byte* const> members);

}  // namespace plimsoll
