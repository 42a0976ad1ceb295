// A BatchPlace says on which sequences of the global batch a rank works.
#pragma once

#include "base/error.h"
#include "runtime/backend.h"

namespace plimsoll {

struct BatchPlace {
  std::int64_t batch_index;    ///< index of the rank among those that share the global batch
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
  /// Returns the index in the global batch of the first sequence of a micro-batch.
  std::int64_t first_sequence(std::int64_t index) const {
    return (batch_index * micro_batches + index) * micro_batch;
  }
};

/// GlobalRuns lists the elements of a tensor as runs that are contiguous in the tensor of the
/// global batch.
struct GlobalRuns {
  std::int64_t run, runs;  ///< elements of a run; number of runs
  /// global index of run 0 within the micro-batch; distance between runs
  std::int64_t first, stride;
  std::int64_t per_sequence;  ///< elements of one sequence, over all ranks
};

inline GlobalRuns global_runs(const Tensor& tensor, const Coordinates& at,
                              std::int64_t micro_batch) {
  const std::int64_t count = elements(tensor.shape);
  GlobalRuns runs{count, 1, 0, 0, count / micro_batch};
  if (!tensor.split || tensor.split->degree == 1) return runs;
  runs.run = 1;
  for (std::size_t d = std::size_t(tensor.split->dim); d < tensor.shape.size(); ++d) {
    runs.run *= tensor.shape[d];
  }
  runs.runs = count / runs.run;
  runs.first = at[std::size_t(tensor.split->axis)] * runs.run;
  runs.stride = runs.run * tensor.split->degree;
  runs.per_sequence = count * tensor.split->degree / micro_batch;
  return runs;
}

}  // namespace plimsoll
