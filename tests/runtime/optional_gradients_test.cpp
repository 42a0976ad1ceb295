// Gradients that the rules of the op table do not give alone: of sinks, of norms without a bias or
// a weight, and of parts of a bias.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/runtime/attention_cases.h"
#include "tests/runtime/gradient_differences.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_reference.h"

namespace plimsoll {
namespace {

/// Compares gradients with differences of the loss of a forward case, whose first output has the
/// gradient that is the first input of `backward`. `pairs`: output of `backward`, input of forward.
void expect_differences(OpCase forward, const OpCase& backward,
                        const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  const auto loss = [&] {
    Values values = forward.before;
    run_reference(forward, values);
    return dot(values[forward.op.outputs[0].index()], backward.input_values(0));
  };
  const auto got = gradients_by_backend(backward);
  for (const auto& [output, input] : pairs) {
    expect_near(got[output], differences(forward.before[forward.op.inputs[input].index()], loss),
                backward.name + " " + backward.output(output).name);
  }
}

OpCase case_named(const std::string& name) {
  const auto cases = op_cases(kTestSizes);
  const auto found = std::ranges::find(cases, name, &OpCase::name);
  INVARIANT(found != cases.end(), name);
  return *found;
}

TEST(NormBackward, WithoutBiasOrWeightEqualsDifferences) {
  expect_differences(case_named("layer_norm/no_bias"), case_named("layer_norm_backward/no_bias"),
                     {{0, 0}, {1, 1}});
  expect_differences(case_named("rms_norm/no_weight"), case_named("rms_norm_backward/no_weight"),
                     {{0, 0}});
}

TEST(NormBackward, OfAFrozenWeightEqualsDifferences) {
  expect_differences(case_named("layer_norm"), case_named("layer_norm_backward/frozen"), {{0, 0}});
  expect_differences(case_named("rms_norm"), case_named("rms_norm_backward/frozen"), {{0, 0}});
}

TEST(SinksGradient, OfASoftmaxEqualsDifferences) {
  for (const std::string name : {"/sinks", "/window_sinks"})
    expect_differences(case_named("softmax" + name), case_named("softmax_sinks_gradient" + name),
                       {{0, 1}});
}

TEST(SinksGradient, BehindAKernelEqualsDifferences) {
  expect_differences(case_named("add_sinks"), case_named("sinks_gradient"), {{0, 2}});
}

// Two ranks have half of the bias each. A rank's dweights is of its half, and dbias of both.
TEST(GroupedBias, PartsOfABiasEqualDifferencesOfTheirSum) {
  OpCase forward = case_named("grouped_bias_add/weighted");
  const OpCase backward = case_named("grouped_bias_backward/weighted");
  expect_differences(forward, backward, {{1, 3}});
  forward.op.params = GroupedBiasParams{.ranks = 1};
  expect_differences(forward, backward, {{0, 1}});
}

// With sinks behind a kernel, its backward reads their results in place of its own.
TEST(AddSinks, BackwardOfAttentionBeforeThemEqualsDifferencesOfBoth) {
  const AttentionSizes sizes{2, 5, 4, 2, 8};
  const auto both = flash_attention_cases(sizes);
  OpCase forward = both[0];
  OpCase sunk =
      make_case("sunk", OpKind::add_sinks, {},
                {result(forward, 0), result(forward, 1), normal("sinks", {4}, 9)},
                {blank("y", forward.output(0).shape), blank("sums", forward.output(1).shape)});
  // Rounded to f32 nowhere, for the differences.
  const auto results = [&] {
    Values values = forward.before;
    run_reference(forward, values);
    for (const std::size_t i : {0u, 1u})
      sunk.before[sunk.op.inputs[i].index()] = values[forward.op.outputs[i].index()];
    Values behind = sunk.before;
    run_reference(sunk, behind);
    return std::pair(behind[sunk.op.outputs[0].index()], behind[sunk.op.outputs[1].index()]);
  };
  OpCase backward = both[1];
  const std::vector<double> dy = backward.input_values(0);
  const auto loss = [&] { return dot(results().first, dy); };
  const std::size_t inputs = backward.op.inputs.size();
  std::tie(backward.before[backward.op.inputs[inputs - 2].index()],
           backward.before[backward.op.inputs[inputs - 1].index()]) = results();
  const auto got = gradients_by_backend(backward);
  for (const std::size_t i : {0u, 1u}) {
    expect_near(got[i], differences(forward.before[forward.op.inputs[i].index()], loss),
                backward.output(i).name);
  }
}

}  // namespace
}  // namespace plimsoll
