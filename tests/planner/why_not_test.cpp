// Asked choices are set against searches, evaluations, and what a plan says of its runners-up.
#include "planner/explain/why_not.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/explain/explain_text.h"
#include "planner/search/search.h"
#include "tests/planner/random_problems.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Plan plan_of(const Target& target, Fixed held = {}) {
  return search(SearchRequest{target, std::move(held)});
}

Fixed fixed_of(const std::vector<StrategyField>& fields) {
  Fixed fixed;
  for (const StrategyField& field : fields) fixed.emplace_back(field.key, field.value);
  return fixed;
}

/// Returns nano_target(4) with so much memory on each device.
Target with_memory_of(Bytes memory) {
  Cluster cluster = small_cluster();
  cluster.device.memory = memory;
  return nano_target(4, cluster);
}

bool runs(const Target& target, const Strategy& strategy) {
  if (!legal(target, strategy)) return false;
  return fits_devices(target, strategy, evaluate(target, strategy).prediction.stages);
}

TEST(WhyNot, AskedForThePlanItselfItSaysSo) {
  const Target target = nano_target(4);
  const Plan plan = plan_of(target);
  const ExplainRequest request{target, plan.strategy};
  for (const StrategyField& field : shown_fields(plan.strategy)) {
    const WhyNot answer = why_not(request, fixed_of({field}));
    EXPECT_TRUE(answer.is_plan) << field.key;
    EXPECT_NE(why_not_text(target, answer).find("this is the plan"), std::string::npos);
  }
}

TEST(WhyNot, SharedExpertsComputeBesideNothingWhereNoRowsTravel) {
  const Strategy plan = parse_strategy("dp=4,ep=4,overlap_shared_experts=true");
  EXPECT_TRUE(with_choices(plan, {{"micro_batch", "2"}}, 4).experts.overlap_shared);
  EXPECT_FALSE(with_choices(plan, {{"ep", "1"}}, 4).experts.overlap_shared);
  EXPECT_FALSE(with_choices(plan, {{"expert_dispatch", "all_gather"}}, 4).experts.overlap_shared);
}

TEST(WhyNot, TokensAreSplitOverMpIfExpertsHaveRanksOfTheirOwn) {
  const Strategy plan = parse_strategy("dp=4,ep=4");
  EXPECT_TRUE(with_choices(plan, {{"mp", "2"}}, 4).tokens.sequence_parallel);
  EXPECT_FALSE(with_choices(plan, {{"mp", "2"}, {"sequence_parallel", "false"}}, 4)
                   .tokens.sequence_parallel);
  EXPECT_FALSE(with_choices(plan, {{"mp", "2"}, {"ep", "1"}}, 4).tokens.sequence_parallel);
}

TEST(WhyNot, OtherDegreesRecomputeNothingIfTheyFitWithout) {
  const auto changed = [](const Target& target, const Fixed& asked) {
    return why_not({target, parse_strategy("dp=4,recompute=full")}, asked).changed;
  };
  const Target target = nano_target(4);
  EXPECT_EQ(changed(target, {{"mp", "2"}}).recompute, Recompute::none);
  EXPECT_EQ(changed(target, {{"mp", "2"}, {"recompute", "full"}}).recompute, Recompute::full);
  EXPECT_EQ(changed(target, {{"micro_batch", "2"}}).recompute, Recompute::full);
  const Strategy repeats = changed(target, {{"mp", "2"}, {"recompute", "full"}});
  const Footprint footprint = lay_out(target, repeats, Proof::none);
  const Target full = with_memory_of(largest(footprint.stages, &StagePrediction::reserved) +
                                     outside_program(target, repeats));
  EXPECT_EQ(changed(full, {{"mp", "2"}}).recompute, Recompute::full);
}

