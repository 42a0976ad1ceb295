// Every backward op of the CPU backend against central differences of the float64 forward
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "graph/gradient_rule.h"
#include "runtime/backend.h"
#include "tests/runtime/gradient_differences.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

/// The forward op of a backward case, fed with the case's own tensors.
struct ForwardOf {
  OpKind kind;
  /// By forward input: the backward input that holds it, or nothing: it enters linearly and its
  /// value does not matter (zeros).
  std::vector<std::optional<std::size_t>> inputs;
  /// By forward output: the backward input that holds its gradient.
  std::vector<std::size_t> output_gradients;
  /// Backward inputs that hold forward outputs, statistics without gradients, which come last.
  std::vector<std::size_t> statistics;
  /// By backward output: the forward input it is the gradient of.
  std::vector<std::size_t> gradients_of;
};

/// Reads a step of a kind's backward rule.
ForwardOf forward_of(OpKind kind, const RuleStep& step) {
  ForwardOf forward;
  forward.kind = kind;
  forward.inputs.resize(row(kind).operands.inputs.count);
  for (std::size_t i = 0; i < step.reads().size(); ++i) {
    const RuleOperand& operand = step.reads()[i];
    if (operand.role == RuleOperand::Role::input) forward.inputs[operand.position] = i;
    if (operand.role == RuleOperand::Role::output) forward.statistics.push_back(i);
    if (operand.role == RuleOperand::Role::output_gradient) forward.output_gradients.push_back(i);
  }
  forward.gradients_of.assign(step.gradients().begin(), step.gradients().end());
  return forward;
}

bool has_own_test(OpKind kind) {
  return kind == OpKind::softmax_backward || kind == OpKind::softmax_sinks_gradient ||
         kind == OpKind::sinks_gradient || kind == OpKind::soft_cap_backward ||
         kind == OpKind::cross_entropy_backward || kind == OpKind::dropout ||
         kind == OpKind::balance_experts_backward;
}

/// By op of a backward rule: the first forward op that has it in its rule.
const std::map<OpKind, ForwardOf>& forward_ops() {
  static const auto table = [] {
    std::map<OpKind, ForwardOf> forward_by_kind;
    for (std::size_t i = 0; i < kOpKinds; ++i) {
      if (row(OpKind(i)).simulated_only || row(OpKind(i)).op_class == OpClass::attention) continue;
      for (const RuleStep& step : gradient_rule(OpKind(i)).steps()) {
        const bool differentiates = step.kind && *step.kind != OpKind::cast;
        if (differentiates && !has_own_test(*step.kind))
          forward_by_kind.emplace(*step.kind, forward_of(OpKind(i), step));
      }
    }
    return forward_by_kind;
  }();
  return table;
}

/// Shape of a forward input that the backward op does not read: that of its gradient, or, for one
/// that has none, of the incoming gradient.
Shape unread_shape(const OpCase& c, const ForwardOf& forward, std::size_t input) {
  for (std::size_t i = 0; i < forward.gradients_of.size(); ++i) {
    if (forward.gradients_of[i] == input) return c.output(i).shape;
  }
  return c.input(forward.output_gradients[0]).shape;
}

/// By the rule, or of those parts that the op has.
std::vector<std::size_t> output_gradients(const OpCase& c, const ForwardOf& forward) {
  std::vector<std::size_t> gradients = forward.output_gradients;
  gradients.resize(std::min(gradients.size(), c.op.inputs.size()));
  return gradients;
}

OpCase forward_case(const OpCase& c, const ForwardOf& forward) {
  std::vector<Operand> inputs, outputs;
  for (std::size_t i = 0; i < forward.inputs.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    if (const auto from = forward.inputs[i]) {
      if (*from >= c.op.inputs.size()) continue;  // an optional operand that the case lacks
      inputs.push_back({name, c.input(*from).shape, c.input_values(*from), c.input(*from).dtype});
    } else {
      const Shape shape = unread_shape(c, forward, i);
      inputs.push_back({name, shape, std::vector<double>(std::size_t(elements(shape)), 0.0)});
    }
  }
  for (std::size_t from : output_gradients(c, forward)) {
    outputs.push_back({"out" + std::to_string(from), c.input(from).shape, {}});
  }
  for (std::size_t from : forward.statistics)
    outputs.push_back({"out" + std::to_string(from), c.input(from).shape, {}});
  OpCase result = make_case("forward", forward.kind, c.op.params, inputs, outputs);
  result.at = c.at;
  return result;
}

