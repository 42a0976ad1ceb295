// Time bounds: picoseconds that a step of a strategy takes at least. All are lengths of paths in
// the max-plus system that the simulator runs (each time there is the latest of some earlier ones
// plus a duration), with everything left out that may only add: contention, ranks that lie worse,
// waits that have no name here. Where a rank's step takes w from its begin to its end whatever the
// others do, the steady-state period is at least w; where ranks wait for each other it is at least
// the smallest advance of any rank in one step from any start (max-plus Collatz-Wielandt:
// Heidergott, Olsder, van der Woude, Max Plus at Work, 2006, chapter 2).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "planner/bounds/stage_chunks.h"
#include "planner/bounds/step_tail.h"

namespace plimsoll {

/// One action on one chunk of a stage: its calls for one micro-batch, in a row.
struct ActionSpans {
  Picoseconds span;      ///< compute stream, or host
  Picoseconds last;      ///< of the call that sends on
  Picoseconds sent;      ///< within that call
  Picoseconds dispatch;  ///< host time, with the receive before them
  Picoseconds send_dispatch;
  Picoseconds computes, first_computes;  ///< what kernels take alone, in all calls and in the first
  bool receives = false, sends = false;
  Picoseconds transfer;          ///< into this chunk
  double transfer_slowdown = 1;  ///< of kernels beside it
  Picoseconds sending;           ///< the transfer that it sends
  double sending_slowdown = 1;
  Picoseconds complete;  ///< from its arrival until calls may begin (split_boundary)
  /// All of it where nobody keeps it waiting.
  Picoseconds whole() const { return transfer + complete + span; }
};

struct ChunkSpans {
  ActionSpans forward, backward;  ///< schedule zb_h1: backward is that of inputs
  ActionSpans weights;
};

struct StageSpans {
  std::vector<ChunkSpans> chunks;
  Picoseconds post;  ///< host time that posting a transfer takes from the ops; 0 on streams
  bool receives_ahead = false;  ///< transfers into a chunk may be over when the one before is
};

class PipelineStep;

/// By stage.
std::vector<StageSpans> stage_spans(const Strategy& strategy, const MicroBatchFacts& facts,
                                    std::span<const StageChunks> stages, const LeastCosts& costs);

/// The first micro-batch reaches stage s through the forwards of the first chunks before it, then s
/// runs all its actions one after the other, receiving each before it can start (unless
/// receives are posted ahead), then the last gradient goes back to stage 0 through the
/// backwards of the first chunks there. The longest such way over all s; or the host's time to
/// issue all of it.
Picoseconds bottleneck_bound(const Strategy& strategy, std::span<const StageSpans> stages,
                             std::int64_t micro_batches);

/// Runs the order of the pipeline with a whole chunk and micro-batch as one piece, then each
/// stage's tail: gradient buckets as its last action completes them, meetings of stages, update,
/// parameter gathers. Two steps, the second from where the first ended; the least advance of any
/// stage. `enough`: of the first step; the second is not run then.
using Enough = std::function<bool(Picoseconds)>;
Picoseconds pipeline_bound(PipelineStep& step, std::span<const StepTail* const> tails,
                           const Enough& enough = {});

}  // namespace plimsoll
