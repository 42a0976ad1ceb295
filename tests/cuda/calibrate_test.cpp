// Calibration of a device, on whatever the program is linked for.
#include <gtest/gtest.h>

#include "calibrate/device_bench.h"
#include "calibrate/device_calibration.h"
#include "graph/op_table.h"
#include "models/cluster.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/facts.h"

namespace plimsoll {
namespace {

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
  const DeviceFacts facts = cuda_device_facts(0);
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
  ASSERT_TRUE(cluster.efficiency.has_value());
  EXPECT_TRUE(cluster.efficiency->attention_forward.fitted.has_value());
  EXPECT_GT(cluster.efficiency->attention_backward.peak_fraction, 0);
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "cluster.json"), cluster);
  EXPECT_NE(calibration_summary(machine).find(facts.name), std::string::npos);
}

// Compute capability 8.0 with 4 of an A100's 108 multiprocessors.
TEST(DeviceCalibration, ScalesTheDatasheetByMultiprocessors) {
  CalibrationRequest request;
  request.size = SweepSize::quick;
  request.budget = Seconds(0.001);
  DeviceFacts facts = cuda_device_facts(0);
  facts.compute_capability = 80;
  facts.multiprocessors = 4;
  const auto backend = make_cuda_backend(0);
  const Cluster cluster = calibrate_device(request, *backend, facts).cluster;
  ASSERT_TRUE(cluster.device.peak_bf16.has_value());
  EXPECT_NEAR(cluster.device.peak_bf16->value(), 312e12 * 4 / 108, 1e11);
  EXPECT_NEAR(cluster.device.peak_fp32->value(), 19.5e12 * 4 / 108, 1e10);
  EXPECT_NE(cluster.source.find("A100"), std::string::npos);
}

TEST(DeviceSweep, HoldsWhatGpusTrainOnce) {
  const auto matmuls = device_matmul_sweep(SweepSize::full, DType::bf16);
  for (std::size_t i = 0; i < matmuls.size(); ++i) {
    EXPECT_EQ(matmuls[i].dtype, DType::bf16);
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(matmuls[i] == matmuls[j]) << i << " " << j;
  }
  EXPECT_GT(matmuls.size(), 100u);
  EXPECT_GT(device_memory_sweep(SweepSize::full, DType::f32).size(), 100u);
}

TEST(DeviceBench, MeasuresOneOpSeveralTimes) {
  const auto backend = make_cuda_backend(0);
  DeviceBench bench(*backend, Bytes(1 << 16));
  const BenchCase add = memory_case(OpKind::add, Bytes(1 << 14), 0);
  ASSERT_TRUE(bench.supports(add));
  EXPECT_EQ(bench.measure(add, {}).samples, Effort::kLeast);
}

}  // namespace
}  // namespace plimsoll
