// Step memory is the part of a Program's lasting memory that a framework allocates anew in each
// step.
#pragma once

#include "graph/tensor.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns whether memory of this role, which a Program keeps between steps, is not kept on the
/// device by this framework. The framework may allocate it in each step or hold it in the host's
/// memory. `sharded`: the memory is sharded over ranks.
inline bool made_in_steps(const Framework& framework, TensorRole role, bool sharded) {
  const GradientMemory gradients = framework.memory.gradients;
  if (role == TensorRole::gradient && gradients != GradientMemory::one_buffer)
    return gradients != GradientMemory::by_layer || !sharded;
  const bool copied = sharded && framework.memory.shards == ShardMemory::flat_copies;
  return copied && (role == TensorRole::gradient || is_of_parameters(role));
}

}  // namespace plimsoll
