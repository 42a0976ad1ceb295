// Stage buffers: what a stage of a pipeline keeps at its borders (BorderMemory::for_each).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"
#include "simulator/memory/routine_events.h"
#include "simulator/memory/tensor_blocks.h"

namespace plimsoll {

/// Keeps the buffers of PipelineStage in torch/distributed/pipelining/stage.py (pytorch 1963fc8,
/// 2024-12-23). Memory to receive each micro-batch's activation (args_recv_info) and gradient
/// (grad_recv_info) is made before the first step and stays. The output of each micro-batch's
/// forward, sent on or given to the loss, is kept to the end of the step (output_chunks). There the
/// last stage concatenates its outputs (_merge_outputs).
class StageBuffers {
 public:
  StageBuffers(const Program& program, const Framework& framework, TensorNames& names,
               TensorBlocks& blocks);

  /// Whether the buffer has lasting memory here, because the stage receives it.
  bool has(std::size_t buffer) const { return active_ && received_[buffer]; }
  /// Keeps a block that the Program frees, if the block was sent on. Returns whether it did.
  bool keeps(std::size_t buffer, TensorBlocks::Block block);
  /// Keeps a block that the model gave to the loss. Returns whether it did.
  bool keeps_output(TensorBlocks::Block block, Bytes bytes);

  void begin();                        ///< before the first step
  void before_call(std::size_t call);  ///< concatenates outputs before the optimizer's first call
  void end_step();

 private:
  const Program& program_;
  TensorBlocks& blocks_;
  bool active_ = false;
  std::vector<bool> received_, sent_;  // by buffer
  std::vector<std::uint32_t> names_;   // by buffer
  std::vector<TensorBlocks::Block> kept_;
  Bytes outputs_;  // of the model, to be concatenated
  std::uint32_t merged_name_ = 0;
};

}  // namespace plimsoll
