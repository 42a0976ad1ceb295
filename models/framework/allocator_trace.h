// Allocator trace: what one step of a program asked of PyTorch's allocator, and what that took.
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
    allocate,           ///< block `id` of `bytes` as requested, at `address`
    free,               ///< block `id`, when the allocator may hand its memory out again
    take_segment,       ///< the allocator took `bytes` of the driver, for the allocate that follows
    give_segment_back,  ///< empty_cache() gave `bytes` at `address` back to the driver
  };
  Kind kind = Kind::allocate;
  std::int64_t id = 0, address = 0;
  Bytes bytes;
};

/// One stream of one process, with the allocator's default options.
struct AllocatorTrace {
  std::string id;
  std::vector<TracedSegment> segments;  ///< before the first event, in order of their addresses
  std::vector<TracedBlock> blocks;      ///< handed out before the first event
  std::vector<TraceEvent> events;
  Bytes most_reserved;  ///< at any time, as the allocator had it
};

/// Whether a cases file is of allocator traces: its rows have `events`.
bool is_allocator_traces(std::string_view text, const std::string& file);

/// Rows as docs/reference/published-runs.md has them; `file` is named in errors. Throws InputError
/// where a row is not the record of one allocator: a block outside every segment, freed twice, or a
/// peak that is not the one of its segments.
std::vector<AllocatorTrace> parse_allocator_traces(std::string_view text, const std::string& file);

}  // namespace plimsoll
