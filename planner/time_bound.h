// Time bounds: picoseconds that a step of a strategy takes at least. All are lengths of paths in
// the max-plus system that the simulator runs (each time there is the latest of some earlier ones
// plus a duration), with everything left out that may only add: contention, ranks that lie worse,
// waits that have no name here. Where a rank's step takes w from its begin to its end whatever the
// others do, the steady-state period is at least w; where ranks wait for each other it is at least
// the smallest advance of any rank in one step from any start (max-plus Collatz-Wielandt:
// Heidergott, Olsder, van der Woude, Max Plus at Work, 2006, chapter 2).
#pragma once

#include <span>
#include <vector>

#include "planner/block_facts.h"
#include "planner/memory_bound.h"
#include "planner/step_tail.h"

namespace plimsoll {

/// One stage's calls for one micro-batch, in a row.
struct StageSpans {
  Picoseconds forward, backward;                    ///< compute stream, or host
  Picoseconds last_forward, last_backward;          ///< of the calls that send on
  Picoseconds activation_sent, gradient_sent;       ///< within those calls
  Picoseconds forward_dispatch, backward_dispatch;  ///< host time, with the receive before them
  Picoseconds send_activation_dispatch, send_gradient_dispatch;
  Picoseconds receive_activation, receive_gradient;  ///< transfers into this stage; 0 at the ends
  Picoseconds post;  ///< host time that posting a transfer takes from the ops; 0 on streams
};

/// By stage.
std::vector<StageSpans> stage_spans(const Job& job, const Strategy& strategy,
                                    const MicroBatchFacts& facts, const LeastCosts& costs);

/// The first micro-batch reaches stage s through the forwards before it, then s runs all its
/// forwards and backwards one after the other, receiving each before it can start (a receive is
/// posted when the call before it is over), then the last gradient goes back to stage 0 through the
/// backwards there. The longest such way over all s; or the host's time to issue all of it.
Picoseconds bottleneck_bound(std::span<const StageSpans> stages, std::int64_t micro_batches);

/// Runs 1F1B with a whole micro-batch per stage as one piece, then each stage's tail: gradient
/// buckets as its last backward completes them, meetings of stages, update, parameter gathers. Two
/// steps, the second from where the first ended; the least advance of any stage.
Picoseconds pipeline_bound(std::span<const StageSpans> stages, std::int64_t micro_batches,
                           std::int64_t send_slots, std::span<const StepTail* const> tails);

}  // namespace plimsoll
