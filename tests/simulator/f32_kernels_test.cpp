// Some devices and frameworks have slower kernels for products and softmax of f32, and for
// attention.
#include <gtest/gtest.h>

#include "simulator/costs/cost_model.h"

namespace plimsoll {
namespace {

Tensor tensor(Shape shape, DType dtype) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  tensor.dtype = dtype;
  return tensor;
}

Cluster h100() {
  return read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                      "/models/presets/clusters/dgx-h100-80gb.json");
}

double time_of_product(bool transpose_a, bool transpose_b, double rate, DType dtype) {
  constexpr std::int64_t kSize = 16384;  // bound by compute
  Cluster cluster = h100();
  cluster.efficiency->matmul.fixed_time = Seconds(0);
  cluster.efficiency->matmul.f32_across_rate = rate;
  Op op;
  op.kind = OpKind::matmul;
  op.inputs = {TensorId(0), TensorId(1)};
  op.outputs = {TensorId(2)};
  MatmulParams params;
  params.transpose_a = transpose_a;
  params.transpose_b = transpose_b;
  op.params = params;
  const std::vector<Tensor> tensors(3, tensor({kSize, kSize}, dtype));
  return CostModel(cluster, std::nullopt, Framework{}).local(op, tensors).time.value();
}

// TF32 on Hopper: both operands' rows run along the inner dimension in y = x w of a weight that
// frameworks have as [outputs, inputs], not in what backward computes.
TEST(F32Kernels, ProductsMayBeSlowerWhereRowsRunAcross) {
  const double whole = time_of_product(false, false, 1, DType::f32);
  EXPECT_EQ(time_of_product(false, false, 0.5, DType::f32), whole) << "forward";
  EXPECT_NEAR(time_of_product(false, true, 0.5, DType::f32), 2 * whole, 0.02 * whole) << "input";
  EXPECT_NEAR(time_of_product(true, false, 0.5, DType::f32), 2 * whole, 0.02 * whole) << "weight";
  EXPECT_EQ(time_of_product(true, false, 0.5, DType::bf16),
            time_of_product(true, false, 1, DType::bf16));
}

TEST(F32Kernels, MasksOfScoresMayBeKernelsOfTheirOwn) {
  Cluster cluster = h100();
  cluster.efficiency.reset();
  const auto time = [&](bool apart, DType dtype) {
    Framework framework;
    framework.kernels.attention.masks_f32_apart = apart;
    Op op;
    op.kind = OpKind::softmax;
    op.params = AttentionParams{.sequence = 2048};
    op.inputs = {TensorId(0)};
    op.outputs = {TensorId(1)};
    const std::vector<Tensor> tensors(2, tensor({64, 1, 2048, 2048}, dtype));
    return CostModel(cluster, std::nullopt, framework).local(op, tensors).time.value();
  };
  EXPECT_NEAR(time(true, DType::f32), 2 * time(false, DType::f32), 1e-9);
  EXPECT_NEAR(time(true, DType::f16), 0.75 * time(false, DType::f16), 1e-9);  // half is read
}

// Megatron-LM's fused kernel takes four matrices of scores at a time.
TEST(F32Kernels, ScoresOfAnOddNumberOfHeadsAreMaskedAndNormalisedByParts) {
  Cluster cluster = h100();
  cluster.efficiency.reset();
  const auto time = [&](OpKind kind, std::int64_t matrices, bool limited, bool causal = true) {
    Framework framework;
    framework.kernels.attention.masks_f32_apart = limited;
    Op op;
    op.kind = kind;
    op.params = AttentionParams{.sequence = 2048, .causal = causal};
    op.inputs = {TensorId(0)};
    if (kind == OpKind::softmax_backward) op.inputs.push_back(TensorId(1));
    op.outputs = {TensorId(2)};
    const std::vector<Tensor> tensors(3, tensor({matrices, 1, 2048, 2048}, DType::f16));
    return CostModel(cluster, std::nullopt, framework).local(op, tensors).time.value();
  };
  for (const OpKind kind : {OpKind::softmax, OpKind::softmax_backward}) {
    const double triangle = kind == OpKind::softmax ? 1.5 / 2 : 2.0 / 3;
    EXPECT_NEAR(time(kind, 8, true), triangle * time(kind, 8, false), 1e-9);
    EXPECT_EQ(time(kind, 8, true, false), time(kind, 8, false));
    const double bytes = kind == OpKind::softmax ? 36.0 / 4 : 40.0 / 6;
    EXPECT_NEAR(time(kind, 6, true), bytes * time(kind, 6, false), 1e-9);
  }
}

