// Every op of the CPU backend against the float64 reference, and the edges of the backends.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/op_table.h"
#include "runtime/backend.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_expectations.h"
#include "tests/runtime/op_runner.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

class CpuOp : public testing::TestWithParam<SharedCase> {};

TEST_P(CpuOp, EqualsFloat64ReferenceAndRepeatsBitForBit) {
  expect_reference(*make_backend("cpu"), *GetParam());
}

INSTANTIATE_TEST_SUITE_P(Table, CpuOp, testing::ValuesIn(shared(cases_of_all_types())),
                         op_case_name);

TEST(OpCases, CoverEveryKindTheCpuBackendHas) {
  const auto backend = make_backend("cpu");
  std::set<OpKind> covered;
  for (const OpCase& c : op_cases(kTestSizes)) covered.insert(c.op.kind);
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    Op op;
    op.kind = OpKind(i);
    const OpClass op_class = row(op.kind).op_class;
    if (op_class == OpClass::attention) continue;  // flash_attention_test.cpp
    const bool has_kernel = (op_class == OpClass::matmul || op_class == OpClass::memory_bound ||
                             op_class == OpClass::to_host || op_class == OpClass::to_device ||
                             op_class == OpClass::host_memory) &&
                            !row(op.kind).simulated_only;
    EXPECT_EQ(covered.count(op.kind) > 0, has_kernel) << to_text(op.kind);
    if (has_kernel) continue;
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
            "operand b is [2], not [n] with n = 3");
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
    EXPECT_TRUE(states(error.what(), {"bias_gradient", "448 bytes", "64"}));
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
