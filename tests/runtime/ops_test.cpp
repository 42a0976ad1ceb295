// Every op of the CPU backend against the float64 reference, and the edges of the backends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/op_table.h"
#include "runtime/backend.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

/// Largest difference relative to the largest expected magnitude; infinite unless equal infinities
/// meet, and for anything that is not a number.
double relative_difference(const std::vector<double>& got, const std::vector<double>& expected) {
  double largest = 1e-30, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i]) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(expected[i])) return HUGE_VAL;
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  for (double value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return difference / largest;
}

/// The unit roundoff of the type (2^-8 with the 8 bits of bf16), and what f32 arithmetic adds.
double tolerance(DType type) {
  constexpr double kArithmetic = 3e-6;
  switch (type) {
    case DType::bf16:
      return 0x1p-8 + kArithmetic;
    case DType::f16:
      return 0x1p-11 + kArithmetic;
    default:
      return kArithmetic;
  }
}

/// The table in f32, then every case that has values in the other types.
std::vector<OpCase> cases_of_all_types() {
  std::vector<OpCase> cases = op_cases(kTestSizes);
  const std::size_t count = cases.size();
  for (DType type : {DType::bf16, DType::f16}) {
    for (std::size_t i = 0; i < count; ++i) {
      const OpKind kind = cases[i].op.kind;
      const bool typed = kind == OpKind::cast || may_write_parameters(kind);
      if (typed || kind == OpKind::cast_parameters) continue;  // have cases of their own
      if (auto c = in_type(cases[i], type)) cases.push_back(*std::move(c));
      if (auto c = in_type(cases[i], type, true)) cases.push_back(*std::move(c));
    }
  }
  return cases;
}

class CpuOp : public testing::TestWithParam<OpCase> {};

TEST_P(CpuOp, EqualsFloat64Reference) {
  const OpCase& c = GetParam();
  const auto backend = make_backend("cpu");
  const Verdict verdict = backend->supports(c.op, c.tensors);
  ASSERT_TRUE(bool(verdict)) << verdict.reason();
  Values expected = c.before;
  run_reference(c, expected);
  const Values got = run_case(*backend, c);
  for (TensorId id : c.op.outputs) {
    EXPECT_LE(relative_difference(got[id.index()], expected[id.index()]),
              tolerance(c.tensors[id.index()].dtype))
        << c.tensors[id.index()].name;
  }
}

TEST_P(CpuOp, LeavesInputsAloneAndRepeatsBitForBit) {
  const OpCase& c = GetParam();
  const auto backend = make_backend("cpu");
  PreparedCase prepared(*backend, c);
  prepared.run();
  const Values first = prepared.values();
  prepared.reset();
  prepared.run();
  const Values second = prepared.values();
  const int in_place = row(c.op.kind).in_place;
  for (std::size_t i = 0; i < c.op.inputs.size(); ++i) {
    const TensorId id = c.op.inputs[i];
    const bool written =
        int(i) == in_place || std::count(c.op.outputs.begin(), c.op.outputs.end(), id) > 0;
    if (written) continue;
    EXPECT_EQ(first[id.index()], c.before[id.index()]) << c.tensors[id.index()].name;
  }
  for (TensorId id : c.op.outputs) EXPECT_EQ(first[id.index()], second[id.index()]);
}

std::string case_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Table, CpuOp, testing::ValuesIn(cases_of_all_types()), case_name);

TEST(OpCases, CoverEveryKindTheCpuBackendHas) {
  const std::set<OpKind> without = {
      OpKind::linear, OpKind::attention, OpKind::copy_to_group, OpKind::reduce_from_group,
      OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather, OpKind::reduce,
      OpKind::broadcast, OpKind::send, OpKind::recv,
      // Kernels that only other frameworks have.
      OpKind::flash_attention, OpKind::flash_attention_backward, OpKind::bias_gelu,
      OpKind::bias_gelu_backward, OpKind::bias_residual_add, OpKind::masked_dropout,
      OpKind::masked_dropout_backward, OpKind::bias_dropout_add};
  const auto backend = make_backend("cpu");
  std::set<OpKind> covered;
  for (const OpCase& c : op_cases(kTestSizes)) covered.insert(c.op.kind);
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    Op op;
    op.kind = OpKind(i);
    EXPECT_NE(covered.count(op.kind), without.count(op.kind)) << to_text(op.kind);
    if (without.count(op.kind) == 0) continue;
    EXPECT_EQ(backend->supports(op, {}).reason(),
              "the cpu backend has no kernel for " + std::string(to_text(op.kind)));
  }
}

OpCase small_add() {
  return make_case("add", OpKind::add, {}, {{"a", {3}, {1, 2, 3}}, {"b", {3}, {10, 20, 30}}},
                   {{"y", {3}, {-1, -2, -3}}});
}

TEST(CpuBackend, RefusesOtherDtypes) {
  OpCase c = small_add();
  c.tensors[1].dtype = DType::bf16;
  EXPECT_EQ(make_backend("cpu")->supports(c.op, c.tensors).reason(),
            "the cpu backend computes b of add in f32, not bf16");
  for (Tensor& tensor : c.tensors) tensor.dtype = DType::i32;
  EXPECT_EQ(make_backend("cpu")->supports(c.op, c.tensors).reason(),
            "the cpu backend computes no add of i32");
}

