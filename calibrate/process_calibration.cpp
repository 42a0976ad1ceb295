// A cluster's processes work through the schedule together: process 0 says what is next.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "calibrate/calibrate.h"
#include "calibrate/choice.h"
#include "calibrate/contributions.h"
#include "calibrate/crew.h"
#include "calibrate/dispatch.h"
#include "calibrate/group_bench.h"
#include "calibrate/journal.h"
#include "calibrate/machine.h"
#include "calibrate/op_bench.h"
#include "calibrate/schedule.h"
#include "calibrate/statistics.h"
#include "graph/op_table.h"
#include "runtime/communicator.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// More than the caches of a core hold, so that rotated operands come from memory.
constexpr Bytes kFootprint{std::int64_t{32} << 20};
constexpr std::chrono::milliseconds kDeadline{120'000};
constexpr std::int64_t kLeast = Effort::kLeast;

/// Times that one communication is measured anew until its median is known well enough.
constexpr int kMostRounds = 4;

/// What one test found.
using Found = std::variant<std::monostate, CollectivePoint, OverlapPoint, OpPoint, MatmulPoint,
                           CommunicatorMemory, DispatchCost>;

Calibration as_calibration(const Found& found, const std::string& date) {
  Calibration only;
  only.date = date;
  std::visit(
      [&](const auto& one) {
        using Point = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Point, CollectivePoint>) only.collectives = {one};
        if constexpr (std::is_same_v<Point, OverlapPoint>) only.overlaps = {one};
        if constexpr (std::is_same_v<Point, OpPoint>) only.ops = {one};
        if constexpr (std::is_same_v<Point, MatmulPoint>) only.matmuls = {one};
        if constexpr (std::is_same_v<Point, CommunicatorMemory>) only.communicator_memory = {one};
        if constexpr (std::is_same_v<Point, DispatchCost>) {
          only.dispatch_op = one.op;
          only.dispatch_call = one.call;
        }
      },
      found);
  return only;
}

Found found_in(const Calibration& only) {
  if (!only.collectives.empty()) return only.collectives.front();
  if (!only.overlaps.empty()) return only.overlaps.front();
  if (!only.ops.empty()) return only.ops.front();
  if (!only.matmuls.empty()) return only.matmuls.front();
  if (!only.communicator_memory.empty()) return only.communicator_memory.front();
  if (only.dispatch_op.samples > 0) return DispatchCost{only.dispatch_op, only.dispatch_call};
  return std::monostate();
}

/// Measures tests; what comes of them is kept on process 0.
class ProcessSession {
 public:
  ProcessSession(const CalibrationRequest& request, Processes& processes)
      : request_(request),
        processes_(processes),
        shape_(shape_of(processes)),
        groups_(processes, shape_, kFootprint, kDeadline),
        bench_(request.backend, 1, kFootprint) {
    if (shape_.nodes * shape_.ranks_per_node < 2) {
      throw UsageError("calibrating a cluster takes at least two processes");
    }
  }

  MachineCalibration run() {
    const std::vector<CalibrationTest> tests = schedule(shape_, request_.size, request_.precision);
    Choice choice(tests, request_.budget);
    points_.resize(tests.size());
    if (leads()) open_journal(tests, choice);
    std::size_t done = restored_;
    for (std::string word; (word = agreed(choice)) != kOver;) {
      if (word == kReference) {
        measure_reference(choice);
        continue;
      }
      const std::size_t i = std::stoull(word);
      const Seconds began = elapsed();
      bool unsteady = false;
      std::visit([&](const auto& subject) { unsteady = measure(i, subject); }, tests[i].subject);
      if (!leads()) continue;
      const Seconds took = elapsed() - began;
      choice.measured(i, unsteady, time_of(i), took);
      drift_.tested(i);
      if (journal_) {
        journal_->add(
            {tests[i].key, as_calibration(points_[i], calibration_.date), unsteady, took});
      }
      if (request_.progress && ++done <= tests.size()) {
        request_.progress(tests[i].key, done, tests.size());
      }
    }
    if (!leads()) return {};
    MachineCalibration machine = collected();
    machine.left_out = choice.left_out();
    machine.restored = restored_;
    machine.outliers = outliers_.named();
    if (const std::string drift = drift_.summary(); !drift.empty()) {
      machine.outliers.push_back(drift);
    }
    return machine;
  }

