// Trace replay: runs the allocations of a recorded step through the simulated allocator, and
// compares it with the real one.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "models/framework/allocator_trace.h"

namespace plimsoll {

struct TraceReplay {
  std::int64_t allocations = 0, equal_addresses = 0;
  /// Segments that the real allocator took in the trace. `equal_segments` counts those that the
  /// simulated allocator took for the same allocation, of the same size.
  std::int64_t segments = 0, equal_segments = 0;
  std::int64_t other_segments = 0;  ///< that only the simulated one took, or of another size
  /// Segments that empty_cache() gave back in the trace, and in the simulated allocator.
  std::int64_t given_back = 0, simulated_given_back = 0;
  Bytes most_reserved, simulated_most_reserved;
  std::int64_t first_difference = -1;  ///< index of an event; -1: none

  /// Whether every segment, every address and the peak are those of the real allocator.
  bool exact() const { return first_difference < 0 && most_reserved == simulated_most_reserved; }
};

/// Replays through pytorch_allocator(). The addresses of segments, which the driver chooses, are
/// taken from the trace. All choices of the allocator are made anew.
TraceReplay replay(const AllocatorTrace& trace);

}  // namespace plimsoll
