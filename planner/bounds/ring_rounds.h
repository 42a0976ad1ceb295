// Ring rounds: the least time of attention where keys and values go round a ring of many ranks,
// found without lowering each round.
#pragma once

#include "graph/program.h"
#include "planner/bounds/least_costs.h"

namespace plimsoll {

/// Times of the attention in a routine that gathers the keys and values of `cp` ranks, and of the
/// rounds that replace it in a ring (passes/graph/context_exchange.cpp).
struct RingRounds {
  Picoseconds gathered;   ///< attention that reads all keys at once; 0 where there is none
  Picoseconds attention;  ///< at least, in `cp` rounds, each with the keys of one rank
  Picoseconds shifts;     ///< at least, one after the other
};
RingRounds ring_rounds(const Routine& routine, std::int64_t cp, const LeastCosts& costs,
                       const Grid& grid);

}  // namespace plimsoll
