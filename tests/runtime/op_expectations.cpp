// Kernels of a backend are run on the op cases and compared with expected values.
#include "tests/runtime/op_expectations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/op_table.h"
#include "tests/runtime/op_families.h"
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

/// f32 arithmetic may take a value that is next to the border of two codes over it: of 10,000
/// values hardly one is so near.
void expect_codes(const std::vector<double>& got, const std::vector<double>& expected) {
  std::size_t others = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1) << i;
    others += got[i] != expected[i] ? 1 : 0;
  }
  EXPECT_LE(others, got.size() / 10'000);
}

}  // namespace

std::vector<SharedCase> shared(std::vector<OpCase> cases) {
  std::vector<SharedCase> result;
  for (OpCase& c : cases) result.push_back(std::make_shared<const OpCase>(std::move(c)));
  return result;
}

std::vector<OpCase> cases_of_all_types() {
  std::vector<OpCase> cases = op_cases(kTestSizes);
  const std::size_t count = cases.size();
  for (DType type : {DType::bf16, DType::f16}) {
    for (std::size_t i = 0; i < count; ++i) {
      const OpKind kind = cases[i].op.kind;
      const bool typed = kind == OpKind::cast || row(kind).writes_parameters;
      if (typed || kind == OpKind::cast_parameters) continue;  // have cases of their own
      if (auto c = in_type(cases[i], type)) cases.push_back(*std::move(c));
      if (auto c = in_type(cases[i], type, true)) cases.push_back(*std::move(c));
    }
  }
  return cases;
}

std::vector<OpCase> example_cases() {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases(kTestSizes)) {
    const OpKind kind = c.op.kind;
    const bool changes = kind == OpKind::softmax || kind == OpKind::rotary ||
                         kind == OpKind::rotary_backward || kind == OpKind::position_add ||
                         kind == OpKind::position_add_backward || kind == OpKind::token_loss ||
                         kind == OpKind::cross_entropy_backward;
    const auto* attention = std::get_if<AttentionParams>(&c.op.params);
    if (!changes || (attention != nullptr && !attention->causal)) continue;
    c.name += "/examples";
    if (auto* loss = std::get_if<VocabularyParams>(&c.op.params))
      loss->sequence = kTestSizes.sequence;
    give_examples(c, kTestSizes.batch, kTestSizes.sequence);
    for (const DType type : {DType::bf16, DType::f16}) {
      if (auto rounded = in_type(c, type)) cases.push_back(*std::move(rounded));
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<OpCase> large_cases() {
  constexpr OpSizes kLarge{2, 72, 9, 64, 1030, 700, 70'000, false};
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases(kLarge)) {
    if (row(c.op.kind).op_class == OpClass::matmul) continue;
    const bool typed = c.op.kind == OpKind::cast || row(c.op.kind).writes_parameters ||
                       c.op.kind == OpKind::cast_parameters;
    auto rounded = typed || cases.size() % 2 == 0 ? std::nullopt : in_type(c, DType::bf16);
    cases.push_back(rounded ? *std::move(rounded) : std::move(c));
  }
  return cases;
}

void expect_reference(Backend& backend, const OpCase& c) {
  const Verdict verdict = backend.supports(c.op, c.tensors);
  ASSERT_TRUE(bool(verdict)) << verdict.reason();
  Values expected = c.before;
  run_reference(c, expected);
  PreparedCase prepared(backend, c);
  prepared.run();
  const Values first = prepared.values();
  prepared.reset();
  prepared.run();
  const Values second = prepared.values();
  // Attention rounds its probabilities and their gradients before it multiplies them.
  const double roundings = row(c.op.kind).op_class == OpClass::attention ? 2 : 1;
  for (TensorId id : c.op.outputs) {
    const Tensor& tensor = c.tensors[id.index()];
    EXPECT_EQ(first[id.index()], second[id.index()]) << tensor.name;
    if (c.op.kind == OpKind::adamw_8bit && tensor.dtype == DType::u8) {
      expect_codes(first[id.index()], expected[id.index()]);
      continue;
    }
    EXPECT_LE(relative_difference(first[id.index()], expected[id.index()]),
              roundings * tolerance(tensor.dtype))
        << tensor.name;
  }
  const std::optional<std::size_t> in_place = row(c.op.kind).in_place;
  for (std::size_t i = 0; i < c.op.inputs.size(); ++i) {
    const TensorId id = c.op.inputs[i];
    const bool written =
        i == in_place || std::count(c.op.outputs.begin(), c.op.outputs.end(), id) > 0;
    if (written) continue;
    EXPECT_EQ(first[id.index()], c.before[id.index()]) << c.tensors[id.index()].name;
  }
}

std::string op_case_name(const testing::TestParamInfo<SharedCase>& info) {
  std::string name = info.param->name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace plimsoll
