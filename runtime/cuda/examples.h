// Where the examples of a step's sequences begin and end, in device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/backend.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

/// An ExampleTable contains what ExampleReader returns (runtime/example_reader.h), for all
/// micro-batches of a step. Kernels read it by the micro-batch of their call.
struct ExampleTable {
  const std::int32_t *begins = nullptr, *ends = nullptr;  ///< by micro-batch, sequence, position
  const std::int32_t *cut_begins = nullptr, *cut_ends = nullptr;  ///< as ExampleReader::cuts
  const double* share = nullptr;  ///< in the loss, of a token that is predicted
  const RunPosition* call = nullptr;
  std::int64_t micro_batch = 0, sequence = 0;

  /// Returns whether the job states lengths of examples. If not, a sequence is one example.
  __device__ __host__ bool reads() const { return begins != nullptr; }
  /// Returns the first position of the example of the token at `position` of sequence `of`.
  __device__ std::int64_t begin(std::int64_t of, std::int64_t position) const {
    return begins[at(of, position)];
  }
  __device__ std::int64_t end(std::int64_t of, std::int64_t position) const {
    return ends[at(of, position)];
  }
  /// Returns the share in the loss of what this token predicts `ahead` tokens before it.
  __device__ double loss_share(std::int64_t of, std::int64_t position, std::int64_t ahead) const {
    return position + ahead < end(of, position) ? *share : 0;
  }
  /// These are the functions of a part of sequence `of`.
  __device__ std::int64_t position(const SequencePart& part, std::int64_t of,
                                   std::int64_t i) const {
    if (cut_begins == nullptr || part.rank < 0) return part.position(i);
    const std::int64_t token = at(of, i * part.ranks);
    return part.position(i, cut_begins[token], cut_ends[token]);
  }
  __device__ std::int64_t before(const SequencePart& part, std::int64_t of,
                                 std::int64_t position) const {
    const bool cut = cut_begins != nullptr && part.rank >= 0 && position > 0 && position < sequence;
    if (!cut) return part.before(position);
    const std::int64_t token = at(of, position);
    return part.before(position, cut_begins[token], cut_ends[token]);
  }
  __device__ std::int64_t row(const SequencePart& part, std::int64_t of, std::int64_t i) const {
    if (cut_begins == nullptr || part.rank >= 0) return part.row(of, i);
    const std::int64_t token = at(of, i);
    return part.row(of, i, cut_begins[token], cut_ends[token]);
  }

 private:
  __device__ std::int64_t at(std::int64_t of, std::int64_t position) const {
    return (call->micro_batch * micro_batch + of) * sequence + position;
  }
};

}  // namespace plimsoll
