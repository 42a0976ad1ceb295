// Time of local ops from a cluster's efficiency parameters (models/efficiency.h): what answers
// where nothing was measured on the device itself.
#pragma once

#include "graph/op_table.h"
#include "models/cluster.h"
#include "simulator/estimate.h"

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
/// In the fitted range the estimate is interpolated, beyond it or in f32 extrapolated: fits are of
/// 16-bit matmuls.
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

/// `time` as an estimate from parameters fitted on amounts like `fitted`, or on none.
template <class Amount>
Estimate fitted_estimate(Seconds time, Amount amount,
                         const std::optional<FitRange<Amount>>& fitted) {
  if (!fitted) return {time, Seconds(0), Provenance::datasheet};
  const bool inside = fitted->from <= amount && amount <= fitted->to;
  // Half of all errors are below the median: half an interquartile range.
  const Seconds spread = time * (2 * kHalfWidth90 * fitted->error);
  return {time, spread, inside ? Provenance::interpolated : Provenance::extrapolated};
}

}  // namespace plimsoll
