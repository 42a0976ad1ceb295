// Plans of a search whose exchanges of experts are hidden, or are of the form that moves more.
#include "planner/search/exchange_choices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/explore/assess.h"
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

TEST(ExchangeChoices, InTurnsAreTriedOnTheFastestPlans) {
  const Plan found = search(request("megatron-lm", {}));
  EXPECT_TRUE(found.strategy.experts.overlap_exchange);
  const Plan held = search(request("megatron-lm", {{"overlap_expert_exchange", "false"}}));
  EXPECT_FALSE(held.strategy.experts.overlap_exchange);
  EXPECT_LT(found.prediction.step_time, held.prediction.step_time);
  // Where all of the space has them, the best is at least as good.
  const Plan all = search(request("megatron-lm", {{"overlap_expert_exchange", "true"}}));
  EXPECT_LE(all.prediction.step_time, found.prediction.step_time);
}

TEST(ExchangeChoices, InTurnsAreLeftToFrameworksThatHaveThem) {
  EXPECT_FALSE(search(request("torchtitan", {})).strategy.experts.overlap_exchange);
}

// Over two nodes all_gather of 16 ranks moves more rows in all, and fewer from node to node. The
// space has it for 6 chosen experts up to ep 6.
TEST(ExchangeChoices, GatheringIsTriedWhereItMovesMore) {
  const Fixed usual = {{"overlap_expert_exchange", "false"}, {"overlap_shared_experts", "false"}};
  const auto step = [&](const char* dispatch) {
    Fixed fixed = usual;
    fixed.emplace_back("expert_dispatch", dispatch);
    return search(request("megatron-lm", fixed)).prediction.step_time;
  };
  const Seconds found = search(request("megatron-lm", usual)).prediction.step_time;
  const Seconds sent = step("all_to_all");
  EXPECT_LT(found, sent);
  EXPECT_LE(found, step("all_gather"));
}

TEST(ExchangeChoices, PlansThatDifferInBucketsAreTriedOnce) {
  const SearchRequest asked = request("megatron-lm", {});
  const auto candidate = [&](const char* micro_batch) {
    const std::string common =
        "sharding_degree=16,sharding_stage=1,ep=16,recompute=full,micro_batch=";
    return assess(asked.target, parse_strategy(common + micro_batch), 0);
  };
  std::vector<Candidate> candidates(40, candidate("2"));
  for (std::size_t i = 0; i < candidates.size(); ++i)
    candidates[i].strategy.gradients.bucket_bytes = Bytes(std::int64_t(1 + i) << 20);
  candidates.push_back(candidate("1"));
  ASSERT_GT(candidates.back().prediction.step_time, candidates.front().prediction.step_time);
  const std::vector<Candidate> found = exchange_choices(asked, candidates, 41);
  EXPECT_TRUE(std::ranges::any_of(
      found, [](const Candidate& changed) { return changed.strategy.micro_batch == 1; }));
}

TEST(ExchangeChoices, KeepWhatTheUserHolds) {
  const Plan held = search(request("megatron-lm", {{"overlap_shared_experts", "true"}}));
  EXPECT_TRUE(held.strategy.experts.overlap_shared);
  SearchRequest limited = request("megatron-lm", {});
  limited.constraints.limits = {make_limit(LimitKind::excluded, "overlap_shared_experts", "false")};
  EXPECT_TRUE(search(limited).strategy.experts.overlap_shared);
}

}  // namespace
}  // namespace plimsoll
