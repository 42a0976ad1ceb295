// The data movement of collectives between buffers that one thread can reach: who adds what in
// which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// One member's memory: all elements, and the 1/size of them that is its own. In place the part
/// lies inside the whole, at the member's index; out of place it is elsewhere.
struct MemberData {
  std::byte* whole = nullptr;
  std::byte* part = nullptr;  ///< reduce_scatter writes it, all_gather reads it
};

/// Performs a collective of `elements` elements over `members` (ascending rank order). Sums and
/// maxima are taken in ascending rank order for every element, so the result does not depend on who
/// calls; 16-bit types add in f32 and round once. reduce_scatter writes the parts only, reduce the
/// root's whole only.
void move_collective(OpKind kind, const CollectiveParams& params, DType dtype,
                     std::int64_t elements, std::span<const MemberData> members);

}  // namespace plimsoll
