// Time of local ops from a cluster's efficiency parameters (models/cluster/efficiency.h): what
// answers where nothing was measured on the device itself.
#pragma once

#include "graph/op_table.h"
#include "models/cluster/cluster.h"
#include "simulator/costs/estimate.h"

namespace plimsoll {

/// A matmul that computes at `peak` and moves `moved` bytes.
///
/// Its output is cut into tiles; tiles run in waves of one per unit, and each costs its own
/// multiplications plus added_depth more steps of k. Small tiles load more operand bytes per
/// multiplication and lose rate: t / (t + half_rate_reuse), t = m n / (m + n), relative to the
/// largest. Where tiles are too few to fill the units, k is split too, and the parts are added up
/// in memory. The library picks the fastest tile. (Tile shapes, waves and split-k: CUTLASS,
/// media/docs/efficient_gemm.md; NVIDIA, Matrix Multiplication Background User's Guide, 2023.)
/// Arithmetic and memory overlap in part: their times are added as squares.
///
/// Rows of 16-bit operands that do not start at multiples of 16 bytes are loaded in narrower
/// pieces: `alignment` of 8, 4, 2 or 1 elements (CUTLASS, media/docs/functionality.md: alignment of
/// device kernels).
///
/// In the range of the measurements the estimate says what its parameters rest on, beyond it or in
/// f32 it is extrapolated: what was fitted is of 16-bit matmuls. Rates of 8-bit operands may rest
/// on something of their own.
Estimate efficient_matmul(const MatmulShape& shape, std::int64_t alignment, Bytes moved,
                          DType dtype, FlopsPerSecond peak, const Device& device,
                          const Efficiency& efficiency);
/// Elements, up to 8, that the row lengths of both operands and of the result are multiples of.
std::int64_t matmul_alignment(const MatmulShape& shape, bool transpose_a, bool transpose_b);

/// Attention in one kernel: `work` counts all scores. Where it is `causal` half are computed, else
/// all, in tiles of 128 query rows of one head (`tiles`); on average half of a longest tile is lost
/// on each unit at the end. Memory traffic stays hidden. Fits are of causal attention: without the
/// mask the estimate is extrapolated.
Estimate efficient_attention(Flops work, bool causal, std::int64_t tiles, FlopsPerSecond peak,
                             const AttentionEfficiency& attention, std::int64_t units);
inline constexpr std::int64_t kAttentionTileRows = 128;

/// An op that only moves bytes.
Estimate efficient_move(Bytes moved, const Device& device, const MemoryEfficiency& memory);

/// The label of an estimate whose parameters were not measured one by one: `otherwise` where they
/// rest on the cluster file.
constexpr Provenance provenance_of(RestsOn basis, Provenance otherwise) {
  if (basis == RestsOn::cluster) return otherwise;
  return basis == RestsOn::runs ? Provenance::fitted : Provenance::typical;
}

/// `time` as an estimate from a group of parameters that was fitted on amounts like its range, if
/// on any.
template <class Amount, class Group>
Estimate fitted_estimate(Seconds time, Amount amount, const Group& group) {
  const std::optional<FitRange<Amount>>& range = group.fitted;
  if (!range) return {time, Seconds(0), provenance_of(group.rests_on, Provenance::datasheet)};
  const bool inside = range->from <= amount && amount <= range->to;
  // Half of all errors are below the median: half an interquartile range.
  const Seconds spread = time * (2 * kHalfWidth90 * range->error);
  return {
      time, spread,
      inside ? provenance_of(group.rests_on, Provenance::interpolated) : Provenance::extrapolated};
}

/// Whether anything but a document says how fast a group's kernels are.
template <class Group>
bool is_found(const Group& group) {
  return group.fitted || group.rests_on != RestsOn::cluster;
}

}  // namespace plimsoll
