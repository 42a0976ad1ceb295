#include "calibrate/device_calibration.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "calibrate/bench_operands.h"
#include "calibrate/device_bench.h"
#include "calibrate/dispatch.h"
#include "calibrate/machine.h"
#include "calibrate/statistics.h"
#include "graph/op_table.h"
#include "simulator/efficiency_curves.h"

namespace plimsoll {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
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

/// One flash attention that was timed.
struct AttentionPoint {
  Flops work;
  std::int64_t tiles;
  Seconds time;
};

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
AttentionEfficiency fit_attention(const std::vector<AttentionPoint>& points, FlopsPerSecond peak,
                                  std::int64_t units) {
  const auto ideal = [&](const AttentionPoint& point) {
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

class DeviceSession {
 public:
  DeviceSession(const CalibrationRequest& request, Backend& backend, DeviceFacts facts)
      : request_(request), backend_(backend), facts_(std::move(facts)), start_(Clock::now()) {}

  MachineCalibration run() {
    backend_.enter_thread();
    RankDevice& device = *backend_.device();
    Calibration& calibration = machine_.calibration;
    calibration.device = facts_.name;
    calibration.backend = std::string(backend_.name());
    calibration.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    calibration.versions = {device.description(), std::string("g++ ") + __VERSION__};
    calibration.busy_cores = 1;
    calibration.context_memory = device.memory_used();
    const DispatchCost dispatch = measure_dispatch(quick() ? Effort::kLeast : 25);
    calibration.dispatch_op = dispatch.op;
    calibration.dispatch_call = dispatch.call;

    DeviceBench bench(backend_, Bytes((quick() ? 1 : 256) * kMiB));
    std::vector<DType> types = {request_.precision};
    if (request_.precision != DType::f32) types.push_back(DType::f32);
    std::vector<MatmulPoint> matmuls;
    std::vector<OpPoint> memory;
    for (const DType type : types) {
      std::ranges::copy(device_matmul_sweep(request_.size, type), std::back_inserter(matmuls));
      std::ranges::copy(device_memory_sweep(request_.size, type), std::back_inserter(memory));
    }
    total_ = matmuls.size() + memory.size() + 3;
    measure_attention(bench);
    measure_host(bench);
    calibration.ops = measured(memory, 0.5, [&](OpPoint& point) { return time(point, bench); });
    drop_repeated(calibration.ops);
    calibration.matmuls =
        measured(matmuls, 1.0, [&](MatmulPoint& point) { return time(point, bench); });
    describe_cluster();
    return std::move(machine_);
  }

 private:
  bool quick() const { return request_.size == SweepSize::quick; }
  Effort effort() const { return {Effort::kLeast, Seconds(quick() ? 20e-6 : 2e-3)}; }
  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }
  void progress(std::string_view what) {
    ++done_;
    if (request_.progress) request_.progress(std::string(what), done_, std::max(done_, total_));
  }

  /// False: there is no kernel for it.
  bool time(OpPoint& point, DeviceBench& bench) {
    const BenchCase bench_case = memory_case(point.kind, point.moved, point.row, point.dtype);
    progress(to_text(point.kind));
    if (!bench.supports(bench_case)) return false;
    point.moved = bytes_moved(bench_case.op, bench_case.tensors);
    point.row = bench_case.row;
    point.dtype = compute_dtype(bench_case.op, bench_case.tensors);
    point.time = bench.measure(bench_case, effort());
    return true;
  }
  bool time(MatmulPoint& point, DeviceBench& bench) {
    progress(to_text(OpKind::matmul));
    point.time = bench.measure(matmul_case(point.shape, point), effort());
    return true;
  }

  /// In an order spread over the sweep until `end` of the budget; the first and the last whatever
  /// the clock says.
  template <class Point, class Time>
  std::vector<Point> measured(std::vector<Point>& points, double end, Time time) {
    std::vector<bool> done(points.size());
    for (std::size_t i : spread_order(points.size())) {
      const bool essential = i == 0 || i + 1 == points.size() || is_essential(points[i]);
      if (elapsed() <= request_.budget * end || essential) {
        done[i] = time(points[i]);
      } else {
        ++machine_.left_out;
        progress("left out");
      }
    }
    std::vector<Point> result;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (done[i]) result.push_back(points[i]);
    }
    return result;
  }
  static bool is_essential(const MatmulPoint&) { return false; }
  static bool is_essential(const OpPoint& point) {  // the bandwidth
    return point.kind == OpKind::add && point.dtype == DType::f32;
  }

  static void drop_repeated(std::vector<OpPoint>& points) {
    const auto same = [](const OpPoint& a, const OpPoint& b) {
      return a.kind == b.kind && a.dtype == b.dtype && a.moved == b.moved && a.row == b.row;
    };
    points.erase(std::unique(points.begin(), points.end(), same), points.end());
  }

  void measure_host(DeviceBench& bench) {
    Calibration& calibration = machine_.calibration;
    calibration.launch = bench.measure_launch(quick() ? Effort::kLeast : 15);
    progress("launch");
    for (const CopyDirection direction :
         {CopyDirection::to_device, CopyDirection::to_host, CopyDirection::on_device}) {
      const std::vector<std::int64_t> sizes =
          quick() ? std::vector<std::int64_t>{kMiB} : std::vector<std::int64_t>{kMiB, 64 * kMiB};
      for (const std::int64_t size : sizes) {
        CopyPoint point;
        point.direction = direction;
        point.pinned = direction == CopyDirection::on_device;
        point.size = Bytes(size);
        point.time = bench.measure_copy(direction, point.size, Effort::kLeast);
        calibration.copies.push_back(point);
      }
    }
    progress("copies");
  }

  /// Causal, in the sizes of training: one sequence of 512 tokens up to 16 of 4096.
  void measure_attention(DeviceBench& bench) {
    struct Size {
      std::int64_t batch, sequence, heads, depth;
    };
    std::vector<Size> sizes = {{1, 1024, 16, 64},  {8, 1024, 16, 64},  {2, 2048, 32, 64},
                               {4, 2048, 16, 128}, {1, 2048, 32, 128}, {2, 4096, 32, 128},
                               {4, 512, 12, 64}};
    if (quick()) sizes = {{1, 32, 2, 64}, {1, 64, 2, 64}, {2, 64, 2, 64}};
    for (const Size& size : sizes) {
      for (const bool backward : {false, true}) {
        const OpKind kind = backward ? OpKind::flash_attention_backward : OpKind::flash_attention;
        const BenchCase bench_case = attention_case(kind, size.batch, size.sequence, size.heads,
                                                    size.depth, request_.precision);
        if (!bench.supports(bench_case)) return;
        const Seconds time = bench.measure(bench_case, effort()).median;
        const std::int64_t rows = size.batch * size.sequence;
        const std::int64_t tiles =
            (rows + kAttentionTileRows - 1) / kAttentionTileRows * size.heads;
        (backward ? attention_backward_ : attention_forward_)
            .push_back({flops(bench_case.op, bench_case.tensors), tiles, time});
      }
    }
    progress("attention");
  }

  FlopsPerSecond best_rate(DType type) const {
    double best = 0;
    for (const MatmulPoint& point : machine_.calibration.matmuls) {
      if (point.dtype != type) continue;
      best = std::max(best, (flops_of(point.shape) / point.time.median).value());
    }
    return FlopsPerSecond(best);
  }

  void describe_cluster();

  const CalibrationRequest& request_;
  Backend& backend_;
  DeviceFacts facts_;
  Clock::time_point start_;
  MachineCalibration machine_;
  std::vector<AttentionPoint> attention_forward_, attention_backward_;
  std::size_t done_ = 0, total_ = 0;
};

void DeviceSession::describe_cluster() {
  const Calibration& calibration = machine_.calibration;
  Cluster& cluster = machine_.cluster;
  cluster.name = facts_.name;
  cluster.nodes = 1;
  cluster.devices_per_node = 1;
  Device& device = cluster.device;
  device.name = facts_.name;
  device.kind = DeviceKind::gpu;
  device.memory = facts_.memory;
  device.memory_bandwidth = shortened(parse_bytes_per_second, memory_bandwidth(calibration.ops));
  const auto rate = [](double value) {
    return shortened(parse_flops_per_second, FlopsPerSecond(value));
  };
  const auto known =
      std::ranges::find(kPeakRates, facts_.compute_capability, &PeakRates::compute_capability);
  std::string peaks = "peaks are the best matmul rates";
  if (known != std::end(kPeakRates)) {
    const double part = double(facts_.multiprocessors) / known->multiprocessors;
    device.peak_fp32 = rate(known->fp32 * part);
    device.peak_bf16 = device.peak_fp16 = rate(known->bf16 * part);
    peaks = fmt::format(
        "peaks are datasheet, for compute capability {}.{} ({}), by its {} of {:.0f} "
        "multiprocessors",
        known->compute_capability / 10, known->compute_capability % 10, known->source,
        facts_.multiprocessors, known->multiprocessors);
  } else {
    device.peak_fp32 = rate(best_rate(DType::f32).value());
    if (request_.precision == DType::bf16) device.peak_bf16 = rate(best_rate(DType::bf16).value());
    if (request_.precision == DType::f16) device.peak_fp16 = rate(best_rate(DType::f16).value());
  }
  const FlopsPerSecond top = peak(device, request_.precision).value_or(*device.peak_fp32);
  Efficiency efficiency;
  efficiency.matmul.units = std::max<std::int64_t>(1, facts_.multiprocessors);
  efficiency.matmul.peak_fraction =
      std::clamp(best_rate(request_.precision) / top, kLeastFraction, 1.0);
  if (!attention_forward_.empty()) {
    efficiency.attention_forward = fit_attention(attention_forward_, top, efficiency.matmul.units);
    efficiency.attention_backward =
        fit_attention(attention_backward_, top, efficiency.matmul.units);
  }
  cluster.efficiency = efficiency;
  cluster.source = fmt::format(
      "measured on {} by planner calibrate; {}; memory bandwidth is that of an add of {}; "
      "attention "
      "is fitted on measured kernels",
      calibration.date, peaks, to_text(largest_add(calibration.ops).moved));
}

}  // namespace

