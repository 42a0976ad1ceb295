// Block facts: what one micro-batch costs in each block, however the blocks are spread over stages.
// Depends on few fields of a strategy, so few of them are lowered for a whole space.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "models/framework.h"
#include "models/job.h"
#include "passes/strategy.h"
#include "planner/call_path.h"

namespace plimsoll {

/// One call of a block's routine.
struct CallFacts {
  /// From the begin of its first op on the compute stream to the end of the last one, or the host's
  /// time: calls follow each other there, so these add up.
  Picoseconds span;
  Picoseconds compute;   ///< of its ops on the compute stream alone
  Picoseconds dispatch;  ///< host time to issue it
  /// Until what it sends on (border, or its gradient) is written, from the same begin.
  Picoseconds sends;
  Bytes frame;
};

/// Of one micro-batch; bytes rounded up to blocks.
struct BlockFacts {
  BlockKind kind = BlockKind::layer;
  CallFacts forward, backward;
  Bytes saved;               ///< between its forward and its backward
  Bytes input, output;       ///< borders; 0 where it has none
  bool keeps_input = false;  ///< backward reads its input
  Bytes input_gradient, output_gradient;
  /// The transfer of its output to the next stage, where it is the last block of one, and of the
  /// gradient of its input back, where it is the first; absent where the job has a single layer.
  std::optional<Routine> send_output, send_input_gradient;
};

/// Everything below `micro_batch` that does not depend on how many there are.
struct MicroBatchFacts {
  std::vector<BlockFacts> blocks;  ///< in chain order
};

/// Cached. Safe to share between threads.
class FactsCache {
 public:
  FactsCache(const Job& job, const Framework& framework, const LeastCosts& costs,
             std::int64_t devices)
      : job_(job), framework_(framework), costs_(costs), devices_(devices) {}
  std::shared_ptr<const MicroBatchFacts> of(const Strategy& strategy) const;

 private:
  MicroBatchFacts find(const Strategy& strategy) const;

  const Job& job_;
  const Framework& framework_;
  const LeastCosts& costs_;
  std::int64_t devices_;
  /// mp, micro-batch, recompute, of some layers only, sequence_parallel, split_boundary.
  using Key = std::tuple<std::int64_t, std::int64_t, Recompute, bool, bool, bool>;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const MicroBatchFacts>> known_;
};

/// As many layers on every stage in plain 1F1B with sends freed by events: blocks cost the same, and
/// what lives between steps is the same where all layers are of one block.
Strategy as_plain_pipeline(const Job& job, const Strategy& strategy);
/// The job with as many sequences as make one micro-batch per replica: its Programs have every kind
/// of call of the real ones, once.
Job one_micro_batch(const Job& job, const Strategy& strategy);

}  // namespace plimsoll