TEST(WhyNot, TellsRunnersUpApartAsThePlanDoes) {
  const Target target = nano_target(4);
  const Plan plan = plan_of(target);
  const ExplainRequest request{target, plan.strategy};
  ASSERT_GE(plan.runners_up.size(), 4u);
  for (const RunnerUp& loser : plan.runners_up) {
    const WhyNot answer =
        why_not(request, fixed_of(differing_fields(loser.strategy, plan.strategy)));
    EXPECT_EQ(answer.changed, loser.strategy) << strategy_summary(loser.strategy);
    ASSERT_TRUE(answer.as_asked);
    EXPECT_EQ(answer.as_asked->step.prediction.step_time, loser.step_time);
    EXPECT_EQ(answer.as_asked->ratio.tied, loser.ratio.tied);
    EXPECT_DOUBLE_EQ(answer.as_asked->ratio.low, loser.ratio.low);
    EXPECT_DOUBLE_EQ(answer.as_asked->ratio.high, loser.ratio.high);
    const std::string ratio = ratio_text(loser.step_time, plan.prediction.step_time, loser.ratio);
    EXPECT_EQ(ratio.ends_with(")"), loser.ratio.tied) << ratio;
    for (const std::string& text : {why_not_text(target, answer), why_not_brief(target, answer)})
      EXPECT_NE(text.find(ratio), std::string::npos) << ratio << "\n" << text;
  }
}

TEST(WhyNot, FindsTheBestPlanWithTheChoices) {
  const Target target = nano_target(4);
  const Plan plan = plan_of(target);
  const ExplainRequest request{target, plan.strategy};
  for (const Fixed& asked : {Fixed{{"mp", "4"}}, Fixed{{"pp", "2"}, {"micro_batch", "1"}},
                             Fixed{{"recompute", "full"}}}) {
    const WhyNot answer = why_not(request, asked);
    const Plan best = plan_of(target, asked);
    ASSERT_TRUE(answer.best);
    EXPECT_TRUE(answer.best_is_proven);
    EXPECT_EQ(answer.best->step.strategy, best.strategy);
    EXPECT_EQ(answer.best->step.prediction.step_time, best.prediction.step_time);
    EXPECT_GE(best.prediction.step_time, plan.prediction.step_time);
    // All that was asked is as it was asked, in both answers.
    for (const auto& [key, value] : asked) {
      EXPECT_EQ(field_text(answer.changed, key), value);
      EXPECT_EQ(field_text(answer.best->step.strategy, key), value);
    }
  }
}

/// The plan came from elsewhere, and is faster than all that the search for the best may try.
TEST(WhyNot, TheBestIsNeverSlowerThanThePlanWithTheChoice) {
  const Target target = nano_target(4);
  const Plan plan = plan_of(target);
  ASSERT_NE(plan.strategy.mp, 4);
  const std::string other = plan.strategy.micro_batch == 1 ? "2" : "1";
  const WhyNot answer = why_not({target, plan.strategy, {{{"mp", "4"}}}}, {{"micro_batch", other}});
  ASSERT_TRUE(answer.as_asked);
  ASSERT_TRUE(answer.best);
  EXPECT_EQ(answer.best->step.strategy, answer.changed);
  const Plan held = plan_of(target, {{"mp", "4"}, {"micro_batch", other}});
  EXPECT_LT(answer.best->step.prediction.step_time, held.prediction.step_time);
}

TEST(WhyNot, KeepsWhatThePlanHeldUnlessItIsAsked) {
  const Target target = nano_target(4);
  const Fixed held = {{"pp", "2"}, {"micro_batch", "1"}};
  const Plan plan = plan_of(target, held);
  const ExplainRequest request{target, plan.strategy, held};
  const WhyNot answer = why_not(request, {{"micro_batch", "2"}});
  EXPECT_EQ(answer.best->step.strategy,
            plan_of(target, {{"pp", "2"}, {"micro_batch", "2"}}).strategy);
}

