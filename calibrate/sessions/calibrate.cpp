// A calibration orders its measurements within the budget, and describes the cluster by them.
#include "calibrate/sessions/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "calibrate/describe/fit_errors.h"
#include "calibrate/describe/machine.h"
#include "calibrate/measure/collectives.h"
#include "calibrate/measure/core_bench.h"
#include "calibrate/measure/dispatch.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/schedule.h"
#include "calibrate/sessions/journal.h"
#include "graph/op_table.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// The shares of the budget at which parts end. Matmuls come first: they are most of a step, and a
/// slow machine reaches no more. Dispatch takes as long as it needs (about a second).
constexpr double kMatmulsEnd = 0.45, kCollectivesEnd = 0.65;
/// In the time that the first pass leaves, matmuls come first, since they are most of a step.
constexpr double kMatmulsAgain = 0.6, kMemoryAgain = 0.85;
/// The error of a fit, or the spread, up to which nothing hints at a disturbance.
constexpr double kNoDoubt = 0.10;
/// The weight of points that no plan runs, relative to the one that it runs most of.
constexpr double kLeastWeight = 0.01;

/// Runs the parts of a calibration against the clock.
class Session {
 public:
  explicit Session(const CalibrationRequest& request)
      : request_(request), start_(Clock::now()), cores_(available_cores()) {}

  MachineCalibration run() {
    MachineCalibration machine;
    Calibration& calibration = machine.calibration;
    describe_machine(calibration, request_.backend);
    calibration.busy_cores = cores_;
    PointJournal journal(request_.journal, settings(calibration), request_.resume,
                         calibration.date);
    journal_ = &journal;
    auto collectives = collective_sweep(request_.size);
    auto memory = memory_sweep(request_.size);
    auto matmuls = matmul_sweep(request_.size);
    if (request_.precision != DType::f32) {
      std::ranges::copy(memory_sweep(request_.size, request_.precision),
                        std::back_inserter(memory));
      std::ranges::copy(matmul_sweep(request_.size, request_.precision),
                        std::back_inserter(matmuls));
    }
    if (request_.workload) {
      memory = with_shapes(*request_.workload, std::move(memory));
      matmuls = with_shapes(*request_.workload, std::move(matmuls));
    }
    total_ = 1 + 2 * (collectives.size() + memory.size() + matmuls.size());

    const DispatchCost dispatch = measure_dispatch(quick() ? kLeast : 25);
    calibration.dispatch_op = dispatch.op;
    calibration.dispatch_call = dispatch.call;
    calibration.wake_up = measure_wake_up(quick() ? kLeast : 25);
    calibration.sleeps_after = Seconds(std::chrono::duration<double>(kPollsBeforeSleep).count());
    progress("dispatch");
    CoreBench bench(request_.backend, cores_, kCoreFootprint);
    const auto time_collective = [this](CollectivePoint& point) { time(point); };
    const auto time_op = [&](auto& point) { time(point, bench); };
    const MatmulShape first = matmuls.front().shape;
    const auto essential = [](const auto& point) { return is_essential(point); };
    const auto is_first = [&](const MatmulPoint& point) { return point.shape == first; };
    measure_part(matmuls, kMatmulsEnd, is_first, time_op);
    measure_part(collectives, kCollectivesEnd, essential, time_collective);
    measure_part(memory, 1.0, essential, time_op);
    const double now = elapsed() / request_.budget;
    measure_again(matmuls, left_out_errors(matmuls, memory_bandwidth(memory)),
                  now + (1 - now) * kMatmulsAgain, time_op);
    measure_again(memory, left_out_errors(memory), now + (1 - now) * kMemoryAgain, time_op);
    measure_again(collectives, left_out_errors(collectives), 1.0, time_collective);
    drop_repeated(memory);
    calibration.collectives = std::move(collectives);
    calibration.ops = std::move(memory);
    calibration.matmuls = std::move(matmuls);
    machine.left_out = left_out_;
    machine.restored = restored_;
    machine.cluster = cluster_of(calibration);
    return machine;
  }

 private:
  static constexpr std::int64_t kLeast = Sampling::kLeast;

  bool quick() const { return request_.size == SweepSize::quick; }
  std::string settings(const Calibration& calibration) const {
    return fmt::format("{} threads={} device={} precision={} size={}", request_.backend, cores_,
                       calibration.device, to_text(request_.precision), quick() ? "quick" : "full");
  }
  Sampling sampling() const { return {kLeast, Seconds(quick() ? 20e-6 : 200e-6)}; }

  // Returns whether a point is measured whatever the clock says, so that each part has some.
  static bool is_essential(const CollectivePoint& point) {
    return point.kind == OpKind::send || point.payload == Bytes(1 << 14);
  }
  static bool is_essential(const OpPoint& point) { return is_essential_on_core(point); }

  void time(CollectivePoint& point) const {
    const bool often = point.payload <= Bytes(1 << 20) && !quick();
    point = measure_collective(point.kind, point.ranks, point.payload, kCoreFootprint,
                               often ? 4 * kLeast : kLeast);
  }
  void time(OpPoint& point, CoreBench& bench) const {
    const BenchCase bench_case = memory_case(point.kind, point.moved, point.row, point.dtype);
    point.moved = bytes_moved(bench_case.op, bench_case.tensors);
    point.row = bench_case.row;
    point.dtype = compute_dtype(bench_case.op, bench_case.tensors);
    point.time = bench.measure(bench_case, sampling());
  }
  void time(MatmulPoint& point, CoreBench& bench) const {
    point.time = bench.measure(matmul_case(point.shape, point), sampling());
  }

