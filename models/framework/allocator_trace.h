// An allocator trace records what one step of a program asked of PyTorch's allocator, and what
// memory that took.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace plimsoll {

struct TracedSegment {
  std::int64_t address = 0;
  Bytes bytes;
};
struct TracedBlock {
  std::int64_t id = 0;
  std::int64_t address = 0;
  Bytes bytes;
};

struct TraceEvent {
  enum class Kind : std::uint8_t {
    allocate,      ///< block `id` of `bytes` as requested, at `address`
    free,          ///< block `id`, when the allocator may hand its memory out again
    take_segment,  ///< the allocator took `bytes` from the driver, for the allocate that follows
    give_segment_back,  ///< empty_cache() gave `bytes` at `address` back to the driver
  };
  Kind kind = Kind::allocate;
  std::int64_t id = 0, address = 0;
  Bytes bytes;
};

/// An AllocatorTrace is of one stream of one process, with the allocator's default options.
struct AllocatorTrace {
  std::string id;
  std::vector<TracedSegment> segments;  ///< segments before the first event, by ascending address
  std::vector<TracedBlock> blocks;      ///< blocks in use before the first event
  std::vector<TraceEvent> events;
  Bytes most_reserved;  ///< the most memory reserved at any time, as the allocator reported it
};

/// Returns whether a cases file has allocator traces, i.e. rows with `events`.
bool is_allocator_traces(std::string_view text, const std::string& file);

/// Parses rows as docs/reference/published-runs.md describes them; `file` is named in errors.
/// Throws InputError where a row is not the record of one allocator: a block outside every segment,
/// a block freed twice, or a peak that is not that of its segments.
std::vector<AllocatorTrace> parse_allocator_traces(std::string_view text, const std::string& file);

}  // namespace plimsoll
