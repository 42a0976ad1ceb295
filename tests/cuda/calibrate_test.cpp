// Calibration of a device, on whatever the program is linked for.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "calibrate/measure/device_bench.h"
#include "calibrate/schedule/sweep.h"
#include "calibrate/sessions/device_calibration.h"
#include "graph/op_table.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "passes/pipeline.h"
#include "runtime/cuda/backend.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

// For a device with 4 of an A100's 108 multiprocessors.
TEST(DeviceCalibration, MeasuresAFewPointsOfEverythingAndItsFilesCanBeRead) {
  CalibrationRequest request;
  request.backend = "cuda";
  request.size = SweepSize::quick;
  request.precision = DType::bf16;
  request.budget = Seconds(0.001);  // what is measured whatever the clock says
  std::size_t reported = 0;
  request.progress = [&](const std::string&, std::size_t done, std::size_t of) {
    EXPECT_EQ(done, ++reported);
    EXPECT_LE(done, of);
  };
  const auto backend = make_cuda_backend(0);
  DeviceFacts facts = cuda_device_facts(0);
  facts.compute_capability = 80;
  facts.multiprocessors = 4;
  const MachineCalibration machine = calibrate_device(request, *backend, facts);
  const Calibration& calibration = machine.calibration;
  EXPECT_EQ(calibration.backend, "cuda");
  EXPECT_EQ(calibration.device, facts.name);
  EXPECT_GE(calibration.matmuls.size(), 2u);
  EXPECT_GE(calibration.ops.size(), 2u);
  EXPECT_EQ(calibration.copies.size(), 3u);
  ASSERT_TRUE(calibration.launch.has_value());
  EXPECT_GT(calibration.launch->median, Seconds(0));
  EXPECT_GT(machine.left_out, 0u);
  for (const MatmulPoint& point : calibration.matmuls) EXPECT_GT(point.time.median, Seconds(0));
  EXPECT_EQ(parse_calibration(calibration_text(calibration), "calibration.json"), calibration);

  const Cluster& cluster = machine.cluster;
  EXPECT_EQ(cluster.device.memory, facts.memory);
  ASSERT_TRUE(cluster.device.peak_bf16.has_value());
  EXPECT_NEAR(cluster.device.peak_bf16->value(), 312e12 * 4 / 108, 1e11);
  EXPECT_NEAR(cluster.device.peak_fp32->value(), 19.5e12 * 4 / 108, 1e10);
  EXPECT_NE(cluster.source.find("A100"), std::string::npos);
  ASSERT_TRUE(cluster.efficiency.has_value());
  EXPECT_TRUE(cluster.efficiency->attention_forward.fitted.has_value());
  EXPECT_GT(cluster.efficiency->attention_backward.peak_fraction, 0);
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "cluster.json"), cluster);
  EXPECT_NE(calibration_summary(machine).find(facts.name), std::string::npos);
}

TEST(DeviceSweep, HoldsWhatGpusTrainOnce) {
  const auto matmuls = device_matmul_sweep(SweepSize::full, DType::bf16);
  std::size_t singles = 0, essential = 0;
  for (std::size_t i = 0; i < matmuls.size(); ++i) {
    singles += matmuls[i].dtype == DType::f32;
    essential += is_essential_on_device(matmuls[i]);
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(matmuls[i] == matmuls[j]) << i << " " << j;
  }
  EXPECT_GT(matmuls.size(), 100u);
  EXPECT_EQ(singles, 1u);
  // Four layers of two hidden sizes with two gradients each, less those that are the same, and the
  // one in f32.
  EXPECT_GE(essential, 16u);
  EXPECT_LE(essential, 25u);
  EXPECT_GT(device_memory_sweep(SweepSize::full, DType::f32).size(), 100u);
}

// The ops that a lowered job runs on a device are measured in its type.
TEST(DeviceSweep, HoldsEveryMemoryBoundOpOfMixedPrecision) {
  for (const char* name : {"gpt-nano", "llama-nano", "bert-nano"}) {
    Job job = read_job(tests_folder() / (std::string(name) + ".json"));
    job.precision = DType::bf16;
    std::set<std::pair<OpKind, DType>> measured;
    for (const OpPoint& point : device_memory_sweep(SweepSize::quick, DType::bf16)) {
      const BenchCase one = memory_case(point.kind, point.moved, point.row, point.dtype);
      measured.emplace(point.kind, compute_dtype(one.op, one.tensors));
    }
    Strategy strategy;
    strategy.micro_batch = 1;
    for (const Program& program : lower({job, strategy, bundled_cuda_framework()})) {
      for (const Routine& routine : program.routines) {
        for (const Op& op : routine.ops) {
          if (row(op.kind).op_class != OpClass::memory_bound) continue;
          if (op.kind == OpKind::cast) continue;  // a bandwidth, of two types
          const DType type = compute_dtype(op, routine.tensors);
          EXPECT_TRUE(measured.contains({op.kind, type}))
              << name << ": " << to_text(op.kind) << " " << to_text(type);
        }
      }
    }
  }
}

TEST(DeviceBench, MeasuresOneOpSeveralTimes) {
  const auto backend = make_cuda_backend(0);
  DeviceBench bench(*backend, Bytes(1 << 16));
  const BenchCase add = memory_case(OpKind::add, Bytes(1 << 14), 0);
  ASSERT_TRUE(bench.supports(add));
  EXPECT_EQ(bench.measure(add, {}).samples, Sampling::kLeast);
}

TEST(DeviceBench, RepeatsOneOpOneByOne) {
  const auto backend = make_cuda_backend(0);
  DeviceBench bench(*backend, Bytes(1 << 16));
  const auto work = bench.repeated(memory_case(OpKind::add, Bytes(1 << 14), 0));
  const auto few = work->run(3, Seconds(1));
  ASSERT_EQ(few.size(), 3u);  // how long one takes is not known yet
  Picoseconds last;
  for (const RepeatedWork::Run& run : few) {
    EXPECT_GE(run.begin, last);
    EXPECT_GT(run.taken, Seconds(0));
    last = run.begin;
  }
  EXPECT_GT(work->run(1, few[1].taken * 20).size(), 3u);
}

}  // namespace
}  // namespace plimsoll