std::vector<OpCase> cases_where(const std::function<bool(const OpCase&)>& keep) {
  std::vector<OpCase> result;
  for (OpCase& c : op_cases(kTestSizes)) {
    if (keep(c)) result.push_back(std::move(c));
  }
  return result;
}

std::string case_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

/// Norms without a bias or a weight, and parts of a bias, have tests of their own below.
bool lacks_operands(const OpCase& c) {
  const bool norm =
      c.op.kind == OpKind::layer_norm_backward || c.op.kind == OpKind::rms_norm_backward;
  const auto* bias = std::get_if<GroupedBiasParams>(&c.op.params);
  return (norm && c.op.outputs.size() < row(c.op.kind).operands.outputs.count) ||
         (bias != nullptr && bias->ranks > 1);
}

class Backward : public testing::TestWithParam<OpCase> {};

TEST_P(Backward, EqualsDifferencesOfForward) {
  const OpCase& c = GetParam();
  const ForwardOf& forward = forward_ops().at(c.op.kind);
  OpCase f = forward_case(c, forward);
  const auto loss = [&] {
    Values values = f.before;
    run_reference(f, values);
    double sum = 0;
    const std::vector<std::size_t> gradients = output_gradients(c, forward);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      sum += dot(values[f.op.outputs[i].index()], c.input_values(gradients[i]));
    }
    return sum;
  };
  const auto got = gradients_by_backend(c);
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::vector<double>& x = f.before[f.op.inputs[forward.gradients_of[i]].index()];
    expect_near(got[i], differences(x, loss), c.output(i).name);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Backward, testing::ValuesIn(cases_where([](const OpCase& c) {
                           return forward_ops().count(c.op.kind) > 0 && !lacks_operands(c);
                         })),
                         case_name);

// Its backward reads the forward op's output, so the case is built from the forward op's input.
void expect_gradients_by_outputs(OpKind kind, OpKind gradient, std::size_t pairs) {
  const auto cases =
      cases_where([&](const OpCase& c) { return c.op.kind == kind || c.op.kind == gradient; });
  ASSERT_EQ(cases.size(), 2 * pairs);  // each forward, then backward
  for (std::size_t i = 0; i < cases.size(); i += 2) {
    OpCase forward = cases[i];
    const OpCase& backward = cases[i + 1];
    ASSERT_EQ(backward.op.kind, gradient);
    const auto loss = [&] {
      Values values = forward.before;
      run_reference(forward, values);
      return dot(values[forward.op.outputs[0].index()], backward.input_values(0));
    };
    expect_near(gradients_by_backend(backward)[0], differences(forward.before[0], loss),
                backward.name);
  }
}

TEST(SoftmaxBackward, EqualsDifferencesOfForward) {
  // causal, grouped, both ways, two windows, chunks, ALiBi, sinks, both
  expect_gradients_by_outputs(OpKind::softmax, OpKind::softmax_backward, 9);
}

TEST(SoftCapBackward, EqualsDifferencesOfForward) {
  expect_gradients_by_outputs(OpKind::soft_cap, OpKind::soft_cap_backward, 1);
}

// Its backward is the op itself.
TEST(Dropout, IsItsOwnGradient) {
  const auto cases = cases_where([](const OpCase& c) { return c.op.kind == OpKind::dropout; });
  ASSERT_GE(cases.size(), 4u);
  for (const OpCase& backward : cases) {
    OpCase forward = backward;
    forward.before[0] = normal_values(elements(forward.input(0).shape), 77);
    const auto loss = [&] {
      Values values = forward.before;
      run_reference(forward, values);
      return dot(values[1], backward.input_values(0));
    };
    expect_near(gradients_by_backend(backward)[0], differences(forward.before[0], loss),
                backward.name);
  }
}

