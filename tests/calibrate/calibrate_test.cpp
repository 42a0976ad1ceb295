// A quick calibration of this machine: complete, plausible, and readable again.
#include "calibrate/sessions/calibrate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "calibrate/measure/collectives.h"
#include "calibrate/measure/core_bench.h"
#include "calibrate/measure/dispatch.h"
#include "calibrate/measure/timed_work.h"
#include "calibrate/schedule/bench_case.h"
#include "runtime/communicator.h"
#include "tests/no_room_for_threads.h"

namespace plimsoll {
namespace {

void expect_sample(const Sample& sample) {
  EXPECT_GT(sample.median.value(), 0);
  EXPECT_GE(sample.spread.value(), 0);
  EXPECT_GE(sample.samples, 7);
}

TEST(Calibrate, QuickRunMeasuresEverythingAndItsFilesReadBack) {
  CalibrationRequest request;
  request.size = SweepSize::quick;
  request.budget = Seconds(1000);  // a slow machine leaves nothing out
  std::size_t calls = 0;
  request.progress = [&](const std::string&, std::size_t done, std::size_t of) {
    EXPECT_EQ(done, ++calls);
    EXPECT_LE(done, of);
  };
  const MachineCalibration machine = calibrate(request);
  const Calibration& calibration = machine.calibration;
  EXPECT_EQ(machine.left_out, 0u);
  EXPECT_EQ(calibration.busy_cores, available_cores());
  EXPECT_EQ(calibration.matmuls.size(), matmul_sweep(SweepSize::quick).size());
  for (const MatmulPoint& point : calibration.matmuls) expect_sample(point.time);
  std::set<OpKind> kinds;
  for (const OpPoint& point : calibration.ops) {
    expect_sample(point.time);
    kinds.insert(point.kind);
  }
  EXPECT_EQ(kinds.size(), memory_bound_kinds().size());
  EXPECT_EQ(calibration.collectives.size(), collective_sweep(SweepSize::quick).size());
  for (const CollectivePoint& point : calibration.collectives) expect_sample(point.time);

  EXPECT_EQ(parse_calibration(calibration_text(calibration), "test"), calibration);
  EXPECT_EQ(parse_cluster(cluster_text(machine.cluster), "test"), machine.cluster);
  EXPECT_EQ(machine.cluster.devices_per_node, available_cores());
  EXPECT_EQ(machine.cluster.device.kind, DeviceKind::cpu_core);
  EXPECT_NE(machine.cluster.source.find("measured"), std::string::npos);
  expect_sample(calibration.wake_up);
  EXPECT_NE(calibration_summary(machine).find("leaving one out"), std::string::npos);
  EXPECT_NE(calibration_summary(machine).find("all_reduce of 4"), std::string::npos);
}

TEST(Calibrate, AKilledRunGoesOnFromItsJournal) {
  std::string folder = testing::TempDir() + "calibrateXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  CalibrationRequest request;
  request.size = SweepSize::quick;
  request.budget = Seconds(1000);
  request.journal = std::filesystem::path(folder) / "j";
  struct Killed {};
  const auto measured = [](const Calibration& calibration) {
    return calibration.collectives.size() + calibration.ops.size() + calibration.matmuls.size();
  };
  // In the first pass: dispatch and some of each kind are done.
  const std::size_t most = collective_sweep(SweepSize::quick).size() + 4;
  request.progress = [&](const std::string&, std::size_t done, std::size_t) {
    if (done == most) throw Killed();
  };
  EXPECT_THROW(calibrate(request), Killed);
  const std::string killed = read_file(request.journal);

  request.resume = true;
  request.progress = {};
  request.budget = Seconds(1e-9);  // nothing but what must be measured
  const MachineCalibration resumed = calibrate(request);
  EXPECT_EQ(resumed.restored, most);
  EXPECT_GE(measured(resumed.calibration), most - 1);  // all but dispatch
  EXPECT_EQ(read_file(request.journal).substr(0, killed.size()), killed);
  std::filesystem::remove_all(folder);
}

/// A test that a finished second pass measured again does not count as a further test.
TEST(Calibrate, ATestThatWasMeasuredTwiceIsRestoredOnce) {
  std::string folder = testing::TempDir() + "calibrateXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  CalibrationRequest request;
  request.size = SweepSize::quick;
  request.budget = Seconds(1000);
  request.journal = std::filesystem::path(folder) / "j";
  calibrate(request);
  std::set<std::string> tests;
  std::size_t measured = 0;
  std::istringstream lines(read_file(request.journal));
  std::string line;
  std::getline(lines, line);  // says what is measured
  while (std::getline(lines, line)) {
    const Json entry = parse_json(line, "j");
    // A busy machine drifts, and what was measured then is discarded.
    if (!entry.contains("test")) {
      for (const Json& test : entry["discarded"]) tests.erase(test.get<std::string>());
      continue;
    }
    tests.insert(entry["test"].get<std::string>());
    ++measured;
  }
  EXPECT_GT(measured, tests.size());
  request.resume = true;
  EXPECT_EQ(calibrate(request).restored, tests.size());
  std::filesystem::remove_all(folder);
}

TEST(Calibrate, WithoutTimeEverythingIsLeftOutButSomethingOfEachPartIsNeeded) {
  CalibrationRequest request;
  request.size = SweepSize::quick;
  request.budget = Seconds(1e-9);
  const MachineCalibration machine = calibrate(request);
  EXPECT_GT(machine.left_out, 0u);
  EXPECT_FALSE(machine.calibration.matmuls.empty());
  EXPECT_FALSE(machine.calibration.ops.empty());
  EXPECT_FALSE(machine.calibration.collectives.empty());
}

TEST(CoreBench, LargerWorkTakesLonger) {
  CoreBench bench("cpu", 1, Bytes(1 << 22));
  const Sampling sampling{7, Seconds(20e-6)};
  const MatmulPoint form;
  const Sample small = bench.measure(matmul_case({1, 32, 32, 32}, form), sampling);
  const Sample large = bench.measure(matmul_case({1, 512, 512, 512}, form), sampling);
  EXPECT_GT(large.median, small.median);  // 4096 times the operations
}

TEST(Collectives, LargerPayloadsTakeLonger) {
  const auto time = [](std::int64_t bytes) {
    return measure_collective(OpKind::all_reduce, 2, Bytes(bytes), Bytes(1 << 22), 15).time.median;
  };
  EXPECT_GT(time(1 << 22), time(1 << 10));  // 4096 times the bytes
}

TEST(Collectives, ASleepingRankWakesUpLate) {
  const Sample sample = measure_wake_up(7);
  expect_sample(sample);
  EXPECT_LT(sample.median.value(), 1);  // well before the deadline
}

TEST(Dispatch, EveryOpAndCallTakesSomeTime) {
  const DispatchCost cost = measure_dispatch(7);
  EXPECT_GE(cost.op.median.value(), 0);
  EXPECT_GE(cost.call.median.value(), 0);
  EXPECT_GT((cost.op.median + cost.call.median).value(), 0);
}

TEST(Crew, AnExceptionOnOneThreadReachesTheCaller) {
  EXPECT_THROW(run_together(2,
                            [](std::int64_t member) {
                              if (member == 1) throw std::runtime_error("member 1");
                            }),
               std::runtime_error);
  const Sampling sampling{7, Seconds(1e-6)};
  const auto failing = [](std::int64_t member) -> TimedWork {
    if (member == 1) throw std::runtime_error("member 1");
    return [](std::int64_t) { return Seconds(1e-6); };
  };
  EXPECT_THROW(measure_together(2, failing, sampling), std::runtime_error);
}

#ifndef PLIMSOLL_SANITIZED  // their runtimes end a process that gets no more memory
TEST(Crew, WhereNotAllHaveAThreadNoneBegins) {
  const auto work_together = [] {
    leave_no_room_for_threads();
    std::atomic<int> begun = 0;
    try {
      run_together(64, [&](std::int64_t) { ++begun; });
    } catch (const std::system_error&) {
      std::_Exit(begun == 0 ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(work_together(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace plimsoll
