// Processes work through the schedule together: process 0 chooses what is next. A calibration of
// one machine has one process.
#include "calibrate/sessions/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "calibrate/describe/device_description.h"
#include "calibrate/describe/machine.h"
#include "calibrate/measure/collectives.h"
#include "calibrate/measure/core_bench.h"
#include "calibrate/measure/device_bench.h"
#include "calibrate/measure/dispatch.h"
#include "calibrate/measure/group_bench.h"
#include "calibrate/measure/statistics.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/schedule.h"
#include "calibrate/schedule/test_order.h"
#include "calibrate/sessions/check_devices.h"
#include "calibrate/sessions/contributions.h"
#include "calibrate/sessions/journal.h"
#include "graph/op_table.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace plimsoll {
namespace {

/// This process alone, as the only rank: it measures its machine and has nobody to meet.
class OneProcess final : public Processes {
 public:
  std::string_view name() const override { return "threads"; }
  std::string version() const override { return "threads"; }
  std::int64_t index() const override { return 0; }
  std::int64_t size() const override { return 1; }
  std::chrono::steady_clock::time_point epoch() const override { return epoch_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  std::unique_ptr<Communicator> make_communicator(std::span<const Program> programs,
                                                  std::chrono::milliseconds deadline,
                                                  RankDevice*) override {
    return std::move(make_local_communicators(programs[0].grid, deadline, epoch_).front());
  }
  void barrier(std::chrono::milliseconds) override {}
  void begin_any(bool own) override { own_ = own; }
  bool end_any(std::chrono::milliseconds) override { return own_; }
  std::vector<std::string> gather(const std::string& bytes, std::chrono::milliseconds) override {
    return {bytes};
  }
  std::string broadcast(const std::string& bytes, std::chrono::milliseconds) override {
    return bytes;
  }
  std::unique_ptr<Processes> first(std::int64_t) override { return std::make_unique<OneProcess>(); }
  RankStatusBoard* status_board() override { return nullptr; }

 private:
  const std::chrono::steady_clock::time_point epoch_ = std::chrono::steady_clock::now();
  const std::vector<std::string> hosts_ = {"localhost"};
  bool own_ = false;
};

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLeast = Sampling::kLeast;

/// Times that one communication is measured anew until its median is known well enough.
constexpr int kMostRounds = 4;

/// A Session measures tests and keeps their results on process 0.
class Session {
 public:
  Session(const CalibrationRequest& request, Processes& processes, const DeviceOfRank* device)
      : request_(request),
        processes_(processes),
        shape_(shape_of(processes)),
        device_(device),
        groups_(processes, shape_, footprint(), request_.deadline,
                device == nullptr ? nullptr : device->backend.device()) {
    if (device_ == nullptr) {
      describe_machine(calibration_, request.backend);
      // A machine's cores are ranks, which threads of this process stand for.
      if (is_alone()) shape_.ranks_per_node = available_cores();
      bench_ = std::make_unique<CoreBench>(request.backend, is_alone() ? shape_.ranks_per_node : 1,
                                           kCoreFootprint);
    } else {
      check_devices(processes, device_->facts, request_.deadline);
      describe_machine(calibration_, device_->facts, device_->backend);
      bench_ = std::make_unique<DeviceBench>(device_->backend, footprint());
    }
  }

