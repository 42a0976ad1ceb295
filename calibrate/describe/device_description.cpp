// Datasheet peaks, the attentions that are timed, and the fit on them.
#include "calibrate/describe/device_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "calibrate/describe/machine.h"
#include "calibrate/measure/statistics.h"
#include "calibrate/schedule/bench_operands.h"
#include "graph/op_table.h"
#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

constexpr double kLeastFraction = 0.001;  // that a cluster file can say

/// Dense peaks of the datasheet's part, which has that many multiprocessors.
struct PeakRates {
  int compute_capability;
  double multiprocessors, bf16, fp32;
  const char* source;
};
constexpr PeakRates kPeakRates[] = {
    {80, 108, 312e12, 19.5e12, "NVIDIA A100 Tensor Core GPU datasheet (SXM), 2020"},
    {90, 132, 989.4e12, 66.9e12, "NVIDIA H100 Tensor Core GPU datasheet (SXM), 2023"},
    {100, 148, 2250e12, 75e12, "NVIDIA DGX B200 datasheet, an eighth of the system, 2024"},
};

/// Through their text: the file spells quantities with units, and should do so in three digits.
template <class Parse, class Quantity>
Quantity shortened(Parse parse, Quantity value) {
  return parse(to_text(value));
}

/// As the ops of a layer see it: `batch` sequences, heads of `depth`.
BenchCase attention_case(OpKind kind, std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                         std::int64_t depth, DType dtype) {
  BenchCase result;
  result.op.kind = kind;
  result.op.params = AttentionParams{.sequence = sequence, .scale = 1 / std::sqrt(double(depth))};
  const std::int64_t tokens = batch * sequence;
  const Shape qkv = {tokens, 3, heads, depth}, y = {tokens, heads * depth};
  const bool backward = kind == OpKind::flash_attention_backward;
  if (backward) input(result, y, dtype);
  input(result, qkv, dtype);
  if (backward) {
    input(result, y, dtype);
    input(result, {batch, heads, sequence});
    output(result, qkv, dtype);
  } else {
    output(result, y, dtype);
    output(result, {batch, heads, sequence});
  }
  return result;
}

/// Nearest in relative terms of time = fixed + work / (peak fraction) (1 + units / tiles) / 2 (see
/// efficient_attention); the error is that of points which the fit has not seen.
AttentionEfficiency fit_attention(const std::vector<AttentionTiming>& points, FlopsPerSecond peak,
                                  std::int64_t units) {
  const auto ideal = [&](const AttentionTiming& point) {
    const double lost = double(units) / double(point.tiles);
    return (point.work / peak).value() * (0.5 + 0.5 * lost);
  };
  const auto fit = [&](std::optional<std::size_t> left_out) {
    double ii = 0, io = 0, oo = 0, it = 0, ot = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i == left_out) continue;
      const double time = points[i].time.value(), a = ideal(points[i]) / time, b = 1 / time;
      ii += a * a, io += a * b, oo += b * b, it += a, ot += b;
    }
    const double determinant = ii * oo - io * io;
    double inverse = determinant > 0 ? (it * oo - ot * io) / determinant : 0;
    double fixed = determinant > 0 ? (ot * ii - it * io) / determinant : 0;
    if (fixed <= 0 || inverse <= 0) inverse = it / ii, fixed = 0;
    AttentionEfficiency result;
    result.peak_fraction = std::clamp(1 / inverse, kLeastFraction, 1.0);
    result.fixed_time = Seconds(fixed);
    return result;
  };
  AttentionEfficiency all = fit({});
  std::vector<double> errors;
  FitRange<Flops> range{points.front().work, points.front().work};
  for (std::size_t i = 0; i < points.size(); ++i) {
    const AttentionEfficiency without = fit(i);
    const double predicted = without.fixed_time.value() + ideal(points[i]) / without.peak_fraction;
    errors.push_back(std::abs(predicted / points[i].time.value() - 1));
    range.from = std::min(range.from, points[i].work);
    range.to = std::max(range.to, points[i].work);
  }
  range.error = quantile(errors, 0.5);
  all.fitted = range;
  return all;
}

