// Tiles, waves and split-k of matmuls, and the rates of other kernels.
#include "simulator/costs/efficiency_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

struct Tile {
  std::int64_t m, n;
};
/// The thread-block tiles of cuBLAS and CUTLASS kernels for 16-bit operands on Volta to Hopper.
constexpr std::array<Tile, 6> kTiles = {
    {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}}};
constexpr std::array<std::int64_t, 4> kSplits = {1, 2, 4, 8};
constexpr double kLeastSplitDepth = 256;  // a part of k shorter than this gains nothing
constexpr std::int64_t kWidestLoad = 8;   // 16-bit elements in a load of 16 bytes

double reuse(Tile tile) { return double(tile.m * tile.n) / double(tile.m + tile.n); }

/// Returns the rate of a tile relative to the largest tile.
double relative_rate(Tile tile, double half_rate_reuse) {
  const auto saturated = [&](double t) { return t / (t + half_rate_reuse); };
  return saturated(reuse(tile)) / saturated(reuse(kTiles[0]));
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Returns the bytes of f32 partial sums, which are written and read once for each part.
Bytes split_traffic(const MatmulShape& shape, std::int64_t parts) {
  if (parts == 1) return Bytes(0);
  return Bytes(2 * 4 * parts) * (shape.batch * shape.m * shape.n);
}

/// Returns the weight of a tile's start and of its loads in f32, relative to 16 bits. They take
/// time of memory: less at a lower rate of arithmetic, and twice as much for elements twice as
/// long. With a quarter, on V100, 42 f32 products of DeepBench are predicted 5 % off instead of 9
/// %.
double loads_of_f32(const Device& device, FlopsPerSecond peak) {
  const std::optional<FlopsPerSecond>& of_16 =
      device.peak_fp16 ? device.peak_fp16 : device.peak_bf16;
  return of_16 ? std::min(1.0, 2 * peak.value() / of_16->value()) : 1;
}

}  // namespace

std::int64_t matmul_alignment(const MatmulShape& shape, bool transpose_a, bool transpose_b) {
  std::int64_t rows = kWidestLoad;
  for (const std::int64_t length :
       {transpose_a ? shape.m : shape.k, transpose_b ? shape.k : shape.n, shape.n}) {
    while (length % rows != 0) rows /= 2;
  }
  return rows;
}

Estimate efficient_matmul(const MatmulShape& shape, std::int64_t alignment, Bytes moved,
                          DType dtype, FlopsPerSecond peak, const Device& device,
                          const Efficiency& efficiency) {
  const MatmulEfficiency& matmul = efficiency.matmul;
  const BytesPerSecond bandwidth(device.memory_bandwidth.value() *
                                 efficiency.memory.bandwidth_fraction);
  const bool in_vector_units =
      shape.batch > 1 && alignment < kWidestLoad && bytes_of(dtype) == Bytes(2) && device.peak_fp32;
  const double slower =
      in_vector_units ? std::min(1.0, device.peak_fp32->value() / peak.value()) : 1;
  const double loads = dtype == DType::f32 ? loads_of_f32(device, peak) : slower;
  // From 1 for eight 16-bit elements, the widest load, down to unaligned_rate for one.
  const double unaligned =
      dtype == DType::f32 || in_vector_units ? 0 : 1 - std::log2(double(alignment)) / 3;
  const double fraction = matmul.peak_fraction * (is_fp8(dtype) ? matmul.fp8_rate : 1);
  const FlopsPerSecond unit_rate(slower * peak.value() * std::min(1.0, fraction) /
                                 double(matmul.units) * std::pow(matmul.unaligned_rate, unaligned));
  Seconds compute(std::numeric_limits<double>::infinity());
  for (const Tile& tile : kTiles) {
    const FlopsPerSecond rate(unit_rate.value() *
                              relative_rate(tile, loads * matmul.half_rate_reuse));
    const std::int64_t tiles =
        shape.batch * divide_up(shape.m, tile.m) * divide_up(shape.n, tile.n);
    for (const std::int64_t parts : kSplits) {
      const double depth = double(shape.k) / double(parts);
      if (parts > 1 && depth < kLeastSplitDepth) break;
      const std::int64_t waves = divide_up(tiles * parts, matmul.units);
      const Flops of_tile(2.0 * double(tile.m * tile.n) * (depth + loads * matmul.added_depth));
      const Seconds time =
          double(waves) * (of_tile / rate) + split_traffic(shape, parts) / bandwidth;
      compute = std::min(compute, time);
    }
  }
  const Seconds memory = moved / bandwidth;
  const Seconds time = matmul.fixed_time + Seconds(std::hypot(compute.value(), memory.value()));
  const Flops work(2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k));
  Estimate estimate = fitted_estimate(time, work, matmul);
  // The fit is of 16-bit operands.
  if ((dtype == DType::f32 || is_fp8(dtype) || in_vector_units) && is_found(matmul))
    estimate.provenance = Provenance::extrapolated;
  if (is_fp8(dtype)) estimate.provenance = provenance_of(matmul.fp8_rests_on, estimate.provenance);
  return estimate;
}

Estimate efficient_attention(Flops work, bool causal, std::int64_t tiles, FlopsPerSecond peak,
                             const AttentionEfficiency& attention, std::int64_t units) {
  const double computed = causal ? 0.5 : 1;
  const double lost = double(units) / double(std::max<std::int64_t>(tiles, 1));
  const FlopsPerSecond rate(peak.value() * attention.peak_fraction);
  const Seconds time = attention.fixed_time + work / rate * (computed + 0.5 * lost);
  Estimate estimate = fitted_estimate(time, work, attention);
  if (!causal && is_found(attention)) estimate.provenance = Provenance::extrapolated;
  return estimate;
}

AttentionRates attention_rates(AttentionKernel kernel, const Device& device) {
  if (kernel == AttentionKernel::native) return {};
  const GpuGeneration* generation = generation_named(device.name);
  const AttentionRates flash_2 = generation == nullptr ? AttentionRates() : generation->flash_2;
  switch (kernel) {
    case AttentionKernel::flash_1:
      return {flash_2.forward / 2, flash_2.backward / 2};
    case AttentionKernel::triton:
      return {flash_2.forward / 1.4, flash_2.backward / 2};
    default:
      return flash_2;
  }
}

Estimate efficient_move(Bytes moved, const Device& device, const MemoryEfficiency& memory) {
  const Seconds time =
      memory.fixed_time + moved / device.memory_bandwidth / memory.bandwidth_fraction;
  return fitted_estimate(time, moved, memory);
}

}  // namespace plimsoll
