// Collectives move data between buffers that one thread can reach, and add it in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// MemberData is one member's memory: all elements, and the member's own part, 1/size of them. In
/// place the part lies inside the whole, at the member's index. Out of place it is elsewhere.
struct MemberData {
  std::byte* whole = nullptr;
  std::byte* part = nullptr;  ///< reduce_scatter writes it, all_gather reads it
};

/// Performs a collective of `elements` elements over `members`, which are in ascending rank order.
/// Sums and maxima are taken in this order for every element, so the result does not depend on the
/// caller. 16-bit types add in f32 and round once. reduce_scatter writes only the parts, and reduce
/// only the root's whole.
void move_collective(OpKind kind, const CollectiveParams& params, DType dtype,
                     std::int64_t elements, std::span<const MemberData> members);

}  // namespace plimsoll
