// The changes that a running job is advised to make are the fastest of all single changes and
// pairs.
#include "planner/explain/few_changes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/presets/presets.h"
#include "planner/search/search.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

ExplainRequest slow_request(const char* strategy) {
  ExplainRequest request{nano_target(4), parse_strategy(strategy)};
  request.threads = 1;
  return request;
}

/// Returns the step times of all changes that run, with what unusual choices count, least first.
std::vector<Seconds> merits_of(const ExplainRequest& request, const std::vector<Fixed>& changes,
                               const PlanTime& own) {
  std::vector<Seconds> times;
  for (const AssessedChange& change : assess_changes(request, request.strategy, changes, own)) {
    if (change.outcome == ChangeOutcome::runs) times.push_back(merit(change));
  }
  std::ranges::sort(times);
  return times;
}

constexpr double kLess = 1 - kLeastGain;

TEST(FewChanges, AreTheFastestOfAllSingleChangesAndPairs) {
  for (const char* strategy : {"mp=4,micro_batch=1,recompute=full", "pp=4,micro_batch=1", "dp=4",
                               "mp=2,sharding_degree=2"}) {
    const ExplainRequest request = slow_request(strategy);
    const PlanTime own = time_of(request.target, explain_step(request.target, request.strategy));
    const FewChanges found = few_changes(request, own);
    const std::vector<Fixed> singles = neighbours(request.target, request.strategy, Reach::all);
    const std::vector<Seconds> one = merits_of(request, singles, own);
    const std::vector<Seconds> two = merits_of(request, pairs_of(singles, singles), own);
    ASSERT_FALSE(one.empty());
    EXPECT_EQ(found.one.found.empty(), one.front() >= kLess * own.step_time) << strategy;
    if (!found.one.found.empty()) {
      EXPECT_TRUE(found.one.proven);
      EXPECT_EQ(merit(found.one.found.front()), one.front()) << strategy;
    }
    const Seconds best = found.one.found.empty() ? own.step_time : one.front();
    if (found.two.proven) {
      EXPECT_EQ(found.two.found.empty(), two.front() >= kLess * best) << strategy;
      if (!found.two.found.empty()) {
        EXPECT_EQ(merit(found.two.found.front()), two.front()) << strategy;
      }
    }
    for (const AssessedChange& pair : found.two.found) EXPECT_LT(merit(pair), kLess * best);
  }
}

Target gpt_target(std::optional<Bytes> memory = std::nullopt) {
  Job job = parse_job(*find_preset(job_presets(), "gpt3-1.3b"), "job");
  job.global_batch = 96;
  Cluster cluster = parse_cluster(*find_preset(cluster_presets(), "dgx-a100-80gb"), "cluster");
  if (memory) cluster.device.memory = *memory;
  return Target(job, CostModel(cluster, std::nullopt, framework_by_name("megatron-lm")), 8);
}

AssessedChange with_micro_batch(const ExplainRequest& request, const char* micro_batch) {
  const PlanTime own = time_of(request.target, explain_step(request.target, request.strategy));
  const Fixed change = {{"micro_batch", micro_batch}};
  return assess_changes(request, request.strategy, {&change, 1}, own).at(0);
}

/// A micro-batch of 3 is somewhat faster than one of 2 or 4, by less than it has to gain.
TEST(FewChanges, AnUnusualChoiceHasToGainUnlessTheScriptHasIt) {
  const ExplainRequest request{gpt_target(), parse_strategy("dp=8,micro_batch=4")};
  const AssessedChange odd = with_micro_batch(request, "3"), even = with_micro_batch(request, "2");
  EXPECT_EQ(odd.unusual, std::vector<Unusual>{UnusualChoice::odd_micro_batch});
  EXPECT_EQ(merit(odd), merit(odd.step_time, odd.unusual));
  EXPECT_EQ(merit(even), even.step_time);
  const PlanTime own = time_of(request.target, explain_step(request.target, request.strategy));
  for (const AssessedChange& change : few_changes(request, own).one.found)
    EXPECT_LT(merit(change), own.step_time);
  const ExplainRequest has_one{gpt_target(), parse_strategy("dp=8,micro_batch=6")};
  EXPECT_EQ(with_micro_batch(has_one, "3").unusual, std::vector<Unusual>{});
}

