// Micro-batch traffic: what gradients that are reduced in every micro-batch, and parameters that
// are gathered where they are used, add to a step without a pipeline.
#pragma once

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "planner/bounds/call_path.h"

namespace plimsoll {

/// Whether a strategy has such traffic that is counted here: stages 2 and 3 and per_micro_batch, of
/// ranges of elements, without a pipeline. Else no bound counts it.
bool has_micro_batch_traffic(const Strategy& strategy);

struct MicroBatchTraffic {
  /// Collectives of the data stream, which follow each other there, by micro-batch: the first one,
  /// each in the middle, the last one. Of one micro-batch, all is in `last`, of two, none in
  /// middle.
  Picoseconds first, middle, last;
  /// The time after the last micro-batch: the update, which needs all gradients.
  Picoseconds after;
  /// Zeroing and adding of gradients in a micro-batch in the middle, on the compute stream.
  Picoseconds compute;
  /// The data stream's collectives and what follows them.
  Picoseconds step(std::int64_t micro_batches) const;
};

/// Read off a Program of up to three micro-batches. Micro-batch size and recompute change nothing.
MicroBatchTraffic micro_batch_traffic(const Job& job, const Strategy& strategy,
                                      const Framework& framework, const LeastCosts& costs);

}  // namespace plimsoll
