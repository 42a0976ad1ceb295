// Stage buffers: what a stage of a pipeline keeps at its borders (BorderMemory::for_each).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"
#include "simulator/memory/routine_events.h"
#include "simulator/memory/tensor_blocks.h"

namespace plimsoll {

/// As PipelineStage of torch/distributed/pipelining/stage.py (pytorch 1963fc8, 2024-12-23) has it:
/// memory to receive each micro-batch's activation (args_recv_info) and gradient (grad_recv_info)
/// is made before the first step and stays; what forward of each micro-batch gives, sent on or
/// given to the loss, is kept to the end of the step (output_chunks), where the last stage
/// concatenates it (_merge_outputs).
class StageBuffers {
 public:
  StageBuffers(const Program& program, const Framework& framework, Names& names,
               TensorBlocks& blocks);

  /// Whether the buffer has memory of its own for good: it is received.
  bool has(std::size_t buffer) const { return active_ && received_[buffer]; }
  /// Keeps what the Program frees, if it was sent on.
  bool keeps(std::size_t buffer, TensorBlocks::Block block);
  /// Keeps what the model gave to the loss.
  bool keeps_output(TensorBlocks::Block block, Bytes bytes);

  void begin();                        ///< before the first step
  void before_call(std::size_t call);  ///< the first of the optimizer: outputs are concatenated
  void end_step();

 private:
  const Program& program_;
  TensorBlocks& blocks_;
  bool active_ = false;
  std::vector<bool> received_, sent_;  // by buffer
  std::vector<std::uint32_t> names_;   // by buffer
  std::vector<TensorBlocks::Block> kept_;
  Bytes outputs_;  // of the model, not concatenated yet
  std::uint32_t merged_name_ = 0;
};

}  // namespace plimsoll