  /// Kinds of a fixed size, or with few large rows, come out of the sweep at equal sizes.
  static void drop_repeated(std::vector<OpPoint>& points) {
    const auto same = [](const OpPoint& a, const OpPoint& b) {
      return a.kind == b.kind && a.dtype == b.dtype && a.moved == b.moved && a.row == b.row;
    };
    points.erase(std::unique(points.begin(), points.end(), same), points.end());
  }

  template <class Point>
  std::vector<double> weights_of(const std::vector<Point>& points) const {
    if (!request_.workload) return std::vector<double>(points.size(), 1);
    return weights(*request_.workload, std::span<const Point>(points));
  }

  /// Orders points by spreading them over the range. With a workload, points that stand for it come
  /// first, by how much of it.
  template <class Point>
  std::vector<std::size_t> order_of(const std::vector<Point>& points) const {
    std::vector<std::size_t> order = spread_order(points.size());
    const std::vector<double> weight = weights_of(points);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
    return order;
  }

  /// Measures points in that order until `end` of the budget has passed; the others are dropped,
  /// except that `essential` points are measured whatever the clock says.
  template <class Point, class Essential, class Measure>
  void measure_part(std::vector<Point>& points, double end, Essential essential, Measure measure) {
    std::vector<Point> measured;
    std::vector<bool> done(points.size());
    for (std::size_t i : order_of(points)) {
      const std::string key = test_key(points[i]);
      const bool restored = journal_->restore(key, points[i]);
      restored_ += restored;
      done[i] = restored || elapsed() <= request_.budget * end || essential(points[i]);
      if (!done[i]) ++left_out_;
      if (done[i] && !restored) {
        measure(points[i]);
        journal_->keep(key, points[i]);
      }
      progress(done[i] ? name_of(points[i]) : "left out");
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (done[i]) measured.push_back(points[i]);
    }
    total_ -= points.size() - measured.size();
    points = std::move(measured);
  }

  /// The second pass, until `end` of the budget: first the points that were most probably
  /// disturbed.
  template <class Point, class Measure>
  void measure_again(std::vector<Point>& points, const LeftOutErrors& errors, double end,
                     Measure measure) {
    const auto doubt = [&](std::size_t i) {
      const Sample& time = points[i].time;
      return std::max(errors[i].value_or(0), time.unsteady ? time.spread / time.median : 0);
    };
    std::vector<std::size_t> order = order_of(points);
    const std::vector<double> weight = weights_of(points);
    std::vector<double> doubts;
    for (std::size_t i = 0; i < points.size(); ++i) {
      doubts.push_back(std::max(kNoDoubt, doubt(i)) * std::max(kLeastWeight, weight[i]));
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return doubts[a] > doubts[b]; });
    for (std::size_t i : order) {
      const std::string key = "again " + test_key(points[i]);
      Point again = points[i];
      bool measured = journal_->restore(key, again);
      if (!measured && elapsed() <= request_.budget * end) {
        measure(again);
        journal_->keep(key, again);
        measured = true;
      }
      if (measured && again.time.median < points[i].time.median) points[i] = again;
      progress(name_of(points[i]));
    }
  }

  static std::string_view name_of(const MatmulPoint&) { return to_text(OpKind::matmul); }
  template <class Point>
  static std::string_view name_of(const Point& point) {
    return to_text(point.kind);
  }

  Cluster cluster_of(const Calibration& calibration) const;

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }
  /// Ends a point. One that was measured is in the journal by then.
  void progress(std::string_view what) {
    ++done_;
    if (request_.progress) request_.progress(std::string(what), done_, total_);
    if (request_.stop && request_.stop()) throw CalibrationStopped();
  }

  const CalibrationRequest& request_;
  Clock::time_point start_;
  std::int64_t cores_;
  PointJournal* journal_ = nullptr;
  std::size_t done_ = 0, total_ = 0, left_out_ = 0, restored_ = 0;
};

Cluster Session::cluster_of(const Calibration& calibration) const {
  Cluster cluster;
  cluster.name = fmt::format("{} x {}", calibration.device, cores_);
  cluster.nodes = 1;
  cluster.devices_per_node = cores_;
  cluster.device =
      measured_device(calibration, request_.precision, Bytes(memory_of_machine().count() / cores_));
  SendRange sends;
  for (const CollectivePoint& point : calibration.collectives) {
    if (point.kind != OpKind::send) continue;
    if (sends.smallest.ranks == 0 || point.payload < sends.smallest.payload) sends.smallest = point;
    if (point.payload > sends.largest.payload) sends.largest = point;
  }
  INVARIANT(sends.largest.payload > Bytes(0), "every part of a calibration measures something");
  cluster.levels = {measured_level("shared memory", 0, sends)};
  cluster.source = fmt::format(
      "measured on {} by planner calibrate, {} cores busy: peaks are the best matmul rates, "
      "memory bandwidth that of an add of {}, the level a send between two ranks of {} "
      "(bandwidth) and {} (latency); memory is the machine's divided by its cores",
      calibration.date, cores_, to_text(largest_add(calibration.ops).moved),
      to_text(sends.largest.payload), to_text(sends.smallest.payload));
  return cluster;
}

}  // namespace

MachineCalibration calibrate(const CalibrationRequest& request) { return Session(request).run(); }

}  // namespace plimsoll
