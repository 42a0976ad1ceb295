// Block facts: time and memory of one micro-batch in each block, however stages share the blocks.
// They depend on few fields of a strategy, so that a whole space needs few lowerings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/cut/cut_blocks.h"
#include "passes/strategy/stage_layout.h"
#include "planner/bounds/call_path.h"
#include "planner/bounds/least_costs.h"
#include "predict/memo.h"

namespace plimsoll {

/// The program of one micro-batch calls every routine of a model's blocks once. Times and bytes of
/// the micro-batch are read off it, however stages share the blocks.
struct MicroBatchProgram {
  /// Calls 3b, 3b + 1 and 3b + 2 are forward, backward and weight gradients of block b. Tensors
  /// have no names.
  Program program;
  std::vector<BlockShape> shapes;                      ///< by block
  std::vector<std::optional<std::size_t>> variant_of;  ///< by block
  std::vector<std::int64_t> parts;                     ///< calls of backward, by block
};

MicroBatchProgram micro_batch_program(const Graph& graph, const CutGraph& cut, const Grid& grid);

/// Returns the program of a micro-batch of several sequences, from the programs of one and of two.
/// Every size of a tensor grows by as much with each sequence, or not at all, so that ops have the
/// times of a lowered program. Bytes of slots and frames are at most those of a lowered program,
/// since layouts round. Returns nothing where the two programs differ in more than sizes.
std::optional<MicroBatchProgram> extended(const MicroBatchProgram& one,
                                          const MicroBatchProgram& two, std::int64_t sequences);

/// Times and bytes of one call of a block's routine; all 0 where the block has no such routine.
struct CallFacts {
  /// The time from the begin of the call's first op on the compute stream to the end of the last
  /// one, or the host's time. Calls follow each other there, so spans add up.
  Picoseconds span;
  Picoseconds computes;   ///< time of the ops on the compute stream, without others beside them
  Picoseconds exchanges;  ///< time of the exchanges of experts, without others beside them
  Picoseconds dispatch;   ///< host time to issue the call
  std::optional<HostPaths> host;  ///< if the host waits for ops of blocks
  /// The time from the same begin until the border that the call sends on, or its gradient, is
  /// written.
  Picoseconds sends;
  Bytes frame;
};

/// Bytes of gradients and parameters on a rank, in the types in which they travel. Those of experts
/// on a separate grid of ranks are counted separately.
struct WeightBytes {
  Bytes gradients, parameters, expert_gradients, expert_parameters;
  auto operator<=>(const WeightBytes&) const = default;
};

/// The transfer of a border to another stage, and the gather that completes it (split_boundary).
struct BorderTransfer {
  Routine send;
  std::optional<Routine> gather;
};

/// Facts of a block for one micro-batch. Bytes are rounded up to blocks of the arena.
struct BlockFacts {
  BlockShape shape;
  std::optional<std::size_t> recomputing;  ///< the variant that layers run which recompute
  CallFacts forward, backward;             ///< schedule zb_h1: backward is that of its input
  CallFacts weights;                       ///< schedule zb_h1: backward of its parameters
  bool has_weights = false;
  Bytes input, output;  ///< borders; 0 where the block has none
  Bytes input_gradient, output_gradient;
  Bytes saved;     ///< bytes that forward leaves for backward, without borders
  Bytes kept;      ///< `saved`, with the input where backward reads it again
  Bytes deferred;  ///< bytes that backward leaves for weights
  Bytes remains;   ///< bytes alive between backward and weights, with borders
  /// The block's bundle, in the types of the arenas, where forward and backward read and write it.
  Bytes forward_parameters, backward_parameters, gradients;
  WeightBytes bundle;  ///< bytes of its tensors, without padding
  /// Bytes of the logits, in 16 bits, that forward gives to the loss; 0 where there is no loss.
  Bytes given_to_loss;
  /// The transfer of the output to the next stage, if the block is the last one of a stage, and of
  /// the input's gradient back, if the block is the first one. Only facts with transfers have them.
  std::optional<BorderTransfer> send_output, send_input_gradient;
};

/// A kind of device of the cluster (device_of); absent for the fastest of all kinds, op by op.
using DeviceKindIndex = std::optional<std::size_t>;

/// Facts of all blocks. They do not depend on the number of micro-batches.
struct MicroBatchFacts {
  std::vector<BlockFacts> blocks;  ///< in the Graph's order: the chain, then variants
};

/// Finds block facts once for all strategies that share them. Safe to share between threads.
class FactsCache {
 public:
  FactsCache(const Target& target, const ShapeCosts& costs)
      : target_(target), in_one_part_(target.framework()), costs_(costs) {
    in_one_part_.parallelism.sums_parts_in_f32 = false;
  }
  std::shared_ptr<const MicroBatchFacts> of(const Strategy& strategy) const {
    return look_up(strategy, Extent::transfers);
  }
  /// Returns facts without transfers, which take half as long to find.
  std::shared_ptr<const MicroBatchFacts> without_transfers(const Strategy& strategy) const {
    return look_up(strategy, Extent::blocks);
  }
  /// Returns facts that take a tenth of that to find, since micro-batches of more than two
  /// sequences are not lowered. Times are those of without_transfers(); bytes are at most those.
  std::shared_ptr<const MicroBatchFacts> work(const Strategy& strategy,
                                              DeviceKindIndex kind = {}) const {
    return look_up(strategy, Extent::work, kind);
  }
  /// Returns the work of a strategy with a long ring without lowering the rounds. Times are at most
  /// those of work().
  std::shared_ptr<const MicroBatchFacts> ring(const Strategy& strategy,
                                              DeviceKindIndex kind = {}) const {
    return look_up(strategy, Extent::ring, kind);
  }

