// Checkpoints: borders that layers are repeated from, where a framework does not keep them whole on
// the device (CheckpointMemory).
#pragma once

#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Which buffers of a Program they are. DeepSpeed partitions them over mp (--partition-activations)
/// or copies them to the host (--checkpoint-in-cpu): runtime/activation_checkpointing/
/// checkpointing.py, partition_activations and cpu_checkpointing.
class Checkpoints {
 public:
  Checkpoints(const Program& program, const Framework& framework);

  bool has(std::size_t buffer) const { return !buffers_.empty() && buffers_[buffer]; }
  /// Whether it is forward of the layer behind the border that has used this slot for the last
  /// time.
  bool ends_forward(std::size_t call, std::size_t slot) const;
  /// The bytes of so many that the device keeps between forward and backward.
  Bytes part(Bytes bytes) const;

 private:
  const Program& program_;
  const CheckpointMemory memory_;
  std::vector<bool> buffers_;  // empty: none
};

}  // namespace plimsoll