TEST(WhyNot, NamesTheRuleAndTheLeastChangesWhereAChoiceIsIllegal) {
  const Target target = nano_target(4);
  const Plan plan = plan_of(target);
  const ExplainRequest request{target, plan.strategy};
  const WhyNot answer = why_not(request, {{"mp", "3"}});
  EXPECT_FALSE(answer.as_asked);
  EXPECT_FALSE(answer.best);
  EXPECT_EQ(answer.rule, legal(target, answer.changed).reason());
  EXPECT_FALSE(answer.rule.empty());
  // No strategy has three ranks of mp on four devices, so that this choice itself must change.
  EXPECT_FALSE(answer.least.keeps_asked);
  EXPECT_TRUE(answer.least.proven);
  ASSERT_FALSE(answer.least.found.empty());
  for (const AssessedChange& change : answer.least.found) {
    EXPECT_TRUE(runs(target, change.strategy)) << strategy_summary(change.strategy);
    EXPECT_EQ(change.step_time, evaluate(target, change.strategy).prediction.step_time);
    EXPECT_NE(change.strategy, plan.strategy);  // it is known already
  }
}

TEST(WhyNot, NamesTheLeastChangesWhereAChoiceDoesNotFit) {
  const Target roomy = nano_target(4);
  const Strategy chosen = parse_strategy("sharding_degree=4,micro_batch=4");
  const Strategy asked = parse_strategy("sharding_degree=1,dp=4,micro_batch=4");
  const auto need = [&](const Strategy& strategy) {
    const Footprint footprint = lay_out(roomy, strategy, Proof::none);
    return largest(footprint.stages, &StagePrediction::reserved) + outside_program(roomy, strategy);
  };
  ASSERT_LT(need(chosen), need(asked));
  const Target target = with_memory_of(need(asked) - Bytes(1));
  const ExplainRequest request{target, chosen};
  const WhyNot answer = why_not(request, {{"sharding_degree", "1"}});
  EXPECT_EQ(answer.changed, asked);
  ASSERT_TRUE(answer.as_asked);
  EXPECT_FALSE(answer.as_asked->step.fits);
  const Filling& fullest = answer.as_asked->step.fullest.filling;
  EXPECT_EQ(fullest.taken(), fullest.capacity + Bytes(1));
  EXPECT_NE(why_not_text(target, answer).find("1 B too many"), std::string::npos);
  ASSERT_FALSE(answer.least.found.empty());
  EXPECT_TRUE(answer.least.keeps_asked);
  EXPECT_EQ(answer.least.choices, 1u);
  for (const AssessedChange& change : answer.least.found) {
    EXPECT_TRUE(runs(target, change.strategy)) << strategy_summary(change.strategy);
    EXPECT_EQ(change.strategy.sharding_degree, 1);
    EXPECT_LE(change.need, target.cluster().device.memory);
  }
  WhyNot ended = answer;
  ended.least = {};
  for (const auto text : {why_not_text, why_not_brief}) {
    EXPECT_EQ(text(target, ended).find("not looked at to the end"), std::string::npos);
    WhyNot unproven = ended;
    unproven.least.proven = false;
    EXPECT_NE(text(target, unproven).find("not looked at to the end"), std::string::npos);
  }
}

TEST(WhyNot, TwoChoicesChangeOnlyWhereNoSingleOneHelps) {
  const Target roomy = nano_target(4);
  const Strategy chosen = parse_strategy("sharding_degree=4");
  const Fixed asked = {{"dp", "4"}, {"sharding_degree", "1"}, {"micro_batch", "4"}};
  int twice = 0;
  for (std::int64_t kib = 2200; kib <= 7000; kib += 400) {
    const Target target = with_memory_of(Bytes(kib << 10));
    const ExplainRequest request{target, chosen};
    const Strategy changed = with_choices(chosen, asked, 4);
    const PlanTime plan = time_of(roomy, explain_step(roomy, chosen));
    const LeastChanges least = least_changes_of(request, changed, asked, plan);
    for (const AssessedChange& change : least.found) EXPECT_TRUE(runs(target, change.strategy));
    if (least.found.empty() || least.choices == 1) continue;
    ++twice;
    for (const Fixed& single : neighbours(target, changed, Reach::to_fit)) {
      if (least.keeps_asked == share_a_key(single, asked)) continue;
      EXPECT_FALSE(runs(target, with_choices(changed, single, 4))) << kib << " " << single[0].first;
    }
  }
  EXPECT_GT(twice, 0);
}

