// Flash attention of the CUDA backend: the reference is what the ops of the scores give, its
// backward is the derivative, and the kernels equal it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/cuda/backend.h"
#include "runtime/rank_device.h"
#include "tests/runtime/attention_cases.h"
#include "tests/runtime/attention_parts.h"
#include "tests/runtime/op_expectations.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/op_runner.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

class CudaAttention : public testing::TestWithParam<SharedCase> {};

TEST_P(CudaAttention, EqualsFloat64ReferenceAndRepeatsBitForBit) {
  expect_reference(*make_cuda_backend(0), *GetParam());
}

INSTANTIATE_TEST_SUITE_P(Table, CudaAttention, testing::ValuesIn(shared(attention_cases())),
                         op_case_name);

INSTANTIATE_TEST_SUITE_P(Examples, CudaAttention, testing::ValuesIn(shared(attention_cases(true))),
                         op_case_name);

Values by_reference(const OpCase& c) {
  Values values = c.before;
  run_reference(c, values);
  return values;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& expected,
                  double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

// split_heads, scores, softmax, context, merge_heads.
TEST(FlashAttention, IsTheProductOfItsParts) {
  for (const bool grouped : {false, true}) {
    const AttentionSizes z{2, 5, 4, grouped ? 2 : 4, 8};
    const OpCase flash = flash_attention_cases(z)[0];
    const AttentionParams fold{.sequence = z.sequence};
    const Shape q_heads = {z.batch, z.key_heads, z.sequence * z.heads / z.key_heads, z.depth};
    const Shape kv_heads = {z.batch, z.key_heads, z.sequence, z.depth};
    const auto operand = [&](std::size_t i) {
      return Operand{"x", flash.input(i).shape, flash.input_values(i)};
    };
    std::vector<Operand> heads;
    if (grouped) {
      const OpCase q =
          make_case("q", OpKind::split_heads, fold, {operand(0)}, {blank("q", q_heads)});
      const OpCase kv = make_case("kv", OpKind::split_heads, fold, {operand(1)},
                                  {blank("k", kv_heads), blank("v", kv_heads)});
      heads = {result(q, 0), result(kv, 0), result(kv, 1)};
    } else {
      const OpCase qkv =
          make_case("qkv", OpKind::split_heads, fold, {operand(0)},
                    {blank("q", q_heads), blank("k", kv_heads), blank("v", kv_heads)});
      heads = {result(qkv, 0), result(qkv, 1), result(qkv, 2)};
    }
    const Shape scores = {z.batch, z.key_heads, q_heads[2], z.sequence};
    const double scale = std::get<AttentionParams>(flash.op.params).scale;
    const OpCase product =
        make_case("scores", OpKind::matmul,
                  MatmulParams{.batch_dims = 2, .transpose_b = true, .scale = scale},
                  {heads[0], heads[1]}, {blank("scores", scores)});
    const OpCase p =
        make_case("p", OpKind::softmax, fold, {result(product, 0)}, {blank("p", scores)});
    const OpCase context = make_case("context", OpKind::matmul, MatmulParams{.batch_dims = 2},
                                     {result(p, 0), heads[2]}, {blank("context", q_heads)});
    const OpCase merged = make_case("merged", OpKind::merge_heads, fold, {result(context, 0)},
                                    {blank("y", {z.batch * z.sequence, z.heads * z.depth})});
    expect_close(by_reference(flash)[flash.op.outputs[0].index()],
                 by_reference(merged)[merged.op.outputs[0].index()], 1e-5);
  }
}

TEST(FlashAttention, BackwardEqualsDifferencesOfForward) {
  for (const AttentionSizes& sizes :
       {AttentionSizes{1, 5, 2, 2, 8}, AttentionSizes{2, 4, 4, 2, 8, false},
        AttentionSizes{1, 5, 2, 2, 16, true, 0, true, 8},
        AttentionSizes{1, 6, 2, 1, 8, true, 0, false, 0, 0.75}}) {
    const std::vector<OpCase> cases = flash_attention_cases(sizes);
    OpCase forward = cases[0];
    const OpCase& backward = cases[1];
    const std::vector<double>& dy = backward.input_values(0);
    const auto loss = [&] {
      const std::vector<double> y = by_reference(forward)[forward.op.outputs[0].index()];
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const Values got = run_case(*make_cuda_backend(0), backward);
    for (std::size_t i = 0; i < forward.op.inputs.size(); ++i) {
      std::vector<double> expected;
      for (double& x : forward.before[forward.op.inputs[i].index()]) {
        const double value = x;
        x = value + 1e-4;
        const double above = loss();
        x = value - 1e-4;
        expected.push_back((above - loss()) / 2e-4);
        x = value;
      }
      expect_close(got[backward.op.outputs[i].index()], expected, 2e-5);
    }
  }
}

// Plain kernels in f32, those of tensor cores in bf16; chunks within a tile and of several tiles.
TEST(FlashAttention, OverPartsOfSequencesIsTheWhole) {
  struct Parts {
    ContextExchange exchange;
    std::int64_t ranks;
    AttentionSizes sizes;
  };
  for (const Parts& parts :
       {Parts{ContextExchange::ring, 2, {2, 12, 4, 2, 8}},
        Parts{ContextExchange::ring, 3, {1, 300, 2, 1, 64}},
        Parts{ContextExchange::all_gather, 2, {2, 24, 4, 2, 8, true, 5}},
        Parts{ContextExchange::all_gather, 2, {1, 156, 2, 1, 64}},
        Parts{ContextExchange::all_to_all, 2, {2, 24, 8, 4, 8}},
        Parts{ContextExchange::all_to_all, 2, {1, 156, 4, 2, 64}},
        Parts{ContextExchange::ring, 2, {1, 156, 2, 2, 192, true, 0, false, 128}},
        Parts{ContextExchange::all_gather, 3, {2, 24, 2, 2, 16, true, 0, false, 8}},
        Parts{ContextExchange::all_to_all, 2, {1, 76, 2, 2, 136, true, 0, false, 72}},
        Parts{ContextExchange::ring, 2, with_alibi({2, 24, 4, 2, 8})},
        Parts{ContextExchange::ring, 2, with_examples({1, 300, 2, 1, 64})},
        Parts{ContextExchange::all_gather, 3, with_examples({2, 24, 2, 1, 8, true, 5})},
        Parts{ContextExchange::all_to_all, 2, with_examples({1, 156, 4, 2, 64})},
        Parts{ContextExchange::all_to_all, 2, with_alibi({2, 24, 8, 4, 8})}}) {
    SCOPED_TRACE(kContextExchanges[std::size_t(parts.exchange)]);
    for (const DType type : {DType::f32, DType::bf16}) {
      expect_parts_make_the_whole(*make_cuda_backend(0), parts.exchange, parts.ranks, parts.sizes,
                                  type);
    }
  }
}

TEST(FlashAttention, RefusesHeadsThatNoKernelReads) {
  const auto backend = make_cuda_backend(0);
  const OpCase odd = flash_attention_cases({1, 5, 2, 2, 12})[0];
  EXPECT_TRUE(states(backend->supports(odd.op, odd.tensors).reason(),
                     {"flash attention", "multiple of 8", "256", "12"}));
  OpCase dropped = flash_attention_cases({1, 5, 2, 2, 8})[0];
  std::get<AttentionParams>(dropped.op.params).dropout = 0.1;
  EXPECT_EQ(backend->supports(dropped.op, dropped.tensors).reason(),
            "flash attention of the cuda backend has no dropout");
}

}  // namespace
}  // namespace plimsoll
