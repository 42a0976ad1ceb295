// First plan: close to the best, long before the space is searched.
#include "planner/explore/first_plan.h"

#include <gtest/gtest.h>

#include "planner/search/search.h"

namespace plimsoll {
namespace {

std::optional<Candidate> first_of(const Target& target, const std::function<bool()>& passed) {
  const Space space = enumerate(target.job, target.framework(), target.devices, {});
  const Bounds bounds(target);
  const FamilyBounds families(target, bounds);
  return first_plan({target, space.legal, bounds, families, passed, 1});
}

Target target_for(const char* job, std::int64_t devices) {
  const CostModel costs(read_cluster("dgx-a100-80gb"), {}, framework_by_name("megatron-lm"));
  return Target(read_job(job), costs, devices);
}

TEST(FirstPlan, TakesAtMostHalfAgainAsLongAsTheBest) {
  const Target target = target_for("gpt2-xl", 16);
  const auto first = first_of(target, [] { return false; });
  ASSERT_TRUE(first);
  SearchRequest request{target};
  request.threads = 1;
  const Plan best = search(request);
  EXPECT_LT(first->prediction.step_time / best.prediction.step_time, 1.5);
}

TEST(FirstPlan, IsTheLeanestWhereThereIsTimeForNoOther) {
  const Target target = target_for("gpt3-175b", 1024);
  int asked = 0;
  const auto lean = first_of(target, [&] { return asked++ > 8; });
  const auto usual = first_of(target, [] { return false; });
  ASSERT_TRUE(lean && usual);
  EXPECT_LT(usual->prediction.step_time, lean->prediction.step_time * 0.7);
  EXPECT_EQ(lean->strategy.recompute, Recompute::full);
}

}  // namespace
}  // namespace plimsoll
