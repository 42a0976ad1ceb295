// Time bounds: the least time of a strategy's step. All bounds are lengths of paths in the max-plus
// system that the simulator runs: each time there is the latest of some earlier ones plus a
// duration. Parts that only add time are left out: contention, ranks that lie worse, and other
// waits. If a rank's step takes w from begin to end whatever other ranks do, the steady-state
// period is at least w. If ranks wait for each other, the period is at least the smallest advance
// of any rank in one step from any start (max-plus Collatz-Wielandt: Heidergott, Olsder, van der
// Woude, Max Plus at Work, 2006, chapter 2).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/bounds/stage_chunks.h"
#include "planner/bounds/step_traffic.h"

namespace plimsoll {

/// One action on one chunk of a stage. Its calls for one micro-batch follow each other.
struct ActionSpans {
  Picoseconds span;      ///< compute stream, or host
  Picoseconds last;      ///< span of the call that sends on
  Picoseconds sent;      ///< from that call's begin until the border is written
  Picoseconds dispatch;  ///< host time, with the receive before them
  Picoseconds receive_dispatch, send_dispatch;
  /// Paths through the calls before the one that sends on, and through that one, without transfers,
  /// if the host waits for ops.
  std::optional<HostPaths> until_last, last_host;
  Picoseconds computes, first_computes;  ///< kernels alone, in all calls and in the first
  bool receives = false, sends = false;
  Picoseconds transfer;          ///< into this chunk
  double transfer_slowdown = 1;  ///< factor for kernels beside that transfer
  Picoseconds sending;           ///< the transfer out of this chunk
  double sending_slowdown = 1;
  Picoseconds complete;  ///< from its arrival until calls may begin (split_boundary)
  /// Returns the time of the action with its transfer, where nothing keeps it waiting.
  Picoseconds whole() const { return transfer + complete + span; }
};

struct ChunkSpans {
  ActionSpans forward, backward;  ///< where backward is split, that of inputs
  ActionSpans weights;
  /// Times of collectives once per step, over this chunk and those before it (step_traffic.h).
  Picoseconds gathered, reduced;
};

/// The spans of one stage.
struct StageSpans {
  std::vector<ChunkSpans> chunks;
  LinkTimes sends;       ///< of all transfers out of the stage for one micro-batch
  StageTraffic traffic;  ///< of all chunks
  Picoseconds post;      ///< host time that posting a transfer takes from the ops; 0 on streams
  bool receives_ahead = false;  ///< a transfer in may run beside the action before
  bool gathers_ahead = false;   ///< the first forwards wait for gathers, not the end of the step
};

/// Returns the spans of each stage.
std::vector<StageSpans> stage_spans(const Strategy& strategy, const MicroBatchFacts& facts,
                                    std::span<const StageChunks> stages, const LeastCosts& costs);

/// Returns the longest of these paths over all stages s. The first micro-batch reaches stage s
/// through the forwards of the first chunks before it. Then s runs all its actions one after the
/// other, each after its transfer unless receives are posted ahead. Then the last gradient goes
/// back to stage 0 through the backwards of the first chunks there. If the host takes longer to
/// issue all of a stage's calls, the bound is the host's time. If all transfers of one direction
/// into a stage take longer, the bound is theirs, except in a V. Transfers out of a stage share its
/// links with each other and with the step's traffic, so the bound is at least their sum.
Picoseconds bottleneck_bound(const Strategy& strategy, std::span<const StageSpans> stages,
                             std::int64_t micro_batches);

}  // namespace plimsoll
