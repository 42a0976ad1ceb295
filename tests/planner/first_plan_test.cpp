// First plan: close to the best, long before the space is searched.
#include "planner/explore/first_plan.h"

#include <gtest/gtest.h>

#include "planner/search/search.h"

namespace plimsoll {
namespace {

std::optional<Candidate> first_of(const SearchRequest& request, const Cluster& cluster,
                                  const std::function<bool()>& passed) {
  const CostModel costs(cluster, {}, request.framework);
  const Space space = enumerate(request.job, request.framework, request.devices, {});
  const Bounds bounds(request.job, request.framework, costs, request.devices);
  const FamilyBounds families(request.job, request.framework, bounds);
  return first_plan({request, costs, space.legal, bounds, families, cluster.device.memory, passed});
}

SearchRequest request_for(const char* job, std::int64_t devices) {
  SearchRequest request;
  request.job = read_job(job);
  request.framework = framework_by_name("megatron-lm");
  request.devices = devices;
  request.threads = 1;
  return request;
}

TEST(FirstPlan, TakesAtMostHalfAgainAsLongAsTheBest) {
  const SearchRequest request = request_for("gpt2-xl", 16);
  const Cluster cluster = read_cluster("dgx-a100-80gb");
  const CostModel costs(cluster, {}, request.framework);
  const auto first = first_of(request, cluster, [] { return false; });
  ASSERT_TRUE(first);
  const Plan best = search(request, costs);
  EXPECT_LT(first->score.prediction.step_time / best.prediction.step_time, 1.5);
}

TEST(FirstPlan, IsTheLeanestWhereThereIsTimeForNoOther) {
  const SearchRequest request = request_for("gpt3-175b", 1024);
  const Cluster cluster = read_cluster("dgx-a100-80gb");
  int asked = 0;
  const auto lean = first_of(request, cluster, [&] { return asked++ > 8; });
  const auto usual = first_of(request, cluster, [] { return false; });
  ASSERT_TRUE(lean && usual);
  EXPECT_LT(usual->score.prediction.step_time, lean->score.prediction.step_time * 0.7);
  EXPECT_EQ(lean->strategy.recompute, Recompute::full);
}

}  // namespace
}  // namespace plimsoll