  MachineCalibration run() {
    std::vector<CalibrationTest> tests =
        schedule(shape_, request_.size, request_.precision,
                 device_ != nullptr ? CommunicatorKind::nccl : communicator());
    if (is_alone() && request_.workload) tests = with_shapes(*request_.workload, std::move(tests));
    TestOrder order(tests, request_.budget,
                    request_.workload ? weights(*request_.workload, tests) : std::vector<double>());
    tests_ = &tests;
    points_.resize(tests.size());
    if (device_ != nullptr) connect_devices(tests);
    if (is_first_process()) open_journal(tests, order);
    trusted_ = points_;
    if (device_ != nullptr) {
      measure_attention();
    } else {
      sharing_ = measure_core_sharing(processes_, *bench_, reference(),
                                      Seconds(quick() ? 0.1 : 0.5), request_.deadline);
    }
    std::size_t done = restored_;
    for (std::string word; (word = agreed(order)) != kOver;) {
      if (word == kReference) {
        measure_reference(order);
        continue;
      }
      const std::size_t i = std::stoull(word);
      const Seconds began = elapsed();
      bool unsteady = false;
      std::visit([&](const auto& subject) { unsteady = measure(i, subject); }, tests[i].subject);
      if (!is_first_process()) continue;
      const Seconds took = elapsed() - began;
      order.measured(i, unsteady, time_of(i), took);
      drift_.tested(i);
      if (journal_) {
        journal_->add(
            {tests[i].key, as_calibration(points_[i], calibration_.date), unsteady, took});
      }
      if (request_.progress && ++done <= tests.size()) {
        request_.progress(tests[i].key, done, tests.size());
      }
    }
    if (!is_first_process()) return {};
    MachineCalibration machine = collected();
    machine.left_out = order.left_out();
    machine.restored = restored_;
    machine.outliers = outliers_.named();
    if (const std::string drift = drift_.summary(); !drift.empty()) {
      machine.outliers.push_back(drift);
    }
    return machine;
  }

 private:
  bool is_first_process() const { return processes_.index() == 0; }
  bool is_alone() const { return processes_.size() == 1; }
  CommunicatorKind communicator() const {
    if (is_alone()) return CommunicatorKind::local;
    return device_ == nullptr ? CommunicatorKind::mpi : CommunicatorKind::nccl;
  }
  Bytes footprint() const {
    return device_ == nullptr ? kCoreFootprint : device_footprint(request_.size);
  }
  Sampling sampling() const {
    if (quick()) return {kLeast, Seconds(20e-6)};
    return {kLeast, Seconds(device_ == nullptr ? 200e-6 : 2e-3)};
  }
  bool quick() const { return request_.size == SweepSize::quick; }
  std::int64_t samples_of(Bytes payload) const {
    return payload <= Bytes(1 << 20) && !quick() ? 4 * kLeast : kLeast;
  }

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }

  /// Takes over the tests that an earlier run over the same cluster shape has finished.
  void open_journal(const std::vector<CalibrationTest>& tests, TestOrder& order) {
    if (request_.journal.empty()) return;
    const std::string library = groups_.library();
    const std::string settings =
        fmt::format("{} {}{} nodes={} ranks_per_node={} device={} precision={} size={}",
                    request_.backend, processes_.version(), library.empty() ? "" : ", " + library,
                    shape_.nodes, shape_.ranks_per_node, calibration_.device,
                    to_text(request_.precision), quick() ? "quick" : "full");
    journal_.emplace(request_.journal, settings, request_.resume);
    for (const JournalEntry& entry : journal_->finished()) {
      const auto test = std::find_if(tests.begin(), tests.end(), [&](const CalibrationTest& one) {
        return one.key == entry.test;
      });
      TestResult result = result_in(entry.measured);
      if (test == tests.end() || std::holds_alternative<std::monostate>(result)) continue;
      const auto i = std::size_t(test - tests.begin());
      restored_ += std::holds_alternative<std::monostate>(points_[i]);
      points_[i] = std::move(result);
      order.restored(i, entry.unsteady, time_of(i));
    }
  }

  std::optional<Seconds> time_of(std::size_t i) const {
    const auto* point = std::get_if<CollectivePoint>(&points_[i]);
    return point == nullptr ? std::nullopt : std::optional(point->time.median);
  }

  // Codes for what is next, besides the number of a test.
  static constexpr const char* kOver = "-";
  static constexpr const char* kReference = "reference";