std::vector<MatmulPoint> device_matmul_sweep(SweepSize size, DType dtype) {
  if (size == SweepSize::quick) {
    std::vector<MatmulPoint> points = matmul_sweep(size, dtype);
    points.resize(std::min<std::size_t>(points.size(), 6));
    return points;
  }
  std::vector<MatmulPoint> points;
  const auto add = [&](MatmulShape shape, bool transpose_a, bool transpose_b, bool accumulate,
                       bool bias) {
    MatmulPoint point;
    point.shape = shape;
    point.transpose_a = transpose_a;
    point.transpose_b = transpose_b;
    point.accumulate = accumulate;
    point.bias = bias;
    point.dtype = dtype;
    if (std::ranges::find(points, point) == points.end()) points.push_back(point);
  };
  // y [n, out] = x [n, in] w and its two gradients.
  const auto linear = [&](std::int64_t n, std::int64_t in, std::int64_t out, bool bias) {
    add({1, n, out, in}, false, false, false, bias);
    add({1, n, in, out}, false, true, false, false);
    add({1, in, out, n}, true, false, true, false);
  };
  for (const std::int64_t n : {1024, 4096, 8192, 16384}) {
    for (const std::int64_t h : {1024, 2048, 4096}) {
      linear(n, h, 3 * h, true);
      linear(n, h, h, true);
      linear(n, h, 4 * h, true);
      linear(n, 4 * h, h, true);
    }
    linear(n, 4096, 22016, false);  // gate and up of LLaMA 7B
    linear(n, 11008, 4096, false);
  }
  for (const std::int64_t n : {4096, 8192}) {
    for (const std::int64_t h : {1024, 4096}) linear(n, h, 50304, false);
  }
  for (const std::int64_t sequence : {1024, 2048}) {  // attention with scores in memory
    const MatmulShape square{64, sequence, sequence, 64}, thin{64, sequence, 64, sequence};
    add(square, false, true, false, false);
    add(thin, false, false, false, false);
    add(thin, true, false, false, false);
  }
  return points;
}

