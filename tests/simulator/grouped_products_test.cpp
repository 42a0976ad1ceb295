// Products of experts against published timings of kernels.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/op_table.h"
#include "models/presets/presets.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {
namespace {

CostModel costs_on(const char* cluster, bool apart) {
  Framework framework;
  framework.kernels.products.experts_apart = apart;
  return CostModel(parse_cluster(*find_preset(cluster_presets(), cluster), cluster), std::nullopt,
                   framework);
}

Tensor operand(Shape shape, DType dtype) {
  Tensor result;
  result.shape = std::move(shape);
  result.dtype = dtype;
  return result;
}

/// Returns the microseconds of a product of [experts x rows, k] and [experts, k, n], of its
/// gradient by the rows, or of that by the weights, which is added in f32.
double product(const CostModel& costs, OpKind kind, std::int64_t experts, std::int64_t rows,
               std::int64_t n, std::int64_t k, DType dtype = DType::bf16) {
  const Tensor wide = operand({experts * rows, n}, DType::bf16),
               x = operand({experts * rows, k}, dtype), weight = operand({experts, k, n}, dtype),
               gradient = operand({experts, k, n}, DType::f32),
               ends = operand({experts}, DType::i32);
  std::vector<Tensor> tensors = {x, weight, ends, wide};
  if (kind == OpKind::grouped_matmul_backward) tensors = {wide, weight, ends, x};
  if (kind == OpKind::grouped_weight_gradient) tensors = {x, wide, ends, gradient};
  Op op;
  op.kind = kind;
  op.inputs = {TensorId(0), TensorId(1), TensorId(2)};
  op.outputs = {TensorId(3)};
  op.params = default_params(kind);
  return 1e6 * costs.local(op, tensors).time.value();
}

struct Timed {
  const char* cluster;
  std::int64_t experts, rows, n, k;
  double forward, rows_gradient, weights_gradient;  ///< microseconds
};

// Transformer Engine's products in bf16, weight gradients added in f32: github:MooreThreads/SimuMax
// @4dcaae5, configs/system/b200_bf16_ceperm.json and a100_pcie.json, group_matmul (time = 2 experts
// rows n k / (peak x efficiency)).
TEST(GroupedProducts, OfAKernelForEachExpertFollowMeasuredOnes) {
  const Timed all[] = {{"hgx-b200", 160, 154, 3072, 5120, 1725, 1770, 3678},
                       {"hgx-b200", 160, 154, 5120, 1536, 1487, 1403, 2080},
                       {"hgx-b200", 80, 308, 3072, 5120, 891, 1132, 2132},
                       {"hgx-b200", 80, 308, 5120, 1536, 733, 690, 968},
                       {"hgx-b200", 128, 256, 4096, 7168, 3151, 2572, 5805},
                       {"hgx-b200", 128, 256, 7168, 2048, 1409, 1836, 3034},
                       {"hgx-b200", 20, 1232, 3072, 5120, 671, 817, 1052},
                       {"hgx-b200", 20, 1232, 5120, 1536, 433, 443, 539},
                       {"hgx-b200", 32, 1024, 4096, 7168, 1871, 1964, 2961},
                       {"hgx-b200", 32, 1024, 7168, 2048, 1113, 994, 1559},
                       {"hgx-b200", 40, 2460, 3072, 5120, 2826, 3044, 3302},
                       {"hgx-b200", 40, 2460, 5120, 1536, 1387, 1407, 1709},
                       {"a100-pcie-80gb", 40, 616, 3072, 5120, 3935, 3658, 4780},
                       {"a100-pcie-80gb", 40, 616, 5120, 1536, 1974, 1887, 2390},
                       {"a100-pcie-80gb", 20, 1232, 3072, 5120, 3512, 3530, 4116},
                       {"a100-pcie-80gb", 20, 1232, 5120, 1536, 1839, 1890, 1949}};
  double logarithms = 0;
  for (const Timed& timed : all) {
    SCOPED_TRACE(testing::Message() << timed.cluster << ": " << timed.experts << " x " << timed.rows
                                    << " x " << timed.n << " x " << timed.k);
    const CostModel costs = costs_on(timed.cluster, true);
    const auto compare = [&](OpKind kind, double measured) {
      const double ratio =
          product(costs, kind, timed.experts, timed.rows, timed.n, timed.k) / measured;
      EXPECT_GT(ratio, 0.65);
      EXPECT_LT(ratio, 1.35);
      logarithms += std::log(ratio);
    };
    compare(OpKind::grouped_matmul, timed.forward);
    compare(OpKind::grouped_matmul_backward, timed.rows_gradient);
    compare(OpKind::grouped_weight_gradient, timed.weights_gradient);
  }
  EXPECT_NEAR(logarithms / (3.0 * double(std::size(all))), 0, 0.1);
}

TEST(GroupedProducts, OfFewRowsPayForEachKernel) {
  const auto of = [](bool apart, std::int64_t experts) {
    return product(costs_on("hgx-b200", apart), OpKind::grouped_matmul, experts, 128, 7168, 2048);
  };
  EXPECT_NEAR(of(true, 256) - of(false, 256), 255 * 3, 1e-6);
  EXPECT_EQ(of(true, 1), of(false, 1));
}

struct Fused {
  std::int64_t experts, rows, n, k;
  double teraflops;
};

// One kernel for all experts on H800, whose products are as fast as the H100's:
// deepseek-ai/DeepGEMM README.md of March 2025, grouped products in contiguous and masked layout,
// with FP8 operands.
TEST(GroupedProducts, OfOneKernelFollowMeasuredOnes) {
  const CostModel costs = costs_on("dgx-h100-80gb", false);
  for (const Fused& fused : {Fused{4, 8192, 4096, 7168, 1297}, Fused{4, 8192, 7168, 2048, 1099},
                             Fused{8, 4096, 4096, 7168, 1288}, Fused{8, 4096, 7168, 2048, 1093},
                             Fused{2, 512, 4096, 7168, 1040}, Fused{2, 512, 7168, 2048, 916},
                             Fused{4, 256, 4096, 7168, 932}, Fused{4, 256, 7168, 2048, 815}}) {
    const double measured = 2e-6 * double(fused.experts * fused.rows) * double(fused.n) *
                            double(fused.k) / fused.teraflops;
    const double predicted = product(costs, OpKind::grouped_matmul, fused.experts, fused.rows,
                                     fused.n, fused.k, DType::e4m3);
    EXPECT_GT(predicted / measured, 0.85) << fused.experts << " x " << fused.rows;
    EXPECT_LT(predicted / measured, 1.2) << fused.experts << " x " << fused.rows;
  }
}

/// Returns the bytes that an op on the rows of 16 experts takes the time of, beyond its fixed time.
double bytes_of_bias(bool apart, OpKind kind, bool weighted) {
  const std::int64_t rows = 16384, width = 2880;
  const CostModel costs = costs_on("dgx-h100-80gb", apart);
  const auto timed = [&](std::int64_t n) {
    const Tensor x = operand({n, width}, DType::bf16), bias = operand({16, width}, DType::bf16),
                 ends = operand({16}, DType::i32), weights = operand({n}, DType::f32),
                 gradient = operand({16, width}, DType::f32);
    const bool forward = kind == OpKind::grouped_bias_add;
    std::vector<Tensor> tensors = {x, bias, ends, weights, forward ? x : gradient, weights};
    Op op;
    op.kind = kind;
    op.inputs = {TensorId(0), TensorId(1), TensorId(2)};
    if (weighted) op.inputs.push_back(TensorId(3));
    op.outputs = {TensorId(4)};
    if (weighted && !forward) op.outputs.push_back(TensorId(5));
    op.params = default_params(kind);
    return costs.local(op, tensors).time.value();
  };
  const Cluster cluster =
      parse_cluster(*find_preset(cluster_presets(), "dgx-h100-80gb"), "dgx-h100-80gb");
  const double bandwidth =
      cluster.device.memory_bandwidth.value() * cluster.efficiency->memory.bandwidth_fraction;
  return (timed(2 * rows) - timed(rows)) * bandwidth / double(rows * width);
}

TEST(GroupedBiases, AreAddedInF32IfEachExpertHasAKernel) {
  EXPECT_NEAR(bytes_of_bias(true, OpKind::grouped_bias_add, true), 28, 0.1);
  EXPECT_NEAR(bytes_of_bias(false, OpKind::grouped_bias_add, true), 4, 0.1);
  EXPECT_NEAR(bytes_of_bias(true, OpKind::grouped_bias_backward, true), 40, 0.1);
  EXPECT_NEAR(bytes_of_bias(false, OpKind::grouped_bias_backward, true), 2, 0.1);
}

TEST(GroupedBiases, WithoutWeightsAreAddedByTheProduct) {
  EXPECT_NEAR(bytes_of_bias(true, OpKind::grouped_bias_add, false), 0, 0.1);
  EXPECT_NEAR(bytes_of_bias(true, OpKind::grouped_bias_backward, false), 2, 0.1);
}

}  // namespace
}  // namespace plimsoll
