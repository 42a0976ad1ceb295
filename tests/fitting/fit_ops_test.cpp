// Kernel parameters found again from times that were made with them.
#include "fitting/fit_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

Cluster a100() {
  return read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/a100-pcie-80gb.json");
}

/// Matmuls as `truth` computes them, off by up to so much either way.
std::vector<OpMeasurement> matmuls(const Cluster& truth, double off) {
  std::vector<OpMeasurement> ops;
  for (const std::int64_t m : {1024, 2048, 4096, 8192}) {
    for (const std::int64_t n : {768, 1536, 5120, 12288}) {
      for (const std::int64_t k : {512, 2048, 6144}) {
        OpMeasurement op;
        op.gpu = "A100-PCIe-80GB";
        op.devices = {"NVIDIA A100 PCIe 80GB"};
        op.source = "made up";
        op.shape = {1, m, n, k};
        const Bytes moved(2 * (m * k + k * n + m * n));
        const Estimate time =
            efficient_matmul(op.shape, 8, moved, DType::bf16, *peak(truth.device, DType::bf16),
                             truth.device, *truth.efficiency);
        op.time = time.time * (ops.size() % 2 == 0 ? 1 + off : 1 - off);
        ops.push_back(op);
      }
    }
  }
  return ops;
}

const FittedValue& value(const OpFit& fit, const char* name) {
  return *std::find_if(fit.values.begin(), fit.values.end(),
                       [&](const FittedValue& one) { return one.name == name; });
}

TEST(FitOps, FindsTheParametersThatMadeTheTimes) {
  Cluster truth = a100();
  truth.efficiency->matmul.peak_fraction *= 0.8;
  truth.efficiency->matmul.added_depth *= 1.5;
  const OpFit fit = fit_ops(matmuls(truth, 0.01), a100());
  EXPECT_EQ(fit.ops, 48);
  EXPECT_NEAR(value(fit, "matmul.peak_fraction").value, truth.efficiency->matmul.peak_fraction,
              0.02);
  EXPECT_TRUE(value(fit, "matmul.peak_fraction").determined);
  EXPECT_NEAR(value(fit, "matmul.added_depth").value, truth.efficiency->matmul.added_depth, 30);
  // Nothing says anything of attention.
  EXPECT_FALSE(value(fit, "attention_forward.peak_fraction").determined);
  ASSERT_EQ(fit.errors.size(), 1u);
  EXPECT_GT(fit.errors[0].median_before, 0.15);
  EXPECT_LT(fit.errors[0].median, 0.015);
  EXPECT_LT(fit.errors[0].unseen_median, 0.02);
  EXPECT_EQ(fit.sources, std::vector<std::string>{"made up"});
}

TEST(FitOps, LeavesOutOtherDevicesAndThinProducts) {
  std::vector<OpMeasurement> ops = matmuls(a100(), 0.01);
  for (std::size_t i = 0; i < 5; ++i) ops[i].devices = {"NVIDIA A100 SXM4 80GB"};
  ops[5].shape.n = 64;
  EXPECT_EQ(fit_ops(ops, a100()).ops, 42);
  ops.resize(24);  // 18 are left
  EXPECT_THROW(fit_ops(ops, a100()), InfeasibleError);
}

TEST(FitOps, TellsDevicesApart) {
  const std::vector<std::string> none, both = {"NVIDIA A100 PCIe 40GB", "NVIDIA A100 PCIe 80GB"};
  EXPECT_TRUE(is_device_of(a100(), "NVIDIA A100 PCIe 80GB", none));
  EXPECT_TRUE(is_device_of(a100(), "an A100", both));
  EXPECT_FALSE(is_device_of(a100(), "an A100", none));
  EXPECT_FALSE(is_device_of(a100(), "H100 PCIe", std::span(both).first(1)));
}

}  // namespace
}  // namespace plimsoll
