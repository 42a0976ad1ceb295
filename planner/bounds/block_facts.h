// Block facts: what one micro-batch costs in each block, however the blocks are spread over stages.
// Depends on few fields of a strategy, so few of them are lowered for a whole space.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/stage_blocks.h"
#include "passes/strategy/strategy.h"
#include "planner/bounds/call_path.h"
#include "planner/bounds/micro_batch_program.h"
#include "planner/bounds/shape_costs.h"

namespace plimsoll {

/// One call of a block's routine; nothing where it has none.
struct CallFacts {
  /// From the begin of its first op on the compute stream to the end of the last one, or the host's
  /// time: calls follow each other there, so these add up.
  Picoseconds span;
  Picoseconds computes;  ///< what its ops on the compute stream take alone
  Picoseconds dispatch;  ///< host time to issue it
  /// Until what it sends on (border, or its gradient) is written, from the same begin.
  Picoseconds sends;
  Bytes frame;
};

/// The transfer of a border to another stage, with what completes it there (split_boundary).
struct BorderTransfer {
  Routine send;
  std::optional<Routine> gather;
};

/// Facts of a block for one micro-batch; bytes are rounded up to blocks.
struct BlockFacts {
  BlockShape shape;
  std::optional<std::size_t> recomputing;  ///< the variant that layers run which recompute
  CallFacts forward, backward;             ///< schedule zb_h1: backward is that of its input
  CallFacts weights;                       ///< schedule zb_h1: of its parameters
  bool has_weights = false;
  Bytes input, output;  ///< borders; 0 where it has none
  Bytes input_gradient, output_gradient;
  Bytes saved;     ///< its forward leaves for its backward, without borders
  Bytes kept;      ///< the same with its input, where that is read again
  Bytes deferred;  ///< backward leaves for weights
  Bytes remains;   ///< between backward and weights, borders included
  /// Its bundle, in the types of the arenas, where forward and backward read and write it.
  Bytes forward_parameters, backward_parameters, gradients;
  /// Bytes of the logits, in 16 bits, that its forward gives to the loss; 0 where it has no loss.
  Bytes given_to_loss;
  /// The transfer of its output to the next stage, where it is the last block of a stage, and of
  /// the gradient of its input back, where it is the first. Only in facts with transfers.
  std::optional<BorderTransfer> send_output, send_input_gradient;
};

/// Everything below `micro_batch` that does not depend on how many there are.
struct MicroBatchFacts {
  std::vector<BlockFacts> blocks;  ///< as the Graph's: in chain order, then variants
};

/// Cached. Safe to share between threads.
class FactsCache {
 public:
  FactsCache(const Job& job, const Framework& framework, const ShapeCosts& costs,
             std::int64_t devices)
      : job_(job), framework_(framework), costs_(costs), devices_(devices) {}
  std::shared_ptr<const MicroBatchFacts> of(const Strategy& strategy) const {
    return look_up(strategy, Extent::transfers);
  }
  /// Facts without transfers take half as long to find.
  std::shared_ptr<const MicroBatchFacts> without_transfers(const Strategy& strategy) const {
    return look_up(strategy, Extent::blocks);
  }
  /// Facts that take a tenth of that to find: micro-batches of more than two sequences are not
  /// lowered. Their times are those of without_transfers(), their bytes at most those.
  std::shared_ptr<const MicroBatchFacts> work(const Strategy& strategy) const {
    return look_up(strategy, Extent::work);
  }
  /// The work of a strategy with a long ring, whose rounds are not lowered. Times are at most those
  /// of work().
  std::shared_ptr<const MicroBatchFacts> ring(const Strategy& strategy) const {
    return look_up(strategy, Extent::ring);
  }

 private:
  enum class Extent : std::uint8_t { ring, work, blocks, transfers };
  struct Cut {
    Graph graph;
    CutGraph cut;
    MicroBatchProgram all;
  };
  std::shared_ptr<const MicroBatchFacts> look_up(const Strategy& strategy, Extent extent) const;
  Strategy alike(const Strategy& strategy) const;
  Cut cut(const Strategy& plain) const;
  MicroBatchFacts find(const Strategy& plain, Extent extent) const;
  MicroBatchFacts find_ring(const Strategy& plain) const;
  /// The program of plain.micro_batch sequences, lowered or extended.
  MicroBatchProgram sequences_of(const Strategy& plain) const;
  std::shared_ptr<const MicroBatchProgram> few_sequences(Strategy plain,
                                                         std::int64_t sequences) const;

  const Job& job_;
  const Framework& framework_;
  const ShapeCosts& costs_;
  std::int64_t devices_;
  using Key = std::tuple<std::int64_t, std::int64_t, Extent>;  ///< mp, micro-batch, extent
  mutable std::mutex mutex_;                                   // guards the maps
  /// By key, then by all else that it depends on.
  mutable std::map<Key, std::vector<std::pair<Strategy, std::shared_ptr<const MicroBatchFacts>>>>
      known_;
  /// Programs of one and two sequences, by mp and micro-batch, then by all else.
  mutable std::map<std::pair<std::int64_t, std::int64_t>,
                   std::vector<std::pair<Strategy, std::shared_ptr<const MicroBatchProgram>>>>
      programs_;
};

/// Whether attention exchanges keys and values in so many rounds that its ops are most of a
/// Program.
bool is_long_ring(const Strategy& strategy);
/// As many layers on every stage in plain 1F1B with sends freed by events: what lives between steps
/// is the same where all layers are of one block.
Strategy as_plain_pipeline(const Job& job, const Strategy& strategy);
/// The job with as few sequences as make every kind of call of the real Programs: one micro-batch
/// per replica, or a group of them where stages have several chunks.
Job fewest_micro_batches(const Job& job, const Strategy& strategy);

}  // namespace plimsoll
