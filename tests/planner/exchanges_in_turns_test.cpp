// Plans of a search whose exchanges of experts are hidden behind computation.
#include "planner/search/exchanges_in_turns.h"

#include <gtest/gtest.h>

#include "planner/search/search.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

SearchRequest request(const std::string& framework, Fixed fixed) {
  const std::string presets = std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/";
  const Cluster cluster = read_cluster(presets + "clusters/dgx-h100-80gb.json");
  Job job = read_job(presets + "jobs/deepseek-v2-lite.json");
  job.global_batch = 256;
  const Framework runs = *find_framework(framework);
  // Experts of a layer are on two nodes, so that their rows travel far.
  fixed.insert(fixed.end(), {{"mp", "1"}, {"pp", "1"}, {"cp", "1"}, {"ep", "16"}, {"dp", "1"}});
  return {Target(job, CostModel(cluster, std::nullopt, runs), 16), fixed};
}

TEST(ExchangesInTurns, AreTriedOnTheFastestPlans) {
  const Plan found = search(request("megatron-lm", {}));
  EXPECT_TRUE(found.strategy.overlap_expert_exchange);
  const Plan held = search(request("megatron-lm", {{"overlap_expert_exchange", "false"}}));
  EXPECT_FALSE(held.strategy.overlap_expert_exchange);
  EXPECT_LT(found.prediction.step_time, held.prediction.step_time);
  // Where all of the space has them, the best is at least as good.
  const Plan all = search(request("megatron-lm", {{"overlap_expert_exchange", "true"}}));
  EXPECT_LE(all.prediction.step_time, found.prediction.step_time);
}

TEST(ExchangesInTurns, AreLeftToFrameworksThatHaveThem) {
  EXPECT_FALSE(search(request("torchtitan", {})).strategy.overlap_expert_exchange);
}

}  // namespace
}  // namespace plimsoll