/// Values of a tensor before the run become another case's operand.
Operand operand(const OpCase& c, std::size_t input, std::string name) {
  return {std::move(name), c.input(input).shape, c.input_values(input)};
}

class MatmulBackward : public testing::TestWithParam<OpCase> {
 protected:
  MatmulBackward()
      : c_(GetParam()),
        dc_{"dc", c_.output(0).shape, normal_values(elements(c_.output(0).shape), 99)} {}

  void expect_gradient(std::size_t input, const OpCase& backward) {
    const auto loss = [&] {
      Values values = c_.before;
      run_reference(c_, values);
      return dot(values[c_.op.outputs[0].index()], dc_.values);
    };
    std::vector<double>& x = c_.before[c_.op.inputs[input].index()];
    expect_near(gradients_by_backend(backward)[0], differences(x, loss), c_.input(input).name);
  }

  OpCase c_;
  Operand dc_;
};

// dA = dC op(B)^T, transposed where a is stored transposed.
TEST_P(MatmulBackward, InputGradient) {
  const auto forward = std::get<MatmulParams>(c_.op.params);
  const Operand b = operand(c_, 1, "b"), da{"da", c_.input(0).shape, {}};
  MatmulParams params{.batch_dims = forward.batch_dims, .scale = forward.scale};
  if (forward.transpose_a) {
    params.transpose_a = forward.transpose_b;
    params.transpose_b = true;
    expect_gradient(0, make_case("da", OpKind::matmul, params, {b, dc_}, {da}));
  } else {
    params.transpose_b = !forward.transpose_b;
    expect_gradient(0, make_case("da", OpKind::matmul, params, {dc_, b}, {da}));
  }
}

// dB += op(A)^T dC, transposed where b is stored transposed.
TEST_P(MatmulBackward, WeightGradient) {
  const auto forward = std::get<MatmulParams>(c_.op.params);
  const Shape shape = c_.input(1).shape;
  const Operand a = operand(c_, 0, "a"), db{"db", shape, normal_values(elements(shape), 98)};
  MatmulParams params{.batch_dims = forward.batch_dims, .accumulate = true, .scale = forward.scale};
  if (forward.transpose_b) {
    params.transpose_a = true;
    params.transpose_b = forward.transpose_a;
    expect_gradient(1, make_case("db", OpKind::matmul, params, {dc_, a}, {db}));
  } else {
    params.transpose_a = !forward.transpose_a;
    expect_gradient(1, make_case("db", OpKind::matmul, params, {a, dc_}, {db}));
  }
}

TEST_P(MatmulBackward, BiasGradient) {
  if (c_.op.inputs.size() < 3) return;  // a product without bias has nothing to show here
  const Operand dbias{"dbias", c_.input(2).shape, normal_values(elements(c_.input(2).shape), 97)};
  expect_gradient(2, make_case("dbias", OpKind::bias_gradient, {}, {dc_}, {dbias}));
}

INSTANTIATE_TEST_SUITE_P(Table, MatmulBackward, testing::ValuesIn(cases_where([](const OpCase& c) {
                           return c.op.kind == OpKind::matmul;
                         })),
                         case_name);

/// Cross entropy over `degree` shards of the vocabulary, with the all-reduces between the ops.
class ShardedLoss {
 public:
  ShardedLoss(std::int64_t rows, std::int64_t vocabulary, std::int64_t degree, std::int64_t columns)
      : params_{vocabulary, degree, 1.0 / double(rows)}, rows_(rows), columns_(columns) {
    std::vector<double> ids;
    for (std::int64_t i = 0; i < rows; ++i) ids.push_back(double((i * 17 + 3) % vocabulary));
    targets_ = {"targets", {rows}, ids, DType::i32};
    for (std::int64_t part = 0; part < degree; ++part) {
      logits_.push_back(normal_values(rows * columns, 5 + std::uint64_t(part), 3));
    }
  }

  std::vector<double>& logits(std::size_t part) { return logits_[part]; }

