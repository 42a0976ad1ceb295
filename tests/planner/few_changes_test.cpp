// The changes that a running job is advised to make are the fastest of all single changes and
// pairs.
#include "planner/explain/few_changes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/explain/likely_changes.h"
#include "planner/search/search.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

ExplainRequest slow_request(const char* strategy) {
  ExplainRequest request{nano_target(4), parse_strategy(strategy)};
  request.threads = 1;
  return request;
}

/// Returns the step times of all changes that run, fastest first.
std::vector<Seconds> times_of(const ExplainRequest& request, const std::vector<Fixed>& changes,
                              const PlanTime& own) {
  std::vector<Seconds> times;
  for (const AssessedChange& change : assess_changes(request, request.strategy, changes, own)) {
    if (change.outcome == ChangeOutcome::runs) times.push_back(change.step_time);
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
    const std::vector<Fixed> singles = single_choices(request.target, request.strategy, Reach::all);
    const std::vector<Seconds> one = times_of(request, singles, own);
    const std::vector<Seconds> two = times_of(request, pairs_of(singles, singles), own);
    ASSERT_FALSE(one.empty());
    EXPECT_EQ(found.one.empty(), one.front() >= kLess * own.step_time) << strategy;
    if (!found.one.empty()) {
      EXPECT_TRUE(found.one_is_best);
      EXPECT_EQ(found.one.front().step_time, one.front()) << strategy;
    }
    const Seconds best = found.one.empty() ? own.step_time : one.front();
    if (found.two_is_best) {
      EXPECT_EQ(found.two.empty(), two.front() >= kLess * best) << strategy;
      if (!found.two.empty()) {
        EXPECT_EQ(found.two.front().step_time, two.front()) << strategy;
      }
    }
    for (const AssessedChange& pair : found.two) EXPECT_LT(pair.step_time, kLess * best);
  }
}

TEST(FewChanges, DoNotDependOnThreads) {
  ExplainRequest request = slow_request("mp=4,micro_batch=1,recompute=full");
  const ExplainedStep step = explain_step(request.target, request.strategy);
  const PlanTime own = time_of(request.target, step);
  const std::string one = few_changes_json(request.target, step, few_changes(request, own));
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
  EXPECT_FALSE(found.one_is_best || found.two_is_best);
  EXPECT_TRUE(found.two.empty());
  EXPECT_EQ(done, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_GT(of, 3);
  EXPECT_THROW(sensitivity(request, step), NothingFoundYet);
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
