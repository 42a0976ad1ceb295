// Checkpoints: the borders from which layers are recomputed, where a framework does not keep them
// whole on the device (CheckpointMemory).
#pragma once

#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// The buffers of a Program that are checkpoints. DeepSpeed partitions checkpoints over mp
/// (--partition-activations) or copies them to the host (--checkpoint-in-cpu): see
/// runtime/activation_checkpointing/checkpointing.py, partition_activations and cpu_checkpointing.
class Checkpoints {
 public:
  Checkpoints(const Program& program, const Framework& framework);

  bool has(std::size_t buffer) const { return !buffers_.empty() && buffers_[buffer]; }
  /// Whether the call is forward of the layer behind the border, and uses this slot for the last
  /// time.
  bool ends_forward(std::size_t call, std::size_t slot) const;
  /// Returns how many of these bytes the device keeps between forward and backward.
  Bytes part(Bytes bytes) const;

 private:
  const Program& program_;
  const CheckpointMemory memory_;
  std::vector<bool> buffers_;  // empty: none
};

}  // namespace plimsoll
