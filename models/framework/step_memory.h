// Step memory: what of a Program's lasting memory a framework makes anew in each step.
#pragma once

#include "graph/tensor.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Whether what a Program keeps of this role between steps lives shorter, where it does (`sharded`)
/// or does not shard over ranks, or lives in the host's memory.
inline bool made_in_steps(const Framework& framework, TensorRole role, bool sharded) {
  if (role == TensorRole::gradient && framework.gradient_memory == GradientMemory::as_computed)
    return true;
  const bool state = role == TensorRole::master_parameter || role == TensorRole::optimizer_state ||
                     role == TensorRole::gradient;
  if ((framework.host_optimizer && state) ||
      (framework.host_parameters && role == TensorRole::parameter))
    return true;
  const bool copied = sharded && framework.shard_memory == ShardMemory::flat_copies;
  return copied && (role == TensorRole::gradient || role == TensorRole::parameter);
}

}  // namespace plimsoll
