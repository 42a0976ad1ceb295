// Efficiency curves: the time of local ops from a cluster's efficiency parameters
// (models/cluster/efficiency.h), for devices on which nothing was measured.
#pragma once

#include "graph/op_table.h"
#include "models/cluster/cluster.h"
#include "models/cluster/gpu_generation.h"
#include "models/framework/framework.h"
#include "simulator/costs/estimate.h"

namespace plimsoll {

/// Returns the time of a matmul that computes at `peak` and moves `moved` bytes.
///
/// The output is cut into tiles, which run in waves of one tile per unit. A tile costs its own
/// multiplications plus added_depth more steps of k. Small tiles load more bytes per multiplication
/// and lose rate: t / (t + half_rate_reuse), t = m n / (m + n), relative to the largest tile. Where
/// tiles are too few to fill the units, k is split too, and the parts are summed in memory. The
/// library picks the fastest tile. (Tile shapes, waves and split-k: CUTLASS,
/// media/docs/efficient_gemm.md; NVIDIA, Matrix Multiplication Background User's Guide, 2023.)
/// Arithmetic and memory overlap in part: their times are added as squares.
///
/// Rows of 16-bit operands that do not start at multiples of 16 bytes need narrower loads, of
/// `alignment` 8, 4, 2 or 1 elements (CUTLASS, media/docs/functionality.md: alignment of device
/// kernels). Batches of such products do not run on tensor cores, but at most at the f32 rate.
/// Sources: facebookresearch/xformers pull request 467, "bw A100", where attention by bmm over 197
/// keys takes 1.81 to 2.26 ms in f16 and 1.79 to 1.84 ms in f32. And bigscience-workshop/bigscience
/// train/tr11-176B-ml/chronicles-prequel.md, "NHEADs comparison", where a step takes 163 s with
/// heads of 108 and 125 s with heads of 144.
///
/// Within the range of the measurements the estimate is labelled by the source of its parameters.
/// Beyond that range, and in f32, it is extrapolated, because 16-bit matmuls were fitted. Rates of
/// 8-bit operands may have a source of their own.
Estimate efficient_matmul(const MatmulShape& shape, std::int64_t alignment, Bytes moved,
                          DType dtype, FlopsPerSecond peak, const Device& device,
                          const Efficiency& efficiency);
/// Returns the most elements, up to 8, of which the row lengths of both operands and of the result
/// are multiples.
std::int64_t matmul_alignment(const MatmulShape& shape, bool transpose_a, bool transpose_b);

/// Returns the time of attention in one kernel. `work` counts all scores; where it is `causal`,
/// half of them are computed. There are `tiles` tiles of 128 query rows of one head. At the end
/// each unit loses half of a longest tile, on average. Memory traffic is hidden. Fits are of causal
/// attention; without the mask the estimate is extrapolated.
Estimate efficient_attention(Flops work, bool causal, std::int64_t tiles, FlopsPerSecond peak,
                             const AttentionEfficiency& attention, std::int64_t units);
inline constexpr std::int64_t kAttentionTileRows = 128;

/// Returns the rates of a framework's attention on a device, relative to the cluster's. The kernels
/// of 2022 relative to FlashAttention-2: Dao 2023, arXiv 2307.08691, section 4.1. The latter is
/// around 2 times as fast as FlashAttention, and 1.3 to 1.5 times as fast as the one in Triton
/// forward, around 2 times backward. These were measured on A100. On Hopper they are assumed to
/// hold as well, since none of these kernels has its instructions.
AttentionRates attention_rates(AttentionKernel kernel, const Device& device);

/// Returns the time of an op that only moves bytes.
Estimate efficient_move(Bytes moved, const Device& device, const MemoryEfficiency& memory);

/// Returns the label of an estimate whose parameters were not measured one by one. `otherwise` is
/// the label of parameters that stand in the cluster file.
constexpr Provenance provenance_of(RestsOn basis, Provenance otherwise) {
  if (basis == RestsOn::cluster) return otherwise;
  return basis == RestsOn::runs ? Provenance::fitted : Provenance::typical;
}

/// Makes `time` an estimate from a group of parameters. It is extrapolated where `amount` is
/// outside the range that the group was fitted on.
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

/// Whether the speed of a group's kernels comes from measurements, not only from a document.
template <class Group>
bool is_found(const Group& group) {
  return group.fitted || group.rests_on != RestsOn::cluster;
}

}  // namespace plimsoll
