// Ring rounds: what attention takes at least where keys and values go round a ring of many ranks,
// without lowering each round.
#pragma once

#include "graph/program.h"
#include "planner/bounds/least_costs.h"

namespace plimsoll {

/// The attention of a routine that gathers the keys and values of `cp` ranks, and what takes its
/// place where these go round a ring (passes/graph/context_exchange.cpp).
struct RingRounds {
  Picoseconds gathered;   ///< what attention takes that reads all keys at once
  Picoseconds attention;  ///< what it takes at least in `cp` rounds, each with the keys of one rank
  Picoseconds shifts;     ///< what the shifts take at least, one after the other
};
RingRounds ring_rounds(const Routine& routine, std::int64_t cp, const LeastCosts& costs,
                       const Grid& grid);

}  // namespace plimsoll
