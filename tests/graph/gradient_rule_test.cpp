// Gradient rules are parsed from the op table's text.
#include "graph/gradient_rule.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Role = RuleOperand::Role;

TEST(GradientRule, NamesTheOpItsOperandsAndWhoseGradientsItGives) {
  // dx, dgamma = rms_norm_backward(dy, x, gamma, rstd)
  const GradientRule& rule = gradient_rule(OpKind::rms_norm);
  ASSERT_EQ(rule.steps().size(), 1u);
  const RuleStep& step = rule.steps()[0];
  EXPECT_EQ(step.kind, OpKind::rms_norm_backward);
  const std::vector<RuleOperand> reads(step.reads().begin(), step.reads().end());
  EXPECT_EQ(
      reads,
      (std::vector<RuleOperand>{
          {Role::output_gradient, 0}, {Role::input, 0}, {Role::input, 1}, {Role::output, 1}}));
  EXPECT_EQ(std::vector<int>(step.gradients().begin(), step.gradients().end()),
            (std::vector<int>{0, 1}));
}

TEST(GradientRule, PassesGradientsOn) {
  // da = dy; db = dy
  const GradientRule& rule = gradient_rule(OpKind::add);
  ASSERT_EQ(rule.steps().size(), 2u);
  EXPECT_FALSE(rule.steps()[1].kind);
  EXPECT_EQ(rule.steps()[1].gradients()[0], 1);
  EXPECT_EQ(rule.steps()[1].reads()[0], (RuleOperand{Role::output_gradient, 0}));
}

TEST(GradientRule, StepsReadGradientsOfStepsBefore) {
  // dx = bias_gelu_backward(dy, x, bias); dbias = bias_gradient(dx)
  const GradientRule& rule = gradient_rule(OpKind::bias_gelu);
  ASSERT_EQ(rule.steps().size(), 2u);
  EXPECT_EQ(rule.steps()[1].reads()[0], (RuleOperand{Role::input_gradient, 0}));
}

TEST(GradientRule, IsEmptyWhereThePassHasIt) {
  EXPECT_EQ(row(OpKind::matmul).backward, kInBackwardPass);
  EXPECT_TRUE(gradient_rule(OpKind::matmul).steps().empty());
  EXPECT_TRUE(gradient_rule(OpKind::adamw).steps().empty());
}

// The op table says which inputs an op accumulates into; a rule gives it parameters for them.
TEST(GradientRule, AccumulatesIntoGradientsOfParametersOnly) {
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const Signature& forward = row(OpKind(i)).operands;
    for (const RuleStep& step : gradient_rule(OpKind(i)).steps()) {
      if (!step.kind) continue;
      for (std::size_t g = 0; g < step.gradients().size(); ++g) {
        const std::string_view name = forward.inputs[step.gradients()[g]].name;
        const bool parameter = name == "table" || name == "gamma" || name == "beta" ||
                               name == "bias" || name == "weight" || name == "sinks";
        EXPECT_EQ(row(*step.kind).operands.outputs[g].accumulates, parameter)
            << to_text(OpKind(i)) << ": " << name;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