 private:
  bool leads() const { return processes_.index() == 0; }
  bool quick() const { return request_.size == SweepSize::quick; }
  std::int64_t samples_of(Bytes payload) const {
    return payload <= Bytes(1 << 20) && !quick() ? 4 * kLeast : kLeast;
  }

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }

  /// Takes over what an earlier run over the same cluster shape has finished.
  void open_journal(const std::vector<CalibrationTest>& tests, Choice& choice) {
    describe_machine(calibration_, request_.backend);
    if (request_.journal.empty()) return;
    const std::string settings =
        fmt::format("{} {} nodes={} ranks_per_node={} device={} precision={} size={}",
                    request_.backend, processes_.version(), shape_.nodes, shape_.ranks_per_node,
                    calibration_.device, to_text(request_.precision), quick() ? "quick" : "full");
    journal_.emplace(request_.journal, settings, request_.resume);
    for (const JournalEntry& entry : journal_->finished()) {
      const auto test = std::find_if(tests.begin(), tests.end(), [&](const CalibrationTest& one) {
        return one.key == entry.test;
      });
      Found found = found_in(entry.measured);
      if (test == tests.end() || std::holds_alternative<std::monostate>(found)) continue;
      const auto i = std::size_t(test - tests.begin());
      restored_ += std::holds_alternative<std::monostate>(points_[i]);
      points_[i] = std::move(found);
      choice.restored(i, entry.unsteady, time_of(i));
    }
  }

  std::optional<Seconds> time_of(std::size_t i) const {
    const auto* point = std::get_if<CollectivePoint>(&points_[i]);
    return point == nullptr ? std::nullopt : std::optional(point->time.median);
  }

  // What is next, besides the number of a test.
  static constexpr const char* kOver = "-";
  static constexpr const char* kReference = "reference";

  /// The same on all.
  std::string agreed(Choice& choice) {
    std::string word;
    if (leads()) {
      const auto next = choice.next(elapsed());
      word = !next ? kOver : drift_.due(elapsed()) ? kReference : std::to_string(*next);
    }
    return processes_.share(word, kDeadline);
  }

  /// A matmul that is timed between the tests: of the median rank, at its fastest.
  void measure_reference(Choice& choice) {
    processes_.meet(kDeadline);
    const TimedWork work = bench_.work(reference_);
    double fastest = work(0).value();
    for (std::int64_t run = 1; run < 16; ++run) fastest = std::min(fastest, work(run).value());
    const Sample own{Seconds(fastest), Seconds(0), kLeast, false};
    const std::vector<Contribution> all = contributions(own);
    if (!leads()) return;
    for (std::size_t i : drift_.look_at(merged(all).median, elapsed())) {
      points_[i] = std::monostate();
      choice.forget(i);
    }
  }

  std::string name_of(std::int64_t rank) const {
    return fmt::format("rank {} on {}", rank, processes_.hosts()[std::size_t(rank)]);
  }

  /// What every rank measured of the same op, on process 0.
  std::vector<Contribution> contributions(const Sample& own) {
    const std::array<double, 3> values = {own.median.value(), own.spread.value(),
                                          double(own.samples)};
    std::string bytes(sizeof(values), '\0');
    std::memcpy(bytes.data(), values.data(), sizeof(values));
    std::vector<Contribution> all;
    for (const std::string& theirs : processes_.gather(bytes, kDeadline)) {
      std::array<double, 3> of_rank{};
      std::memcpy(of_rank.data(), theirs.data(), sizeof(of_rank));
      Sample sample{Seconds(of_rank[0]), Seconds(of_rank[1]), std::int64_t(of_rank[2]), false};
      all.push_back({name_of(std::int64_t(all.size())), sample});
    }
    return all;
  }
  std::optional<Sample> merge(const std::vector<Contribution>& all) {
    if (!leads()) return std::nullopt;
    outliers_.look_at(all);
    return merged(all);
  }

  /// Keeps the faster of two measurements of a test; whether it is unsteady.
  template <class Point>
  bool keep(std::size_t test, Point point, const std::optional<Sample>& sample) {
    if (!sample) return false;
    point.time = *sample;
    auto& kept = points_[test];
    const auto* before = std::get_if<Point>(&kept);
    if (before == nullptr || point.time.median < before->time.median) kept = point;
    return std::get<Point>(kept).time.unsteady;
  }

  bool measure(std::size_t i, const DispatchTest&) {
    const DispatchCost own = measure_dispatch(quick() ? kLeast : 25);
    const auto op = merge(contributions(own.op));
    const auto call = merge(contributions(own.call));
    if (leads()) points_[i] = DispatchCost{*op, *call};
    return false;
  }

  bool measure(std::size_t i, const CommunicatorMemoryTest& test) {
    std::vector<double> bytes;
    for (Bytes grown : groups_.measure_memory(test.shape)) bytes.push_back(double(grown.count()));
    if (!leads()) return false;
    CommunicatorMemory memory;
    memory.ranks = test.shape.ranks;
    memory.held = Bytes(std::int64_t(quantile(bytes, 0.5)));
    points_[i] = memory;
    return false;
  }

  /// Until the median of the median group is known well enough.
  bool measure(std::size_t i, const CollectivePoint& point) {
    std::vector<GroupTimings> groups;
    for (int round = 0; round < (quick() ? 1 : kMostRounds); ++round) {
      std::vector<GroupTimings> more = groups_.measure(point, samples_of(point.payload));
      for (std::size_t g = 0; g < more.size(); ++g) {
        if (groups.size() < more.size()) groups.push_back({more[g].ranks, {}});
        auto& timings = groups[g].timings;
        timings.insert(timings.end(), more[g].timings.begin(), more[g].timings.end());
      }
      std::string word;
      if (leads()) word = is_known(groups) ? "known" : "again";
      if (quick() || processes_.share(word, kDeadline) == "known") break;
    }
    std::vector<Contribution> all;
    for (const GroupTimings& group : groups) {
      std::string who = "ranks";
      for (std::int64_t rank : {group.ranks.front(), group.ranks.back()}) {
        who += fmt::format(" {} on {}", rank, processes_.hosts()[std::size_t(rank)]);
      }
      all.push_back({std::move(who), summarize(group.timings)});
    }
    return keep(i, point, merge(all));
  }

  static bool is_known(const std::vector<GroupTimings>& groups) {
    std::vector<double> errors;
    for (const GroupTimings& group : groups) errors.push_back(median_error(group.timings));
    return quantile(errors, 0.5) <= kMedianKnown;
  }

  bool measure(std::size_t i, const OverlapTest& test) {
    const BenchCase bench_case =
        test.compute == OpKind::matmul
            ? matmul_case({1, 256, 256, 256}, {})
            : memory_case(test.compute, Bytes(std::int64_t{1} << 20), 0, DType::f32);
    OverlapTimings timings =
        groups_.measure_overlap(test.communication, bench_.work(bench_case), kLeast);
    if (!leads() || timings.compute_slowdowns.empty()) return false;
    const auto width = [](const std::vector<double>& values) {
      return quantile(values, 0.75) - quantile(values, 0.25);
    };
    OverlapPoint point;
    point.compute = test.compute;
    point.communication = test.communication.kind;
    point.nodes = test.communication.nodes;
    point.payload = test.communication.payload;
    point.compute_slowdown = std::clamp(quantile(timings.compute_slowdowns, 0.5), 0.1, 1000.0);
    point.compute_spread = std::min(width(timings.compute_slowdowns), 1000.0);
    point.communication_slowdown =
        std::clamp(quantile(timings.communication_slowdowns, 0.5), 0.1, 1000.0);
    point.communication_spread = std::min(width(timings.communication_slowdowns), 1000.0);
    point.samples = std::int64_t(timings.communication_slowdowns.size());
    // The second time counts: unlike times, ratios are not only ever increased by disturbances.
    points_[i] = point;
    return point.communication_spread > kUnsteady * point.communication_slowdown;
  }

  bool measure(std::size_t i, OpPoint point) {
    const BenchCase bench_case = memory_case(point.kind, point.moved, point.row, point.dtype);
    point.moved = bytes_moved(bench_case.op, bench_case.tensors);
    point.row = bench_case.row;
    point.dtype = compute_dtype(bench_case.op, bench_case.tensors);
    return keep(i, point, measure_op(bench_case));
  }
  bool measure(std::size_t i, const MatmulPoint& point) {
    return keep(i, point, measure_op(matmul_case(point.shape, point)));
  }
  std::optional<Sample> measure_op(const BenchCase& bench_case) {
    processes_.meet(kDeadline);
    return merge(
        contributions(bench_.measure(bench_case, {kLeast, Seconds(quick() ? 20e-6 : 200e-6)})));
  }

  /// All that was measured.
  MachineCalibration collected() {
    Calibration& calibration = calibration_;
    calibration.versions.push_back(processes_.version());
    calibration.communicator = CommunicatorKind::mpi;
    calibration.busy_cores = shape_.ranks_per_node;
    // A rank sees for itself that a communication is over: the end is when it sees it.
    calibration.wake_up = {Seconds(0), Seconds(0), kLeast, false};
    for (const auto& point : points_) {
      std::visit(
          [&](const auto& kept) {
            using Point = std::decay_t<decltype(kept)>;
            if constexpr (std::is_same_v<Point, CollectivePoint>) {
              calibration.collectives.push_back(kept);
            } else if constexpr (std::is_same_v<Point, OverlapPoint>) {
              calibration.overlaps.push_back(kept);
            } else if constexpr (std::is_same_v<Point, OpPoint>) {
              calibration.ops.push_back(kept);
            } else if constexpr (std::is_same_v<Point, MatmulPoint>) {
              calibration.matmuls.push_back(kept);
            } else if constexpr (std::is_same_v<Point, CommunicatorMemory>) {
              calibration.communicator_memory.push_back(kept);
            } else if constexpr (std::is_same_v<Point, DispatchCost>) {
              calibration.dispatch_op = kept.op;
              calibration.dispatch_call = kept.call;
            }
          },
          point);
    }
    put_in_order(calibration);
    MachineCalibration machine;
    machine.calibration = std::move(calibration);
    machine.cluster = cluster_of(machine.calibration);
    return machine;
  }

  /// Curves together, by size.
  static void put_in_order(Calibration& calibration) {
    std::stable_sort(calibration.collectives.begin(), calibration.collectives.end(),
                     [](const CollectivePoint& a, const CollectivePoint& b) {
                       return std::tuple(a.kind, a.nodes, a.ranks, a.groups_per_node, a.payload) <
                              std::tuple(b.kind, b.nodes, b.ranks, b.groups_per_node, b.payload);
                     });
    std::stable_sort(calibration.overlaps.begin(), calibration.overlaps.end(),
                     [](const OverlapPoint& a, const OverlapPoint& b) {
                       return std::tuple(a.compute, a.communication, a.nodes, a.payload) <
                              std::tuple(b.compute, b.communication, b.nodes, b.payload);
                     });
    const auto key = [](const OpPoint& point) {
      return std::tuple(point.kind, point.dtype, point.row, point.moved);
    };
    std::stable_sort(calibration.ops.begin(), calibration.ops.end(),
                     [&](const OpPoint& a, const OpPoint& b) { return key(a) < key(b); });
    // Kinds of a fixed size, or with few large rows, come out of the sweep at equal sizes.
    calibration.ops.erase(
        std::unique(calibration.ops.begin(), calibration.ops.end(),
                    [&](const OpPoint& a, const OpPoint& b) { return key(a) == key(b); }),
        calibration.ops.end());
  }

  /// Sends of one pair alone, over `nodes`.
  static SendRange sends_over(const Calibration& calibration, std::int64_t nodes) {
    SendRange sends;
    for (const CollectivePoint& point : calibration.collectives) {
      if (point.kind != OpKind::send || point.nodes != nodes || point.groups_per_node != 1)
        continue;
      if (sends.smallest.ranks == 0) sends.smallest = point;
      sends.largest = point;
    }
    INVARIANT(sends.largest.payload > Bytes(0), "every part of a calibration measures something");
    return sends;
  }

  Cluster cluster_of(const Calibration& calibration) const {
    Cluster cluster;
    cluster.name =
        fmt::format("{} x {} x {}", shape_.nodes, shape_.ranks_per_node, calibration.device);
    cluster.nodes = shape_.nodes;
    cluster.devices_per_node = shape_.ranks_per_node;
    cluster.device = measured_device(calibration, request_.precision,
                                     Bytes(memory_of_machine().count() / shape_.ranks_per_node));
    std::string levels;
    const auto add = [&](const char* name, std::int64_t devices, std::int64_t nodes) {
      const SendRange sends = sends_over(calibration, nodes);
      cluster.levels.push_back(measured_level(name, devices, sends));
      levels += fmt::format(", level {} a send of {} (bandwidth) and {} (latency)", name,
                            to_text(sends.largest.payload), to_text(sends.smallest.payload));
    };
    const bool several = shape_.nodes > 1;
    if (shape_.ranks_per_node > 1) add("node", several ? shape_.ranks_per_node : 0, 1);
    if (several) add("network", 0, 2);
    cluster.source = fmt::format(
        "measured on {} by planner calibrate over {}, {} processes on {} hosts: peaks are the best "
        "matmul rates, memory bandwidth that of an add of {}{}; memory is the first host's divided "
        "by its processes",
        calibration.date, processes_.name(), processes_.size(), shape_.nodes,
        to_text(largest_add(calibration.ops).moved), levels);
    return cluster;
  }

  const CalibrationRequest& request_;
  Processes& processes_;
  ClusterShape shape_;
  GroupBench groups_;
  OpBench bench_;
  Outliers outliers_;
  Calibration calibration_;
  std::vector<Found> points_;  ///< by test
  std::optional<Journal> journal_;
  std::size_t restored_ = 0;
  Drift drift_;
  const BenchCase reference_ = matmul_case({1, 256, 256, 256}, {});
  Clock::time_point start_ = Clock::now();
};

}  // namespace

MachineCalibration calibrate_processes(const CalibrationRequest& request, Processes& processes) {
  return ProcessSession(request, processes).run();
}

}  // namespace plimsoll