  /// Returns on all processes the word of process 0 about the next test.
  std::string agreed(TestOrder& order) {
    if (request_.stop && processes_.any(request_.stop(), request_.deadline))
      throw CalibrationStopped();
    std::string word;
    if (is_first_process()) {
      const auto next = order.next(elapsed());
      const bool look = next ? drift_.due(elapsed()) : drift_.pending();
      word = look ? kReference : next ? std::to_string(*next) : kOver;
    }
    return processes_.broadcast(word, request_.deadline);
  }

  /// Times a matmul between the tests: that of the median rank, at its fastest.
  void measure_reference(TestOrder& order) {
    processes_.barrier(request_.deadline);
    const std::vector<Seconds> runs = times_of(bench_->repeated(reference())->run(16, Seconds(0)));
    const Sample own{*std::min_element(runs.begin(), runs.end()), Seconds(0), kLeast, false};
    const std::vector<Contribution> all = contributions(own);
    if (!is_first_process()) return;
    const std::vector<std::size_t> slow = drift_.check_reference(merged(all).median, elapsed());
    if (slow.empty()) {
      trusted_ = points_;
    } else {
      discard(slow, order);
    }
  }

  /// Results of these tests since the last reference are dropped; earlier ones stay.
  void discard(const std::vector<std::size_t>& tests, TestOrder& order) {
    std::vector<std::string> keys;
    for (std::size_t i : tests) keys.push_back((*tests_)[i].key);
    if (journal_) journal_->discard(keys);
    for (std::size_t i : tests) {
      points_[i] = trusted_[i];
      order.forget(i);
      if (std::holds_alternative<std::monostate>(points_[i])) continue;
      order.restored(i, false, time_of(i));
      if (journal_) {
        journal_->add({(*tests_)[i].key, as_calibration(points_[i], calibration_.date), false, {}});
      }
    }
  }

  std::string name_of(std::int64_t rank) const {
    return fmt::format("rank {} on {}", rank, processes_.hosts()[std::size_t(rank)]);
  }

  /// The measurements of one op by every rank, on process 0.
  std::vector<Contribution> contributions(const Sample& own) {
    const std::array<double, 3> values = {own.median.value(), own.spread.value(),
                                          double(own.samples)};
    std::string bytes(sizeof(values), '\0');
    std::memcpy(bytes.data(), values.data(), sizeof(values));
    std::vector<Contribution> all;
    for (const std::string& theirs : processes_.gather(bytes, request_.deadline)) {
      std::array<double, 3> of_rank{};
      std::memcpy(of_rank.data(), theirs.data(), sizeof(of_rank));
      Sample sample{Seconds(of_rank[0]), Seconds(of_rank[1]), std::int64_t(of_rank[2]), false};
      all.push_back({name_of(std::int64_t(all.size())), sample});
    }
    return all;
  }
  std::optional<Sample> merge(const std::vector<Contribution>& all) {
    if (!is_first_process()) return std::nullopt;
    outliers_.add_test(all);
    return merged(all);
  }

  /// Keeps the faster of two measurements of a test. Returns whether it is unsteady.
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
    const std::int64_t samples = quick() ? kLeast : 25;
    const DispatchCost own = measure_dispatch(samples);
    const auto op = merge(contributions(own.op));
    const auto call = merge(contributions(own.call));
    if (!is_first_process()) return false;
    DispatchCost cost{*op, *call, {}};
    // A rank of MPI that polls sees by itself when a communication is over, so waking up takes no
    // time.
    if (communicator() == CommunicatorKind::mpi) cost.wake_up.samples = kLeast;
    if (is_alone() && device_ == nullptr) cost.wake_up = measure_wake_up(samples);
    points_[i] = cost;
    return false;
  }

