// A device's description has datasheet peaks, and a fit on timed attentions.
#include "calibrate/describe/device_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/describe/machine.h"
#include "calibrate/measure/statistics.h"
#include "calibrate/schedule/bench_case.h"
#include "fitting/robust/robust_fit.h"
#include "graph/op_table.h"
#include "models/cluster/gpu_generation.h"
#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

constexpr double kLeastFraction = 0.001;  // that a cluster file can say

/// Rounds a quantity through its text, since the file spells quantities with units and three
/// digits.
template <class Parse, class Quantity>
Quantity shortened(Parse parse, Quantity value) {
  return parse(to_text(value));
}

/// Returns an attention as the ops of a layer have it: `batch` sequences, heads of `depth`.
BenchCase attention_case(OpKind kind, std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                         std::int64_t depth, DType dtype) {
  BenchCase result;
  result.op.kind = kind;
  result.op.params = AttentionParams{.sequence = sequence, .scale = 1 / std::sqrt(double(depth))};
  const std::int64_t tokens = batch * sequence;
  const Shape qkv = {tokens, 3, heads, depth}, y = {tokens, heads * depth};
  const bool backward = kind == OpKind::flash_attention_backward;
  if (backward) add_input(result, y, dtype);
  add_input(result, qkv, dtype);
  if (backward) {
    add_input(result, y, dtype);
    add_input(result, {batch, heads, sequence});
    add_output(result, qkv, dtype);
  } else {
    add_output(result, y, dtype);
    add_output(result, {batch, heads, sequence});
  }
  return result;
}

/// The prior is wide, since next to nothing is known of attention before it was measured.
constexpr double kPriorFraction = 0.5, kPriorFixedTime = 5e-6, kPriorSpread = 2;
constexpr double kLeastFixedTime = 1e-9, kMostFixedTime = 1e-2;
constexpr double kLeastScale = 0.005, kMostScale = 0.5;  // of the logarithm of one time

AttentionEfficiency efficiency_of(const LogModel::Values& values) {
  AttentionEfficiency result;
  result.peak_fraction = values[0];
  result.fixed_time = Seconds(values[1]);
  return result;
}

Seconds time_with(const AttentionEfficiency& efficiency, const AttentionTiming& point,
                  FlopsPerSecond peak, std::int64_t units) {
  return efficient_attention(point.work, true, point.tiles, peak, efficiency, units).time;
}

/// Finds the part of the peak and the fixed time that explain the timings best. The error is that
/// of timings which a fit has not seen.
AttentionEfficiency fit_attention(const std::vector<AttentionTiming>& points, FlopsPerSecond peak,
                                  std::int64_t units) {
  LogModel model;
  model.numbers = {{"peak_fraction", kPriorFraction, kPriorSpread, kLeastFraction, 1},
                   {"fixed_time", kPriorFixedTime, kPriorSpread, kLeastFixedTime, kMostFixedTime}};
  model.least_scale = kLeastScale;
  model.most_scale = kMostScale;
  for (const AttentionTiming& point : points)
    model.measured.push_back(std::log(point.time.value()));
  model.predicted = [&](const LogModel::Values& values) {
    LogModel::Values predicted;
    for (const AttentionTiming& point : points)
      predicted.push_back(std::log(time_with(efficiency_of(values), point, peak, units).value()));
    return predicted;
  };
  std::vector<bool> use(points.size(), true);
  const std::vector<bool> fixed(model.numbers.size(), false);
  const RobustSolution whole = solve(model, use, fixed, model.priors(), {});
  std::vector<double> errors;
  FitRange<Flops> range{points.front().work, points.front().work};
  for (std::size_t i = 0; i < points.size(); ++i) {
    use[i] = false;
    const RobustSolution without = solve(model, use, fixed, whole.values, {});
    use[i] = true;
    const Seconds predicted = time_with(efficiency_of(without.values), points[i], peak, units);
    errors.push_back(std::abs(predicted / points[i].time - 1));
    range.from = std::min(range.from, points[i].work);
    range.to = std::max(range.to, points[i].work);
  }
  range.error = quantile(errors, 0.5);
  AttentionEfficiency all = efficiency_of(whole.values);
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
  const GpuGeneration* known = generation_of_capability(facts.compute_capability);
  std::string peaks = "peaks are the best matmul rates";
  const bool exact = known != nullptr && known->compute_capability == facts.compute_capability;
  if (exact && known->peaks) {
    const double part = double(facts.multiprocessors) / known->peaks->multiprocessors;
    device.peak_fp32 = rate(known->peaks->fp32.value() * part);
    device.peak_bf16 = device.peak_fp16 = rate(known->peaks->bf16.value() * part);
    peaks = fmt::format(
        "peaks are datasheet, for compute capability {}.{} ({}), by its {} of {:.0f} "
        "multiprocessors",
        known->compute_capability / 10, known->compute_capability % 10, known->peaks->document,
        facts.multiprocessors, known->peaks->multiprocessors);
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