TEST(Neighbours, AreAsTheyWereAskedAndAllDifferent) {
  std::mt19937_64 random(22);
  for (int i = 0; i < problems_to_draw(40); ++i) {
    const Problem problem = random_problem(random);
    const Target target = problem.target();
    for (const Strategy& strategy : random_strategies(problem, random, 2)) {
      std::vector<Strategy> seen = {strategy};
      for (const Reach reach : {Reach::one_step, Reach::all, Reach::to_fit}) {
        seen.resize(1);
        for (const Fixed& change : neighbours(target, strategy, reach)) {
          const Strategy changed = with_choices(strategy, change, target.devices);
          for (const auto& [key, value] : change) {
            Strategy expected;
            set_field(expected, key, value);
            EXPECT_EQ(field_text(changed, key), field_text(expected, key)) << key;
          }
          EXPECT_EQ(std::ranges::count(seen, changed), 0) << change[0].first;
          seen.push_back(changed);
        }
      }
    }
  }
}

// A change that frees memory is tried where framework and job allow it. One that a plan has already
// is left out.
TEST(Neighbours, FreeMemoryWhereTheFrameworkCan) {
  const auto changes = [](const char* framework, const char* fields, double clip_norm) {
    Job job = nano_job();
    job.clip_norm = clip_norm;
    job.vocab = 1024;
    const CostModel costs(small_cluster(), std::nullopt, framework_by_name(framework));
    const Target target(job, costs, 4, Bytes());
    std::set<std::string> all;
    for (const Reach reach : {Reach::one_step, Reach::all, Reach::to_fit}) {
      for (const Fixed& change : neighbours(target, parse_strategy(fields), reach)) {
        const auto& [key, value] = change[0];
        const bool frees = key == "loss_chunks" || key == "release_gradients" ||
                           key == "offload_activations_percent";
        if (frees) all.insert(fmt::format("{}={}", key, value));
      }
    }
    return fmt::format("{}", fmt::join(all, " "));
  };
  EXPECT_EQ(changes("bundled", "dp=4", 0), "loss_chunks=16 release_gradients=true");
  EXPECT_EQ(changes("bundled", "dp=4", 1), "loss_chunks=16");
  EXPECT_EQ(changes("bundled", "dp=4,release_gradients=true,loss_chunks=2", 0),
            "loss_chunks=1 release_gradients=false");
  EXPECT_EQ(changes("megatron-lm-2021", "dp=4", 0), "");
}

TEST(Neighbours, LeaveTheRanksThatDegreesLeaveToTheData) {
  const Strategy sharded = parse_strategy("mp=2,pp=2,sharding_degree=4");
  EXPECT_EQ(with_choices(sharded, {{"mp", "4"}}, 16).sharding_degree, 2);
  EXPECT_EQ(with_choices(sharded, {{"mp", "8"}}, 16).sharding_stage, 0);
  EXPECT_EQ(with_choices(sharded, {{"dp", "2"}}, 16).sharding_degree, 2);
  const Strategy replicas = parse_strategy("mp=2,pp=2,dp=4");
  EXPECT_EQ(with_choices(replicas, {{"pp", "1"}}, 16).dp, 8);
  EXPECT_EQ(with_choices(replicas, {{"sharding_degree", "4"}}, 16).dp, 1);
  EXPECT_EQ(with_choices(replicas, {{"sharding_degree", "4"}}, 16).sharding_stage, 1);
}

TEST(Neighbours, AreReadFromText) {
  EXPECT_EQ(parse_choices("mp=4,pp=8"), (Fixed{{"mp", "4"}, {"pp", "8"}}));
  for (const char* wrong : {"mp", "mp=4,,pp=2", "=4", "mp=2,mp=4", "mq=2", "mp=x", "mp=2,"})
    EXPECT_THROW(parse_choices(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace plimsoll
