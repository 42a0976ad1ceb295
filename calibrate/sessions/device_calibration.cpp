// A session measures the points of an accelerator's sweep until its budget is spent.
#include "calibrate/sessions/device_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "calibrate/describe/device_description.h"
#include "calibrate/describe/machine.h"
#include "calibrate/measure/device_bench.h"
#include "calibrate/measure/dispatch.h"
#include "calibrate/schedule/schedule.h"
#include "calibrate/schedule/sweep.h"
#include "calibrate/sessions/journal.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

class DeviceSession {
 public:
  DeviceSession(const CalibrationRequest& request, Backend& backend, DeviceFacts facts)
      : request_(request), backend_(backend), facts_(std::move(facts)), start_(Clock::now()) {}

  MachineCalibration run() {
    backend_.enter_thread();
    Calibration& calibration = machine_.calibration;
    describe_machine(calibration, facts_, backend_);
    PointJournal journal(request_.journal, settings(calibration), request_.resume,
                         calibration.date);
    journal_ = &journal;
    const DispatchCost dispatch = measure_dispatch(quick() ? Sampling::kLeast : 25);
    calibration.dispatch_op = dispatch.op;
    calibration.dispatch_call = dispatch.call;

    DeviceBench bench(backend_, device_footprint(request_.size));
    auto matmuls = device_matmul_sweep(request_.size, request_.precision);
    auto memory = device_memory_sweep(request_.size, request_.precision);
    total_ = matmuls.size() + memory.size() + 3;
    measure_attention(bench);
    measure_host(bench);
    calibration.ops = measured(memory, 0.5, [&](OpPoint& point) { return time(point, bench); });
    drop_repeated(calibration.ops);
    calibration.matmuls =
        measured(matmuls, 1.0, [&](MatmulPoint& point) { return time(point, bench); });
    machine_.restored = journal.restored();
    describe_cluster();
    return std::move(machine_);
  }

 private:
  bool quick() const { return request_.size == SweepSize::quick; }
  std::string settings(const Calibration& calibration) const {
    return fmt::format("{} device={} precision={} size={}", calibration.backend, calibration.device,
                       to_text(request_.precision), quick() ? "quick" : "full");
  }
  Sampling sampling() const { return {Sampling::kLeast, Seconds(quick() ? 20e-6 : 2e-3)}; }
  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }
  /// Ends a point. One that was measured is in the journal by then.
  void progress(std::string_view what) {
    ++done_;
    if (request_.progress) request_.progress(std::string(what), done_, std::max(done_, total_));
    if (request_.stop && request_.stop()) throw CalibrationStopped();
  }

  /// False: there is no kernel for it.
  bool time(OpPoint& point, DeviceBench& bench) {
    const BenchCase bench_case = memory_case(point.kind, point.moved, point.row, point.dtype);
    progress(to_text(point.kind));
    if (!bench.supports(bench_case)) return false;
    point.moved = bytes_moved(bench_case.op, bench_case.tensors);
    point.row = bench_case.row;
    point.dtype = compute_dtype(bench_case.op, bench_case.tensors);
    point.time = bench.measure(bench_case, sampling());
    return true;
  }
  bool time(MatmulPoint& point, DeviceBench& bench) {
    progress(to_text(OpKind::matmul));
    point.time = bench.measure(matmul_case(point.shape, point), sampling());
    return true;
  }

  /// In an order spread over the sweep until `end` of the budget; the first and the last whatever
  /// the clock says.
  template <class Point, class Time>
  std::vector<Point> measured(std::vector<Point>& points, double end, Time time) {
    std::vector<bool> done(points.size());
    for (std::size_t i : spread_order(points.size())) {
      const bool essential = i == 0 || i + 1 == points.size() || is_essential_on_device(points[i]);
      const std::string key = test_key(points[i]);
      if (journal_->restore(key, points[i])) {
        done[i] = true;
        progress("taken over");
      } else if (elapsed() <= request_.budget * end || essential) {
        done[i] = time(points[i]);
        if (done[i]) journal_->keep(key, points[i]);
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
  static void drop_repeated(std::vector<OpPoint>& points) {
    const auto same = [](const OpPoint& a, const OpPoint& b) {
      return a.kind == b.kind && a.dtype == b.dtype && a.moved == b.moved && a.row == b.row;
    };
    points.erase(std::unique(points.begin(), points.end(), same), points.end());
  }

  void measure_host(DeviceBench& bench) {
    Calibration& calibration = machine_.calibration;
    calibration.launch = bench.measure_launch(quick() ? Sampling::kLeast : 15);
    progress("launch");
    for (CopyPoint point : copy_sweep(request_.size)) {
      point.time = bench.measure_copy(point.direction, point.size, Sampling::kLeast);
      calibration.copies.push_back(point);
    }
    progress("copies");
  }

  void measure_attention(DeviceBench& bench) {
    for (AttentionTest& test : attention_tests(request_.size, request_.precision)) {
      if (!bench.supports(test.bench_case)) return;
      test.timing.time = bench.measure(test.bench_case, sampling()).median;
      attention_.push_back(test.timing);
    }
    progress("attention");
  }

  void describe_cluster() {
    Cluster& cluster = machine_.cluster;
    cluster.name = facts_.name;
    cluster.nodes = 1;
    cluster.devices_per_node = 1;
    const std::string of_device =
        describe_device(cluster, machine_.calibration, facts_, request_.precision, attention_);
    cluster.source = fmt::format("measured on {} by planner calibrate; {}",
                                 machine_.calibration.date, of_device);
  }

  const CalibrationRequest& request_;
  Backend& backend_;
  DeviceFacts facts_;
  Clock::time_point start_;
  MachineCalibration machine_;
  PointJournal* journal_ = nullptr;
  std::vector<AttentionTiming> attention_;
  std::size_t done_ = 0, total_ = 0;
};

/// Why these devices cannot be calibrated together; empty: they can. By rank: name, line feed, bus.
std::string refuse_devices(const std::vector<std::string>& hosts,
                           const std::vector<std::string>& devices) {
  std::map<std::pair<std::string, std::string>, std::size_t> used;  // host and bus: by whom
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const std::size_t end = devices[rank].find('\n');
    const std::string name = devices[rank].substr(0, end), bus = devices[rank].substr(end + 1);
    const std::string first = devices[0].substr(0, devices[0].find('\n'));
    if (name != first) {
      return fmt::format(
          "process 0 on {} has a device {}, process {} on {} a device {}: a "
          "calibration is of one kind of device",
          hosts[0], first, rank, hosts[rank], name);
    }
    const auto [known, is_new] = used.try_emplace({hosts[rank], bus}, rank);
    if (!is_new) {
      return fmt::format(
          "processes {} and {} on {} would share the device at {}: every process "
          "needs a separate one; start as many per host as it has",
          known->second, rank, hosts[rank], bus);
    }
  }
  return {};
}

}  // namespace

MachineCalibration calibrate_device(const CalibrationRequest& request, Backend& backend,
                                    const DeviceFacts& facts) {
  if (backend.device() == nullptr) {
    throw UsageError(fmt::format("backend {} has no separate device", backend.name()));
  }
  return DeviceSession(request, backend, facts).run();
}

void check_devices(Processes& processes, const DeviceFacts& own,
                   std::chrono::milliseconds deadline) {
  const auto all = processes.gather(own.name + "\n" + own.bus, deadline);
  std::string why;
  if (processes.index() == 0) why = refuse_devices(processes.hosts(), all);
  why = processes.broadcast(why, deadline);
  if (!why.empty()) throw UsageError(why);
}

}  // namespace plimsoll
