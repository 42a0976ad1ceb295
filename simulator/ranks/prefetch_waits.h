// Asks the processor for a call's waits before they are read: reading the calls of a long Program
// is mostly waiting for memory.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// How many calls ahead of the one that is read to ask.
constexpr std::size_t kPrefetchAhead = 12;

/// Asks for the waits of call `ahead`, where there is one. (An index before the first call wraps
/// round to beyond the last.)
inline void prefetch_waits(const std::vector<Call>& calls, std::size_t ahead) {
  if (ahead < calls.size()) __builtin_prefetch(calls[ahead].waits.data());
}

}  // namespace plimsoll
