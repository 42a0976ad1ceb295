// Trace replay: a recorded step's allocations through the simulated allocator, and whether that
// does what the real one did.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "models/framework/allocator_trace.h"

namespace plimsoll {

struct TraceReplay {
  std::int64_t allocations = 0, equal_addresses = 0;
  /// Segments that the real allocator took in the trace, and those of them that the simulated one
  /// took for the same allocation, of the same size.
  std::int64_t segments = 0, equal_segments = 0;
  std::int64_t other_segments = 0;  ///< taken by the simulated one only, or of another size
  /// Segments that empty_cache() gave back, and those that the simulated allocator gave back then.
  std::int64_t given_back = 0, simulated_given_back = 0;
  Bytes most_reserved, simulated_most_reserved;
  std::int64_t first_difference = -1;  ///< place in the events; -1: none

  /// Every segment, every address and the peak are those of the real allocator.
  bool exact() const { return first_difference < 0 && most_reserved == simulated_most_reserved; }
};

/// Through pytorch_allocator(). The addresses of segments are the driver's choice, and are taken
/// from the trace; the allocator's own choices are not.
TraceReplay replay(const AllocatorTrace& trace);

}  // namespace plimsoll