FlopsPerSecond best_rate(const Calibration& calibration, DType type) {
  double best = 0;
  for (const MatmulPoint& point : calibration.matmuls) {
    if (point.dtype != type) continue;
    best = std::max(best, (flops_of(point.shape) / point.time.median).value());
  }
  return FlopsPerSecond(best);
}

}  // namespace

std::vector<AttentionTest> attention_tests(SweepSize sweep, DType precision) {
  struct Size {
    std::int64_t batch, sequence, heads, depth;
  };
  std::vector<Size> sizes = {{1, 1024, 16, 64},  {8, 1024, 16, 64},  {2, 2048, 32, 64},
                             {4, 2048, 16, 128}, {1, 2048, 32, 128}, {2, 4096, 32, 128},
                             {4, 512, 12, 64}};
  if (sweep == SweepSize::quick) sizes = {{1, 32, 2, 64}, {1, 64, 2, 64}, {2, 64, 2, 64}};
  std::vector<AttentionTest> tests;
  for (const Size& size : sizes) {
    for (const OpKind kind : {OpKind::flash_attention, OpKind::flash_attention_backward}) {
      AttentionTest& test = tests.emplace_back();
      test.bench_case =
          attention_case(kind, size.batch, size.sequence, size.heads, size.depth, precision);
      test.timing.backward = kind == OpKind::flash_attention_backward;
      test.timing.work = flops(test.bench_case.op, test.bench_case.tensors);
      const std::int64_t rows = size.batch * size.sequence;
      test.timing.tiles = (rows + kAttentionTileRows - 1) / kAttentionTileRows * size.heads;
    }
  }
  return tests;
}

std::string describe_device(Cluster& cluster, const Calibration& calibration,
                            const DeviceFacts& facts, DType precision,
                            std::span<const AttentionTiming> attention) {
  Device& device = cluster.device;
  device.name = facts.name;
  device.kind = DeviceKind::gpu;
  device.memory = facts.memory;
  device.memory_bandwidth = shortened(parse_bytes_per_second, memory_bandwidth(calibration.ops));
  const auto rate = [](double value) {
    return shortened(parse_flops_per_second, FlopsPerSecond(value));
  };
  const auto known =
      std::ranges::find(kPeakRates, facts.compute_capability, &PeakRates::compute_capability);
  std::string peaks = "peaks are the best matmul rates";
  if (known != std::end(kPeakRates)) {
    const double part = double(facts.multiprocessors) / known->multiprocessors;
    device.peak_fp32 = rate(known->fp32 * part);
    device.peak_bf16 = device.peak_fp16 = rate(known->bf16 * part);
    peaks = fmt::format(
        "peaks are datasheet, for compute capability {}.{} ({}), by its {} of {:.0f} "
        "multiprocessors",
        known->compute_capability / 10, known->compute_capability % 10, known->source,
        facts.multiprocessors, known->multiprocessors);
  } else {
    device.peak_fp32 = rate(best_rate(calibration, DType::f32).value());
    const double best = best_rate(calibration, precision).value();
    if (precision == DType::bf16) device.peak_bf16 = rate(best);
    if (precision == DType::f16) device.peak_fp16 = rate(best);
  }
  const FlopsPerSecond top = peak(device, precision).value_or(*device.peak_fp32);
  Efficiency efficiency;
  efficiency.matmul.units = std::max<std::int64_t>(1, facts.multiprocessors);
  efficiency.matmul.peak_fraction =
      std::clamp(best_rate(calibration, precision) / top, kLeastFraction, 1.0);
  std::vector<AttentionTiming> forward, backward;
  for (const AttentionTiming& one : attention) (one.backward ? backward : forward).push_back(one);
  if (!forward.empty()) {
    efficiency.attention_forward = fit_attention(forward, top, efficiency.matmul.units);
    efficiency.attention_backward = fit_attention(backward, top, efficiency.matmul.units);
  }
  cluster.efficiency = efficiency;
  return fmt::format(
      "{}; memory bandwidth is that of an add of {}; attention is fitted on measured "
      "kernels",
      peaks, to_text(largest_add(calibration.ops).moved));
}

}  // namespace plimsoll