  /// The loss by `run` (reference or backend); leaves log_sum_exp.
  double loss(const std::function<Values(const OpCase&)>& run) {
    std::vector<double> max(std::size_t(rows_), -HUGE_VAL), stats(std::size_t(2 * rows_), 0.0);
    for (std::size_t part = 0; part < logits_.size(); ++part) {
      const auto out = run(place(
          make_case("max", OpKind::logits_max, params_, {shard(part)}, {{"max", {rows_}, {}}}),
          part));
      for (std::size_t i = 0; i < max.size(); ++i) max[i] = std::max(max[i], out.back()[i]);
    }
    const Operand max_in{"max", {rows_}, max};
    for (std::size_t part = 0; part < logits_.size(); ++part) {
      const auto out =
          run(place(make_case("sum", OpKind::logits_sum_exp, params_,
                              {shard(part), max_in, targets_}, {{"stats", {rows_, 2}, {}}}),
                    part));
      for (std::size_t i = 0; i < stats.size(); ++i) stats[i] += out.back()[i];
    }
    const Operand scalars{
        "scalars", {kScalars}, {1, 0, 0, 1, 1, 0, 0, 0}, DType::f32, TensorRole::scalar};
    const auto out = run(make_case("loss", OpKind::token_loss, params_,
                                   {max_in, {"stats", {rows_, 2}, stats}, scalars},
                                   {{"log_sum_exp", {rows_}, {}}, scalars}));
    log_sum_exp_ = out[3];
    return out[2][std::size_t(Scalar::loss)];
  }

  OpCase backward(std::size_t part) const {
    return place(make_case("backward", OpKind::cross_entropy_backward, params_,
                           {shard(part), targets_, {"log_sum_exp", {rows_}, log_sum_exp_}},
                           {{"dlogits", {rows_, columns_}, {}}}),
                 part);
  }

 private:
  Operand shard(std::size_t part) const { return {"logits", {rows_, columns_}, logits_[part]}; }
  static OpCase place(OpCase c, std::size_t part) {
    c.at[std::size_t(Axis::mp)] = std::int64_t(part);
    return c;
  }

  VocabularyParams params_;
  std::int64_t rows_, columns_;
  Operand targets_;
  std::vector<std::vector<double>> logits_;
  std::vector<double> log_sum_exp_;
};

Values run_by_reference(const OpCase& c) {
  Values values = c.before;
  run_reference(c, values);
  return values;
}

// Whole vocabulary of 23; padded to 26; and in halves of 12, where one column is padding.
class CrossEntropy : public testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};

TEST_P(CrossEntropy, BackwardEqualsDifferencesOfTheWholeLoss) {
  const auto [degree, columns] = GetParam();
  ShardedLoss loss(6, 23, degree, columns);
  const auto backend = make_backend("cpu");
  const double by_reference = loss.loss(run_by_reference);
  const double by_backend = loss.loss([&](const OpCase& c) { return run_case(*backend, c); });
  EXPECT_NEAR(by_backend, by_reference, 2e-6 * by_reference);
  for (std::size_t part = 0; part < std::size_t(degree); ++part) {
    const auto got = gradients_by_backend(loss.backward(part));
    const auto expected =
        differences(loss.logits(part), [&] { return loss.loss(run_by_reference); });
    expect_near(got[0], expected, "dlogits");
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, CrossEntropy,
                         testing::Values(std::pair{std::int64_t{1}, std::int64_t{23}},
                                         std::pair{std::int64_t{1}, std::int64_t{26}},
                                         std::pair{std::int64_t{2}, std::int64_t{12}}));

// A gradient check of every backward kind exists: a new one that no rule names fails here.
TEST(Backward, CoversEveryBackwardKind) {
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = OpKind(i);
    const std::string name(to_text(kind));
    if (!name.ends_with("_backward") || row(kind).simulated_only) continue;
    if (row(kind).op_class == OpClass::attention) continue;  // flash_attention_test.cpp
    EXPECT_TRUE(has_own_test(kind) || forward_ops().count(kind) > 0) << name;
  }
  EXPECT_EQ(forward_ops().count(OpKind::bias_gradient), 1u);
}

}  // namespace
}  // namespace plimsoll