TEST(FewChanges, MemoryThatIsNoTighterThanTheScriptsDoesNotCount) {
  const Strategy larger = parse_strategy("dp=8,micro_batch=4");
  const Bytes taken = evaluate(gpt_target(), larger).prediction.memory.taken;
  ExplainRequest request{gpt_target(Bytes(taken.count() / 50 * 51)),
                         parse_strategy("dp=8,micro_batch=2")};
  const AssessedChange change = with_micro_batch(request, "4");
  ASSERT_EQ(change.unusual.size(), 1);
  EXPECT_EQ(change.unusual[0].choice, UnusualChoice::tight_memory);
  request.overflow = evaluate(request.target, larger).prediction.memory.overflow;
  EXPECT_EQ(with_micro_batch(request, "4").unusual, std::vector<Unusual>{});
}

TEST(FewChanges, DoNotDependOnThreads) {
  ExplainRequest request = slow_request("mp=4,micro_batch=1,recompute=full");
  const ExplainedStep step = explain_step(request.target, request.strategy);
  const PlanTime own = time_of(request.target, step);
  const Json one = few_changes_json(request.target, step, few_changes(request, own));
  request.threads = 3;
  EXPECT_EQ(few_changes_json(request.target, step, few_changes(request, own)), one);
}

TEST(FewChanges, EndWhereTheyAreAskedTo) {
  ExplainRequest request = slow_request("mp=4,micro_batch=1,recompute=full");
  const ExplainedStep step = explain_step(request.target, request.strategy);
  std::vector<std::int64_t> done;
  std::int64_t of = 0;
  request.progress = [&](std::int64_t count, std::int64_t all) { done.push_back(count), of = all; };
  request.stop = [&] { return done.size() >= 3; };
  const FewChanges found = few_changes(request, time_of(request.target, step));
  EXPECT_FALSE(found.one.proven || found.two.proven);
  EXPECT_TRUE(found.two.found.empty());
  EXPECT_NE(
      few_changes_brief(request.target, step, {{{}, false}, {}}).find("not looked at to the end"),
      std::string::npos);
  EXPECT_EQ(few_changes_brief(request.target, step, {}).find("not looked at to the end"),
            std::string::npos);
  EXPECT_EQ(done, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_GT(of, 3);
  EXPECT_THROW(sensitivity(request, step), NothingFoundYet);
}

/// Returns a target whose devices lack one byte for the strategy.
Target too_small_for(const Strategy& strategy, Bytes more = {}) {
  Cluster cluster = small_cluster();
  cluster.device.memory =
      largest(lay_out(nano_target(4), strategy, Proof::none).stages, &StagePrediction::reserved) +
      outside_program(nano_target(4), strategy) - Bytes(1) - more;
  return nano_target(4, cluster);
}

FoundChanges to_fit(const Target& target, const Strategy& strategy) {
  return changes_to_fit({target, strategy}, time_of(target, explain_step(target, strategy)));
}

Seconds merit_of(const FittingChange& change) { return merit(change.step_time, change.unusual); }

TEST(ChangesToFit, AreSingleChangesOfEachKindTheFastestFirst) {
  const Strategy strategy = parse_strategy("dp=4,micro_batch=4");
  const FoundChanges found = to_fit(too_small_for(strategy), strategy);
  const auto has = [&](const std::string& words) {
    return std::ranges::find(found.fitting, words, &FittingChange::words) != found.fitting.end();
  };
  EXPECT_TRUE(has("with dp=1 sharding_degree=4 sharding_stage=1"));
  EXPECT_TRUE(has("with micro_batch=2"));
  EXPECT_NE(std::ranges::find(found.fitting, ChangeKind::recompute, &FittingChange::kind),
            found.fitting.end());
  EXPECT_TRUE(std::ranges::is_sorted(found.fitting, {}, merit_of));
  EXPECT_TRUE(found.notes.empty());
  // A practitioner shards first, whatever is fastest.
  EXPECT_EQ(first_of(found.fitting)->kind, ChangeKind::sharding);
}

/// From the memory that the strategy lacks a byte of to less than any change needs.
TEST(ChangesToFit, ArePairsOnlyIfNoSingleChangeIsEnough) {
  const Strategy strategy = parse_strategy("dp=4,micro_batch=4");
  int by_pairs = 0, by_none = 0, proven = 0;
  for (std::int64_t kib = 0; kib <= 6000; kib += 750) {
    const Target target = too_small_for(strategy, Bytes(kib << 10));
    const FoundChanges found = to_fit(target, strategy);
    const auto runs = [&](const Fixed& change) {
      const Strategy changed = with_choices(strategy, change, target.devices);
      return legal(target, changed) &&
             fits_devices(target, changed, evaluate(target, changed).prediction.stages);
    };
    const auto singles = neighbours(target, strategy, Reach::to_fit);
    const bool is_enough = std::ranges::any_of(singles, runs);
    for (const FittingChange& change : found.fitting) {
      EXPECT_TRUE(fits_devices(target, change.strategy,
                               evaluate(target, change.strategy).prediction.stages));
      EXPECT_EQ(is_enough, std::ranges::any_of(singles, [&](const Fixed& single) {
                  return with_choices(strategy, single, target.devices) == change.strategy;
                }));
    }
    EXPECT_EQ(found.fitting.empty() || !found.proven, !found.notes.empty());
    if (!is_enough && !found.fitting.empty() && found.proven) {
      const ExplainRequest request{target, strategy};
      const auto pairs = merits_of(request, pairs_of(singles, singles),
                                   time_of(target, explain_step(target, strategy)));
      EXPECT_EQ(merit_of(*first_of(found.fitting)), pairs.front()) << kib;
      ++proven;
    }
    by_pairs += !is_enough && !found.fitting.empty();
    by_none += found.fitting.empty();
  }
  EXPECT_GT(by_pairs, 0);
  EXPECT_GT(by_none, 0);
  EXPECT_GT(proven, 0);
}

TEST(ChangesToFit, SayThatTheyEndedBeforeAllWereLookedAt) {
  const Strategy strategy = parse_strategy("dp=4,micro_batch=4");
  const Target target = too_small_for(strategy);
  ExplainRequest request{target, strategy};
  request.stop = [] { return true; };
  const PlanTime own = time_of(target, explain_step(target, strategy));
  const FoundChanges found = changes_to_fit(request, own);
  EXPECT_FALSE(found.proven);
  EXPECT_TRUE(found.fitting.empty());
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("not looked at to the end"), std::string::npos);
  const LeastChanges least = least_changes_of(request, strategy, {{"micro_batch", "4"}}, own);
  EXPECT_FALSE(least.proven);
  EXPECT_TRUE(least.found.empty());
  request.stop = {};
  EXPECT_TRUE(least_changes_of(request, strategy, {{"micro_batch", "4"}}, own).proven);
}