 private:
  enum class Extent : std::uint8_t { ring, work, blocks, transfers };
  struct Cut {
    Graph graph;
    CutGraph cut;
    MicroBatchProgram all;
  };
  std::shared_ptr<const MicroBatchFacts> look_up(const Strategy& strategy, Extent extent,
                                                 DeviceKindIndex kind = {}) const;
  Strategy alike(const Strategy& strategy) const;
  Cut cut(const Strategy& plain, const Framework& framework) const;
  MicroBatchFacts find(const Strategy& plain, Extent extent, DeviceKindIndex kind) const;
  MicroBatchFacts find_ring(const Strategy& plain, DeviceKindIndex kind) const;
  /// Returns the program of plain.micro_batch sequences, lowered or extended.
  MicroBatchProgram sequences_of(const Strategy& plain, const Framework& framework) const;
  const MicroBatchProgram& few_sequences(Strategy plain, std::int64_t sequences,
                                         const Framework& framework) const;

  const Target target_;
  Framework in_one_part_;  ///< the framework, but gathered keys and values are read at once
  const ShapeCosts& costs_;
  mutable Memo<std::shared_ptr<const MicroBatchFacts>, Extent, DeviceKindIndex> known_;
  /// Programs of one and two sequences, by whether gathered keys and values are read in parts.
  mutable Memo<MicroBatchProgram, bool> programs_;
};

/// Whether most of a Program are rounds in which attention exchanges keys and values.
/// FactsCache::ring bounds such a strategy.
bool is_long_ring(const Framework& framework, const Strategy& strategy);
/// Returns the strategy in plain 1F1B with sends freed by events, and as many layers on every stage
/// as before. The bytes that live between steps are the same if all layers are of one block.
Strategy as_plain_pipeline(const Job& job, const Strategy& strategy);
/// Returns the job with the fewest sequences that make every kind of call of the real Programs: one
/// micro-batch per replica, or a group of them where stages have several chunks.
Job fewest_micro_batches(const Job& job, const Strategy& strategy);

}  // namespace plimsoll
