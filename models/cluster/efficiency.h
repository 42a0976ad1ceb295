// Efficiency says how far a device's kernels and collectives stay below its peak rates, as a few
// physical parameters of a cluster file. The time formulas are in
// simulator/costs/efficiency_curves.h and simulator/costs/collective_cost.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// A FitRange has the sizes of the measurements on which parameters were fitted. A group of
/// parameters without a range is taken from a document.
template <class Amount>
struct FitRange {
  Amount from, to;   ///< smallest and largest measured; beyond, an estimate is extrapolated
  double error = 0;  ///< median relative error on measurements that the fit had not seen
  bool operator==(const FitRange&) const = default;
};

/// RestsOn is the source that set the rates and times of a group of parameters.
enum class RestsOn : std::uint8_t {
  cluster,  ///< the cluster file: its documents, or kernels timed one by one
  typical,  ///< what fits of other devices and frameworks have in common
  runs,     ///< published runs of the device and the framework
};

/// Matmul kernels compute their output in tiles, one tile at a time on each of the device's units.
struct MatmulEfficiency {
  /// share of the dense peak, for large tiles and a deep inner dimension
  double peak_fraction = 1;
  std::int64_t units = 1;  ///< streaming multiprocessors: tiles computed at once
  double added_depth = 0;  ///< start and end of a tile, as that many steps of the inner dimension
  double half_rate_reuse = 0;  ///< tile m n / (m + n) at which half of the rate is lost to loads
  Seconds fixed_time;          ///< per kernel
  /// The rate of 16-bit operands whose rows start at odd elements, relative to rows that start at
  /// multiples of 16 bytes. Alignments between the two are interpolated by powers: multiples of 4
  /// elements lose a third of the loss.
  double unaligned_rate = 1;
  /// The share of their peak that 8-bit operands reach, relative to peak_fraction.
  double fp8_rate = 1;
  /// The rate of 8-bit operands whose rows each have a scale, relative to operands with one scale.
  double rowwise_rate = 1;
  /// The rate of products of f32 operands, computed as TF32, where the rows of one or both operands
  /// do not run along the inner dimension. It is relative to the rate where the rows of both do.
  double f32_across_rate = 1;
  std::optional<FitRange<Flops>> fitted;
  RestsOn rests_on = RestsOn::cluster;
  RestsOn fp8_rests_on = RestsOn::cluster;  ///< the source of fp8_rate
  bool operator==(const MatmulEfficiency&) const = default;
};

/// One direction of causal attention in one kernel (flash attention). At most half of the scores
/// are computed.
struct AttentionEfficiency {
  double peak_fraction = 1;  ///< share of the dense peak, counting computed scores only
  Seconds fixed_time;        ///< per kernel
  std::optional<FitRange<Flops>> fitted;  ///< scores counted in full
  RestsOn rests_on = RestsOn::cluster;
  bool operator==(const AttentionEfficiency&) const = default;
};

/// Kernels that only move data.
struct MemoryEfficiency {
  double bandwidth_fraction = 1;  ///< share of the memory bandwidth
  Seconds fixed_time;             ///< per kernel
  std::optional<FitRange<Bytes>> fitted;
  RestsOn rests_on = RestsOn::cluster;
  bool operator==(const MemoryEfficiency&) const = default;
};

/// Collectives and transfers whose outermost level this is.
struct LevelEfficiency {
  double bandwidth_fraction = 1;  ///< share of the level's bandwidth
  Seconds fixed_time;             ///< per collective, beside the latency of its steps
  std::optional<FitRange<Bytes>> fitted;
  RestsOn rests_on = RestsOn::cluster;
  bool operator==(const LevelEfficiency&) const = default;
};

/// Kernels and communications that run at once slow each other, since data movement takes units and
/// memory bandwidth from compute and waits for both. A slowdown is the time beside the other over
/// the time alone; 1 means not slowed.
struct OverlapEfficiency {
  double compute_slowdown = 1, communication_slowdown = 1;
  bool operator==(const OverlapEfficiency&) const = default;
};

struct Efficiency {
  MatmulEfficiency matmul;
  AttentionEfficiency attention_forward, attention_backward;
  MemoryEfficiency memory;
  OverlapEfficiency overlap;
  std::vector<LevelEfficiency> levels;  ///< one for each level of the cluster
  bool operator==(const Efficiency&) const = default;
};

}  // namespace plimsoll