/// Tensors split over two nodes count against a change.
TEST(ChangesToFit, NameUnusualChoices) {
  Cluster cluster = small_cluster();
  cluster.devices_per_node = 2;
  const Strategy strategy = parse_strategy("dp=4,micro_batch=4");
  cluster.device.memory =
      largest(lay_out(nano_target(4, cluster), parse_strategy("mp=4"), Proof::none).stages,
              &StagePrediction::reserved) +
      outside_program(nano_target(4, cluster), parse_strategy("mp=4"));
  const FoundChanges found = to_fit(nano_target(4, cluster), strategy);
  bool named = false;
  for (const FittingChange& change : found.fitting) {
    const bool over_nodes = std::ranges::find(change.unusual, UnusualChoice::tensor_over_nodes,
                                              &Unusual::choice) != change.unusual.end();
    EXPECT_EQ(over_nodes, change.strategy.mp == 4);
    named = named || over_nodes;
  }
  EXPECT_TRUE(named);
}

TEST(FlagChanges, SayWhatToAddToDropAndToSet) {
  const Framework framework = framework_by_name("megatron-lm");
  const Job job = nano_job();
  const std::vector<std::string> changes =
      flag_changes(job, framework, parse_strategy("mp=2,dp=2,micro_batch=1,recompute=full"),
                   parse_strategy("mp=2,dp=2,micro_batch=4,sequence_parallel=true"));
  const auto has = [&](std::string_view change) {
    return std::ranges::find(changes, change) != changes.end();
  };
  EXPECT_TRUE(has("--micro-batch-size 1 -> 4"));
  EXPECT_TRUE(has("add --sequence-parallel"));
  EXPECT_TRUE(has("drop --recompute-granularity"));
  EXPECT_TRUE(flag_changes(job, framework, parse_strategy("dp=4"), parse_strategy("dp=4")).empty());
  EXPECT_TRUE(flag_changes(job, bundled_framework(), parse_strategy("mp=2"), parse_strategy("dp=2"))
                  .empty());
}

}  // namespace
}  // namespace plimsoll