// Megatron-LM's loss subtracts, exponentiates, adds up and divides in separate kernels.
TEST(F32Kernels, ALossInPlaceMovesItsLogitsSevenTimes) {
  Cluster cluster = h100();
  cluster.efficiency.reset();
  const auto time = [&](LossMemory loss) {
    Framework framework;
    framework.memory.loss = loss;
    framework.kernels.attention.masks_f32_apart = true;
    Op op;
    op.kind = OpKind::logits_sum_exp;
    op.params = VocabularyParams{};
    op.inputs = {TensorId(0), TensorId(1), TensorId(2)};
    op.outputs = {TensorId(3)};
    const std::vector<Tensor> tensors = {tensor({2048, 50304}, DType::f32),
                                         tensor({2048}, DType::f32), tensor({2048}, DType::i32),
                                         tensor({2048, 2}, DType::f32)};
    return CostModel(cluster, std::nullopt, framework).local(op, tensors).time.value();
  };
  EXPECT_NEAR(time(LossMemory::in_place), 7 * time(LossMemory::own_type), 1e-9);
}

double time_of_attention(const char* device, AttentionKernel kernel, bool backward) {
  Cluster cluster = h100();
  cluster.device.name = device;
  for (AttentionEfficiency* part :
       {&cluster.efficiency->attention_forward, &cluster.efficiency->attention_backward})
    part->fixed_time = Seconds(0);
  Framework framework;
  framework.kernels.attention.kernel = kernel;
  Op op;
  op.kind = backward ? OpKind::flash_attention_backward : OpKind::flash_attention;
  op.params = AttentionParams{};
  const Tensor qkv = tensor({8192, 3, 32, 128}, DType::bf16);
  const Tensor out = tensor({8192, 1, 32, 128}, DType::bf16);
  const std::vector<Tensor> tensors = {backward ? out : qkv, qkv, qkv};
  op.inputs = backward ? std::vector{TensorId(0), TensorId(1)} : std::vector{TensorId(0)};
  op.outputs = {TensorId(2)};
  return CostModel(cluster, std::nullopt, framework).local(op, tensors).time.value();
}

// FlashAttention-2 has no instructions of Hopper's; the kernels of 2022 are slower everywhere.
TEST(AttentionKernels, AreAsFastAsTheirReleaseOnTheDevice) {
  const char* const kHopper = "NVIDIA H100 SXM5 80GB";
  const char* const kAmpere = "NVIDIA A100 SXM4 80GB";
  for (const bool backward : {false, true}) {
    const double native = time_of_attention(kHopper, AttentionKernel::native, backward);
    EXPECT_NEAR(time_of_attention(kHopper, AttentionKernel::flash_2, backward),
                native / (backward ? 0.69 : 0.74), 0.01 * native);
    EXPECT_EQ(time_of_attention(kAmpere, AttentionKernel::flash_2, backward), native);
    EXPECT_NEAR(time_of_attention(kAmpere, AttentionKernel::flash_1, backward), 2 * native,
                0.01 * native);
    EXPECT_NEAR(time_of_attention(kAmpere, AttentionKernel::triton, backward),
                (backward ? 2 : 1.4) * native, 0.01 * native);
  }
}

}  // namespace
}  // namespace plimsoll