TEST(CpuBackend, RefusesWhatTheOpTableRefuses) {
  OpCase c = small_add();
  c.tensors[1].shape = {2};
  EXPECT_EQ(make_backend("cpu")->supports(c.op, c.tensors).reason(),
            "input 1 and output 0 differ in size");
}

TEST(CpuBackend, NamesOpAndBytesWhenTheWorkspaceIsTooSmall) {
  const OpCase c =
      make_case("bias_gradient", OpKind::bias_gradient, {},
                {{"dy", {100, 1}, std::vector<double>(100, 1)}}, {{"dbias", {1}, {0}}});
  const auto backend = make_backend("cpu");
  try {
    PreparedCase prepared(*backend, c, Bytes(64));
    FAIL() << "prepared in 64 bytes";
  } catch (const EnvironmentError& error) {  // 100 ones are 400 bytes: 448 in blocks of 64
    EXPECT_STREQ(error.what(),
                 "bias_gradient needs at least 448 bytes of workspace; the framework states 64");
  }
}

TEST(CpuBackend, RefusesATextShorterThanOneSequence) {
  OpCase c =
      make_case("load", OpKind::load_tokens, DataParams{8}, {}, {{"ids", {8}, {}, DType::i32}});
  c.text.resize(9);
  c.global_batch = 1;
  EXPECT_THROW(run_case(*make_backend("cpu"), c), InputError);
  c.text.resize(10);  // one possible start
  EXPECT_NO_THROW(run_case(*make_backend("cpu"), c));
}

TEST(CpuBackend, KeepsANormThatIsNotANumberVisible) {
  const Operand scalars{
      "scalars", {kScalars}, {1, 2, 0, 1, 1, 0, 0, 0}, DType::f32, TensorRole::scalar};
  const OpCase c = make_case("clip", OpKind::clip_factor, ClipParams{1},
                             {{"sum", {1}, {std::nan("")}}, scalars}, {scalars});
  const Values got = run_case(*make_backend("cpu"), c);
  EXPECT_TRUE(std::isnan(got[1][std::size_t(Scalar::gradient_norm)]));
  EXPECT_TRUE(std::isnan(got[1][std::size_t(Scalar::clip)]));
}

TEST(NullBackend, SupportsEverythingAndTouchesNothing) {
  const auto backend = make_backend("null");
  const OpCase c = small_add();
  EXPECT_EQ(run_case(*backend, c), c.before);
  Op abstract;
  abstract.kind = OpKind::attention;
  EXPECT_TRUE(bool(backend->supports(abstract, {})));
}

TEST(MakeBackend, NamesTheKnownOnes) {
  try {
    make_backend("tpu");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "backend 'tpu' is not built in; known: null, cpu");
  }
}

Segment segment(std::int64_t offset, std::int64_t elements, bool decay, double norm_weight) {
  Segment s;
  s.offset = offset;
  s.elements = elements;
  s.decay = decay;
  s.norm_weight = norm_weight;
  return s;
}

// Arena of 24: segments [0,10), [10,13), [16,22); buckets [0,12) and [12,24).
Program arena_program(std::int64_t degree) {
  Program program;
  program.sharding_degree = degree;
  program.segments = {segment(0, 10, true, 1), segment(10, 3, false, 0.5), segment(16, 6, true, 1)};
  program.buckets = {{0, 12}, {12, 12}};
  return program;
}

using Row = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, double>;
std::vector<Row> rows(const Program& program, std::int64_t sharding) {
  Coordinates at = {};
  at[std::size_t(Axis::sharding)] = sharding;
  std::vector<Row> result;
  for (const OwnedRange& r : owned_ranges(program, at)) {
    result.emplace_back(r.arena_offset, r.state_offset, r.elements, r.decay, r.norm_weight);
  }
  return result;
}

TEST(OwnedRanges, AreTheSegmentsCutAtBucketsWithoutSharding) {
  const std::vector<Row> expected = {
      {0, 0, 10, true, 1}, {10, 10, 2, false, 0.5}, {12, 12, 1, false, 0.5}, {16, 16, 6, true, 1}};
  EXPECT_EQ(rows(arena_program(1), 0), expected);
  EXPECT_EQ(rows(arena_program(1), 1), expected);  // a coordinate means nothing without sharding
}

TEST(OwnedRanges, AreThisRanksPartOfEveryBucket) {
  // Parts of 6: rank 0 owns [0,6) and [12,18), rank 1 [6,12) and [18,24). Padding 13..15 and 22..23
  // counts in the state offsets.
  const std::vector<Row> first = {{0, 0, 6, true, 1}, {12, 6, 1, false, 0.5}, {16, 10, 2, true, 1}};
  const std::vector<Row> second = {{6, 0, 4, true, 1}, {10, 4, 2, false, 0.5}, {18, 6, 4, true, 1}};
  EXPECT_EQ(rows(arena_program(2), 0), first);
  EXPECT_EQ(rows(arena_program(2), 1), second);
}

}  // namespace
}  // namespace plimsoll