  bool measure(std::size_t i, const CommunicatorMemoryTest& test) {
    std::vector<double> bytes;
    for (Bytes grown : groups_.measure_memory(test.shape)) bytes.push_back(double(grown.count()));
    if (!is_first_process()) return false;
    CommunicatorMemory memory;
    memory.communicator = communicator();
    memory.ranks = test.shape.ranks;
    memory.held = Bytes(std::int64_t(quantile(bytes, 0.5)));
    points_[i] = memory;
    return false;
  }

  /// Measures a communication until the median of the median group is known well enough.
  bool measure(std::size_t i, const CollectivePoint& point) {
    if (is_alone()) {
      const CollectivePoint own = measure_collective(point.kind, point.ranks, point.payload,
                                                     footprint(), samples_of(point.payload));
      return keep(i, own, own.time);
    }
    std::vector<GroupTimings> groups;
    for (int round = 0; round < (quick() ? 1 : kMostRounds); ++round) {
      std::vector<GroupTimings> more = groups_.measure(point, samples_of(point.payload));
      for (std::size_t g = 0; g < more.size(); ++g) {
        if (groups.size() < more.size()) groups.push_back({more[g].ranks, {}});
        auto& timings = groups[g].timings;
        timings.insert(timings.end(), more[g].timings.begin(), more[g].timings.end());
      }
      std::string word;
      if (is_first_process()) word = is_known(groups) ? "known" : "again";
      if (quick() || processes_.broadcast(word, request_.deadline) == "known") break;
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
    const auto work = bench_->repeated(
        test.compute == OpKind::matmul ? reference() : memory_reference(test.compute));
    OverlapTimings timings = groups_.measure_overlap(test.communication, *work, kLeast);
    if (!is_first_process() || timings.compute_slowdowns.empty()) return false;
    const auto width = [](const std::vector<double>& values) {
      return quantile(values, 0.75) - quantile(values, 0.25);
    };
    OverlapPoint point;
    point.compute = test.compute;
    point.communication = test.communication.kind;
    point.communicator = communicator();
    point.nodes = test.communication.nodes;
    point.payload = test.communication.payload;
    point.compute_slowdown = std::clamp(quantile(timings.compute_slowdowns, 0.5), 0.1, 1000.0);
    point.compute_spread = std::min(width(timings.compute_slowdowns), 1000.0);
    point.communication_slowdown =
        std::clamp(quantile(timings.communication_slowdowns, 0.5), 0.1, 1000.0);
    point.communication_spread = std::min(width(timings.communication_slowdowns), 1000.0);
    point.samples = std::int64_t(timings.communication_slowdowns.size());
    // The second measurement counts. Disturbances only increase times, but they may also decrease
    // ratios.
    points_[i] = point;
    return point.communication_spread > kUnsteady * point.communication_slowdown;
  }

  bool measure(std::size_t i, OpPoint point) {
    const BenchCase bench_case = memory_case(point.kind, point.moved, point.row, point.dtype);
    if (!bench_->supports(bench_case)) return false;
    point.moved = bytes_moved(bench_case.op, bench_case.tensors);
    point.row = bench_case.row;
    point.dtype = compute_dtype(bench_case.op, bench_case.tensors);
    return keep(i, point, measure_op(bench_case));
  }
  bool measure(std::size_t i, const MatmulPoint& point) {
    return keep(i, point, measure_op(matmul_case(point.shape, point)));
  }
  std::optional<Sample> measure_op(const BenchCase& bench_case) {
    processes_.barrier(request_.deadline);
    return merge(contributions(bench_->measure(bench_case, sampling())));
  }
  bool measure(std::size_t i, const LaunchTest&) {
    const auto time = merge(contributions(on_device().measure_launch(quick() ? kLeast : 15)));
    if (is_first_process()) points_[i] = LaunchCost{*time};
    return false;
  }
  bool measure(std::size_t i, const CopyPoint& point) {
    processes_.barrier(request_.deadline);
    const Sample own = on_device().measure_copy(point.direction, point.size, kLeast);
    return keep(i, point, merge(contributions(own)));
  }
  DeviceBench& on_device() { return static_cast<DeviceBench&>(*bench_); }

  /// The work that is timed between the tests, and runs beside communications: matmuls and adds
  /// whose operands are those of a small layer.
  BenchCase reference() const {
    if (device_ == nullptr) return matmul_case({1, 256, 256, 256}, {});
    MatmulPoint form;
    form.dtype = request_.precision;
    return matmul_case(quick() ? MatmulShape{1, 32, 32, 32} : MatmulShape{1, 4096, 1024, 1024},
                       form);
  }
  BenchCase memory_reference(OpKind kind) const {
    const std::int64_t kib = device_ == nullptr ? 1 << 10 : quick() ? 16 : 64 << 10;
    return memory_case(kind, Bytes(kib << 10), 0, DType::f32);
  }

  /// NCCL is refused before anything takes long, and a journal is of its version.
  void connect_devices(const std::vector<CalibrationTest>& tests) {
    const auto first = std::ranges::find_if(tests, [](const CalibrationTest& test) {
      return std::holds_alternative<CollectivePoint>(test.subject);
    });
    if (first == tests.end()) return;
    groups_.connect(std::get<CollectivePoint>(first->subject));
    if (const std::string library = groups_.library(); !library.empty())
      calibration_.versions.push_back(library);
  }
  /// Flash attention, of which the cluster file tells.
  void measure_attention() {
    for (AttentionTest& test : attention_tests(request_.size, request_.precision)) {
      if (!bench_->supports(test.bench_case)) break;
      const auto sample = measure_op(test.bench_case);
      if (!is_first_process()) continue;
      test.timing.time = sample->median;
      attention_.push_back(test.timing);
    }
  }

  /// All that was measured.
  MachineCalibration collected() {
    Calibration& calibration = calibration_;
    if (!is_alone()) calibration.versions.push_back(processes_.version());
    calibration.communicator = communicator();
    if (device_ == nullptr) calibration.busy_cores = shape_.ranks_per_node;
    for (const TestResult& result : points_) add_result(calibration, result);
    if (is_alone() && device_ == nullptr)
      calibration.sleeps_after = Seconds(std::chrono::duration<double>(kPollsBeforeSleep).count());
    apply(sharing_, calibration);
    put_in_order(calibration);
    MachineCalibration machine;
    machine.calibration = std::move(calibration);
    machine.cluster = measured_cluster(machine.calibration, shape_,
                                       device_ == nullptr ? nullptr : &device_->facts,
                                       request_.precision, attention_);
    return machine;
  }

  const CalibrationRequest& request_;
  Processes& processes_;
  ClusterShape shape_;
  const DeviceOfRank* device_;        ///< null: ranks are cores
  std::unique_ptr<RankBench> bench_;  ///< outlives groups_, which end what a device is stuck in
  GroupBench groups_;
  std::vector<AttentionTiming> attention_;  ///< on process 0
  Outliers outliers_;
  Calibration calibration_;
  const std::vector<CalibrationTest>* tests_ = nullptr;
  std::vector<TestResult> points_;   ///< by test
  std::vector<TestResult> trusted_;  ///< those at the last reference that was as before
  std::optional<Journal> journal_;
  std::size_t restored_ = 0;
  CoreSharing sharing_;
  ReferenceDrift drift_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

MachineCalibration calibrate(const CalibrationRequest& request, Processes* processes,
                             const DeviceOfRank* device) {
  if (processes == nullptr) {
    OneProcess alone;
    return Session(request, alone, device).run();
  }
  if (processes->size() < 2) throw UsageError("calibrating a cluster takes at least two processes");
  constexpr int kDeadlines = 10;  // until all are ready
  processes->barrier(kDeadlines * request.deadline);
  processes->are_ready();
  return Session(request, *processes, device).run();
}

}  // namespace plimsoll
