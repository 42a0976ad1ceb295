// Which sequences of the global batch a rank works on.
#pragma once

#include "base/error.h"
#include "runtime/backend.h"

namespace plimsoll {

struct BatchPlace {
  std::int64_t batch_index;    ///< of the rank among those that share the global batch
  std::int64_t micro_batch;    ///< sequences per micro-batch
  std::int64_t micro_batches;  ///< per step and rank

  explicit BatchPlace(const RankContext& context) {
    INVARIANT(context.program != nullptr, "ops that know their sequences need a program");
    const Program& program = *context.program;
    batch_index = context.at[std::size_t(Axis::dp)] * program.grid[Axis::sharding] +
                  context.at[std::size_t(Axis::sharding)];
    micro_batch = program.micro_batch;
    micro_batches = program.micro_batches;
  }
  /// Index in the global batch of the first sequence of a micro-batch.
  std::int64_t first_sequence(std::int64_t index) const {
    return (batch_index * micro_batches + index) * micro_batch;
  }
};

}  // namespace plimsoll
