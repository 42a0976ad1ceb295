// Jobs with examples of several lengths are predicted by their slowest rank.
#include <gtest/gtest.h>

#include "graph/op_table.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Target target_with_lengths(std::vector<LengthShare> lengths, std::int64_t devices = 8) {
  Job job = read_job("llama3-8b");
  job.global_batch = 64;
  job.lengths = std::move(lengths);
  const CostModel costs(preset_cluster("dgx-h100-80gb"), std::nullopt,
                        framework_by_name("megatron-lm"));
  return {job, costs, devices};
}
Prediction predicted_step(const Target& target, const char* strategy) {
  return evaluate(target, parse_strategy(strategy)).prediction;
}
const std::vector<LengthShare> kMixedLengths = {{512, 8}, {2048, 4}, {8192, 1}};

TEST(ExamplesPrediction, IsThatOfSequencesWhereEachIsOne) {
  const Prediction whole = predicted_step(target_with_lengths({}), "dp=8");
  const Prediction one = predicted_step(target_with_lengths({{8192, 1}}), "dp=8");
  EXPECT_EQ(one.step_time, whole.step_time);
  EXPECT_EQ(one.step_time_high, whole.step_time_high);
  EXPECT_EQ(one.mfu, whole.mfu);
}

TEST(ExamplesPrediction, LeavesOutWhatExamplesDoNotSee) {
  const Prediction whole = predicted_step(target_with_lengths({}), "dp=8");
  const Prediction shorter = predicted_step(target_with_lengths({{1024, 1}}), "dp=8");
  EXPECT_LT(shorter.step_time, whole.step_time);
  EXPECT_GT(shorter.tokens_per_second, whole.tokens_per_second);
  EXPECT_GT(shorter.mfu, 0);
  const Target mixed = target_with_lengths(kMixedLengths);
  const Prediction p = predicted_step(mixed, "dp=8");
  EXPECT_DOUBLE_EQ(p.tokens_per_second, double(tokens_per_step(mixed.job)) / p.step_time.value());
}

TEST(ExamplesPrediction, HasAttentionOfTheSlowestRank) {
  const Target target = target_with_lengths(kMixedLengths);
  const Strategy strategy = parse_strategy("dp=8");
  const double slowest = slowest_rank(target, strategy).mean;
  EXPECT_GT(slowest, 1.02);
  EXPECT_DOUBLE_EQ(slowest_rank(target, parse_strategy("mp=8")).mean, 1);
  // Ranks that gather layers together, and those that send tokens to each other, wait more often.
  EXPECT_GT(slowest_rank(target, parse_strategy("sharding_degree=8,sharding_stage=3")).mean,
            slowest);
  EXPECT_GT(slowest_rank(target, parse_strategy("cp=2,dp=4")).mean,
            slowest_rank(target, parse_strategy("cp=2,dp=4,context_exchange=all_to_all")).mean);
  const CostModel costs = costs_of(target, strategy), mean = costs_of_layers(target, strategy);
  std::size_t seen = 0;
  for (const Program& program : lay_out(target, strategy, Proof::none).programs) {
    for (const Routine& routine : program.routines) {
      for (const Op& op : routine.ops) {
        const OpClass kind = row(op.kind).op_class;
        if (kind != OpClass::attention && kind != OpClass::matmul) continue;
        const double longer =
            costs.local(op, routine.tensors).time / mean.local(op, routine.tensors).time;
        EXPECT_NEAR(longer, kind == OpClass::attention ? slowest : 1, 1e-9);
        seen += kind == OpClass::attention;
      }
    }
  }
  EXPECT_GT(seen, 0u);
}

TEST(ExamplesPrediction, HasAWiderInterval) {
  const Prediction equal = predicted_step(target_with_lengths({{1024, 1}}), "dp=8");
  const Prediction mixed = predicted_step(target_with_lengths(kMixedLengths), "dp=8");
  EXPECT_GT(mixed.step_time_high / mixed.step_time, equal.step_time_high / equal.step_time);
  EXPECT_LT(mixed.step_time_low / mixed.step_time, equal.step_time_low / equal.step_time);
}

}  // namespace
}  // namespace plimsoll