std::vector<OpPoint> device_memory_sweep(SweepSize size, DType dtype) {
  if (size == SweepSize::quick) return memory_sweep(size, dtype);
  std::vector<OpPoint> points;
  for (const OpKind kind : memory_bound_kinds(dtype)) {
    const bool softmax = kind == OpKind::softmax || kind == OpKind::softmax_backward;
    std::vector<std::int64_t> rows = {0};
    if (has_rows(kind)) rows = {1024, 2048, 4096};
    if (softmax) rows = {1024, 2048};
    const bool logits = kind == OpKind::logits_max || kind == OpKind::logits_sum_exp ||
                        kind == OpKind::cross_entropy_backward;
    if (logits) rows = {32000, 50304};
    for (const std::int64_t row : rows) {
      for (const std::int64_t mebibytes : {1, 16, 64, 256}) {
        OpPoint point;
        point.kind = kind;
        point.dtype = dtype;
        point.moved = Bytes(mebibytes * kMiB);
        point.row = row;
        points.push_back(point);
      }
    }
  }
  return points;
}

MachineCalibration calibrate_device(const CalibrationRequest& request, Backend& backend,
                                    const DeviceFacts& facts) {
  if (backend.device() == nullptr) {
    throw UsageError(fmt::format("backend {} has no device of its own", backend.name()));
  }
  return DeviceSession(request, backend, facts).run();
}

}  // namespace plimsoll
