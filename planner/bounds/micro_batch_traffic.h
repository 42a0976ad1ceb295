// Micro-batch traffic: the time that communication in every micro-batch adds to a step without a
// pipeline. It reduces gradients, and gathers parameters where they are used.
#pragma once

#include "passes/strategy/pass_context.h"
#include "planner/bounds/call_path.h"

namespace plimsoll {

/// Whether a strategy has traffic that is counted here: sharding stages 2 and 3 and
/// per_micro_batch, with ranges of elements and without a pipeline. No bound counts the traffic of
/// other strategies.
bool has_micro_batch_traffic(const Strategy& strategy);

/// Least times of the communication and of the ops around it.
struct MicroBatchTraffic {
  /// Collectives on the data stream, one after the other: of the first micro-batch, of each in the
  /// middle, of the last. A step of one micro-batch has `last` only, a step of two no `middle`.
  Picoseconds first, middle, last;
  /// The time of the update, which needs all gradients.
  Picoseconds after;
  /// Returns the time of all collectives on the data stream and of the update.
  Picoseconds step(std::int64_t micro_batches) const;
};

/// Reads the traffic off a Program of up to three micro-batches. Micro-batch size and recompute
/// change nothing.
MicroBatchTraffic micro_batch_traffic(const PassContext& whole, const LeastCosts& costs);

}  // namespace plimsoll
