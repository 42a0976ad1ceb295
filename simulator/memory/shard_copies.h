// Shard copies: the memory of frameworks whose gathers and scatters work on flat copies
// (ShardMemory::flat_copies).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"
#include "simulator/memory/routine_events.h"
#include "simulator/memory/tensor_blocks.h"

namespace plimsoll {

/// At the calls of a Program, takes and gives back the memory that PyTorch's fully_shard allocates
/// for parameters and gradients (torch/distributed/fsdp/_fully_shard: _fsdp_collectives.py,
/// _fsdp_param_group.py, _fsdp_param.py, at pytorch 1963fc8 of 2024-12-23). The Program's own
/// buffers for parameters and gradients then do not count. Each layer is a group; everything
/// outside layers is one group, the root.
///
/// - Between steps only the shards of parameters exist, in the type of the optimizer.
/// - A gather casts the shard, fills a flat tensor, and copies it to one tensor for each parameter.
///   In forward the flat tensor lives until the next group's copy begins, in backward until its own
///   copy is done.
/// - Gradients are tensors in the type that ops compute in. After a group's backward they are
/// copied
///   to a flat f32 tensor, which lives until the next group's is made. From there they are
///   scattered to f32 shards, which live to the end of the step.
/// - Where gradients are reduced at the end of the step, each is summed in an f32 tensor, and the
///   parameters stay whole until then.
/// - Flat tensors of gathers have their own stream, and so do scattered shards. The tensor that is
///   scattered is of the compute stream (foreach_reduce: reduce_scatter_input).
class ShardCopies {
 public:
  ShardCopies(const Program& program, const Framework& framework,
              const std::vector<RoutineEvents>& routines, TensorNames& names, TensorBlocks& blocks);

  /// Whether this class, not the Program, has the memory of this buffer.
  bool has(std::size_t buffer) const { return active_ && buffers_[buffer]; }

  void begin();                        ///< before the first step
  void before_call(std::size_t call);  ///< gathers, and frees flat tensors that end here
  /// To be called where an op of the call writes to memory of gradients.
  void write_gradient(std::size_t call, const TensorStorage& storage);
  void after_call(std::size_t call);  ///< scatters, or sums, the gradients of this call
  void release(std::size_t buffer);   ///< the Program frees the parameters that it gathered here
  void move_on(std::size_t buffers);  ///< skips cycles: buffers of the step have higher numbers
  void end_step();

 private:
  using Block = TensorBlocks::Block;
  using Blocks = std::vector<Block>;
  using Key = std::pair<std::int64_t, std::int64_t>;
  /// Gradients of a group that are to be scattered.
  struct Gradients {
    Key group;
    bool root = false;
    Blocks tensors;
    Bytes f32;
    std::optional<Key> parameters;  ///< the group whose parameters are freed then
  };
  Bytes frozen_part(Bytes kept) const;
  /// Returns the key of the parameters that a call binds to a slot.
  Key key_of(const Binding& binding, SlotKind kind) const;
  void find_buffers();
  void find_root();
  Block take_flat(Bytes bytes);
  void keep_flat(std::optional<Block> flat);
  void gather(const Call& call, std::size_t slot);
  void gather_root(Phase phase);
  Blocks copy_out(const RoutineEvents& routine, std::size_t slot, Bytes bytes);
  void scatter(Gradients& gradients);
  void finish_backward();
  void free_shards(std::int64_t layer);

  const Program& program_;
  const std::vector<RoutineEvents>& routines_;
  TensorBlocks& blocks_;
  bool active_ = false;
  bool casts_ = false;                ///< ops compute in another type than the parameters have
  bool gradients_on_host_ = false;    ///< their shards leave the device as they are scattered
  bool at_end_ = false;               ///< gradients are reduced once per step
  std::vector<bool> buffers_;         // by buffer
  std::vector<bool> root_buffers_;    // by buffer: parameters of no layer, gathered
  std::vector<bool> root_;            // by routine: of no layer
  std::vector<std::uint32_t> names_;  // by buffer
  std::uint32_t flat_name_ = 0, cast_name_ = 0, others_name_ = 0, flat_gradients_name_ = 0,
                shard_name_ = 0;
  /// The calls, with the slot, that first read parameters of the root group.
  std::vector<std::pair<std::size_t, std::size_t>> root_reads_;
  std::map<Key, std::size_t> last_backward_;  // by group: call

  std::map<Key, Blocks> whole_;  // parameters, by key_of
  Blocks root_whole_;
  std::map<std::size_t, Block> flat_;  // by buffer: gathered, not copied yet
  std::optional<Block> kept_flat_;     // of the forward before
  Blocks written_;                     // by the call that runs
  Bytes written_f32_;
  std::vector<Bytes> written_sizes_;
  std::map<Key, Blocks> sums_;      // by group
  std::map<Key, Block> shards_;     // of gradients, by group
  std::optional<Block> scattered_;  // the flat tensor of the latest scatter
  std::vector<Gradients> due_;      // when this micro-batch's backward is over
  std::optional<std::int64_t> micro_batch_;
};

}  // namespace plimsoll
