// A BatchPlace says on which sequences of the global batch a rank works, and on which of their
// tokens.
#pragma once

#include "base/error.h"
#include "runtime/backend.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

struct BatchPlace {
  std::int64_t batch_index;    ///< index of the rank among those that share the global batch
  std::int64_t partner_index;  ///< that of the rank's partner (partner_of); its own without one
  std::int64_t micro_batch;    ///< sequences per micro-batch
  std::int64_t micro_batches;  ///< per step and rank

  explicit BatchPlace(const RankContext& context) {
    INVARIANT(context.program != nullptr, "ops that know their sequences need a program");
    const Program& program = *context.program;
    const auto index = [&](const Coordinates& at) {
      return at[std::size_t(Axis::dp)] * program.grid[Axis::sharding] +
             at[std::size_t(Axis::sharding)];
    };
    batch_index = index(context.at);
    partner_index =
        has_halves(program.grid) ? index(partner_of(program.grid, context.at)) : batch_index;
    micro_batch = program.micro_batch;
    micro_batches = program.micro_batches;
  }
  /// Returns the index in the global batch of the first sequence of a micro-batch, as
  /// Call::micro_batch numbers it.
  PLIMSOLL_ANYWHERE std::int64_t first_sequence(std::int64_t index) const {
    const bool own = index < micro_batches;
    const std::int64_t before = own ? batch_index : partner_index - 1;
    return (before * micro_batches + index) * micro_batch;
  }
};

/// TokenParts are the parts of a micro-batch's tokens on a rank (DataParams::parts), with those of
/// each of `ranks` ranks of mp one behind another.
struct TokenParts {
  std::int64_t sequence, micro_batch, parts, ranks;

  PLIMSOLL_ANYWHERE std::int64_t tokens() const { return micro_batch * sequence / parts; }
  /// Returns the index in the micro-batch of the i-th token of a part.
  PLIMSOLL_ANYWHERE std::int64_t token(std::int64_t part, std::int64_t i) const {
    const std::int64_t of_rank = tokens() / ranks;
    return (i / of_rank * parts + part) * of_rank + i % of_rank;
  }
};
inline TokenParts token_parts(const DataParams& params, std::int64_t micro_batch) {
  return {params.sequence, micro_batch, params.parts, params.ranks};
}

/// Returns the rank's own tokens of each sequence, of which there are so many.
inline SequencePart own_tokens(const RankContext& context, std::int64_t tokens) {
  SequencePart part{.tokens = tokens};
  if (context.program == nullptr) return part;
  part.ranks = context.program->grid[Axis::cp];
  part.rank = context.at[std::size_t(Axis::cp)];
  return part;
}

/// GlobalRuns lists the elements of a tensor as runs that are contiguous in the tensor of the
/// global batch.
struct GlobalRuns {
  std::int64_t run, runs;  ///< elements of a run; number of runs
  /// global index of run 0 within the micro-batch; distance between runs
  std::int64_t first, stride;
  std::int64_t per_sequence;  ///< elements of one sequence, over all ranks
  /// Where ranks share sequences, these indices are among the elements of one such rank, of which
  /// each sequence has two chunks.
  SequencePart part;

  /// Returns the global index of an element, from its index in the micro-batch of one such rank,
  /// counted from the start of the global batch.
  PLIMSOLL_ANYWHERE std::int64_t global(std::int64_t index) const {
    if (part.ranks == 1) return index;
    const std::int64_t chunk = per_sequence / (2 * part.ranks), number = index / chunk;
    const std::int64_t of_sequence = number % 2 == 0 ? part.rank : 2 * part.ranks - 1 - part.rank;
    return (number / 2 * 2 * part.ranks + of_sequence) * chunk + index % chunk;
  }
  /// Returns up to where global indices follow each other from this index on.
  PLIMSOLL_ANYWHERE std::int64_t contiguous(std::int64_t index) const {
    if (part.ranks == 1) return index + run;
    const std::int64_t chunk = per_sequence / (2 * part.ranks);
    return (index / chunk + 1) * chunk;
  }
  /// Returns the elements of one sequence on the ranks that have this rank's tokens.
  PLIMSOLL_ANYWHERE std::int64_t own_per_sequence() const { return per_sequence / part.ranks; }
};

inline GlobalRuns global_runs(const Tensor& tensor, const RankContext& context,
                              std::int64_t micro_batch) {
  const Coordinates& at = context.at;
  const std::int64_t count = elements(tensor.shape);
  const SequencePart part = own_tokens(context, 0);
  GlobalRuns runs{count, 1, 0, 0, count / micro_batch * part.ranks, part};
  if (!tensor.split || tensor.split->degree == 1) return runs;
  runs.run = 1;
  for (std::size_t d = std::size_t(tensor.split->dim); d < tensor.shape.size(); ++d) {
    runs.run *= tensor.shape[d];
  }
  runs.runs = count / runs.run;
  runs.first = at[std::size_t(tensor.split->axis)] * runs.run;
  runs.stride = runs.run * tensor.split->degree;
  runs.per_sequence = count * tensor.split->degree / micro_batch * part.ranks;
  return runs;
}

}  // namespace plimsoll
