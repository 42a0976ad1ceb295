// Space: which strategies there are, in which order, and why the others are not.
#include "planner/space/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/predict/fixtures.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(Space, OneDeviceHasMicroBatchesTimesRecompute) {
  // Divisors of 16: 1 2 4 8 16; recompute none; selective and full of 1 to 4 layers; norms, and
  // norms with MLPs; no gradient crosses ranks, so one bucket size.
  const Space space = enumerate(nano_job(), bundled_framework(), 1, {});
  EXPECT_EQ(space.enumerated, 5 * (1 + 4 + 4 + 2));
  EXPECT_EQ(space.legal.size(), 55u);
  EXPECT_TRUE(space.rejected.empty());
}

TEST(Space, TwoDevicesCountByHand) {
  // Recompute of 4 layers: 9 ways; of at most 2, 3 and 1 layers in a chunk: 5, 7 and 3. Modules: 2
  // ways more.
  // mp2: batch width 1, 5 micro-batches, with and without sequence parallelism.
  const std::int64_t mp = 2 * 5 * 11;
  // pp2 in 1F1B and zb_h1: 2+2 layers; 3+1 where the loss counts as one.
  const std::int64_t plain = 5 * 2 * (7 + 9);
  // In two chunks a stage (1+1+1+1; 2+1+1+0; 1+2+1+0), and in three with both ends counted
  // (0+1+1+1+1+0), for the 4 micro-batches that leave an even number of them.
  const std::int64_t interleaved = 4 * (5 + 7 + 7 + 5);
  // dp2: divisors of 8, 4 buckets; sharding2: stages 1 and 2 the same, in stage 3 no buckets but
  // three depths of prefetch, with and without kept gathers.
  const std::int64_t data = 4 * 11 * 4, sharding = 4 * 11 * (4 + 4 + 3 * 2);
  // cp2: batch width 1, recompute none, full of 1 to 4 layers or modules, three exchanges, no
  // sharding or as above. Selective recompute has no scores to drop: of each stage one candidate is
  // refused.
  const std::int64_t context = 5 * 7 * 3 * (4 + 4 + 4 + 3 * 2), refused = 5 * 4;
  const Space space = enumerate(nano_job(), bundled_framework(), 2, {});
  EXPECT_EQ(space.enumerated, mp + plain + interleaved + data + sharding + context + refused);
  EXPECT_EQ(std::int64_t(space.legal.size()), space.enumerated - refused);
}

TEST(Space, SwitchesAreTriedWhereTheyCanWin) {
  const Space space = enumerate(nano_job(), bundled_framework(), 4, {});
  std::set<std::string> seen;
  for (const Strategy& s : space.legal) {
    if (s.tokens.sequence_parallel) seen.insert("sequence_parallel");
    if (s.pipeline.split_boundary) seen.insert("split_boundary");
    if (s.pipeline.virtual_stages > 1) seen.insert("virtual_stages");
    if (s.schedule == Schedule::zb_h1) seen.insert("zb_h1");
    if (s.recomputed.layers > 0) seen.insert("recompute_layers");
    if (s.sharding_stage > 1) seen.insert("sharding_stage");
    EXPECT_TRUE(s.mp > 1 || !(s.tokens.sequence_parallel || s.pipeline.split_boundary));
    EXPECT_TRUE(s.pp > 1 ||
                (s.pipeline.virtual_stages == 1 && s.schedule == Schedule::one_f_one_b));
    if (s.pp > 1 && s.sharding_stage > 1) seen.insert("sharded pipelines");
    if (s.pipeline.embedding_as_layers > 0 || s.pipeline.loss_as_layers > 0) seen.insert("ends");
    if (s.gathers.prefetch_depth != 1) seen.insert("prefetch_depth");
    if (s.gathers.keep) seen.insert("keep_gathered");
  }
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Space, SwitchesThatAFrameworkLacksAreNotTried) {
  const Framework old = framework_by_name("megatron-lm-2021");
  bool interleaves = false, splits = false;
  for (const Strategy& s : enumerate(nano_job(), old, 4, {}).legal) {
    EXPECT_FALSE(s.tokens.sequence_parallel);
    EXPECT_EQ(s.schedule, Schedule::one_f_one_b);
    interleaves |= s.pipeline.virtual_stages > 1;
    splits |= s.pipeline.split_boundary;
  }
  EXPECT_TRUE(interleaves);
  EXPECT_TRUE(splits);
}

Job job_with_experts() {  // 4 of them
  return read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests" / "expert-nano.json");
}

/// The ways in which strategies share out experts: "ep etp dispatch".
std::set<std::string> ways_to_share_experts(const Space& space) {
  std::set<std::string> ways;
  for (const Strategy& s : space.legal) {
    ways.insert(field_text(s, "ep") + " " + field_text(s, "etp") + " " +
                field_text(s, "expert_dispatch"));
  }
  return ways;
}

TEST(Space, ExpertsAreSharedOutInAllWaysOfTheFramework) {
  const Job job = job_with_experts();
  const auto ways = [&](const char* framework, const Fixed& fixed, const Limits& limits = {}) {
    return ways_to_share_experts(
        enumerate(job, framework_by_name(framework), 8, fixed, {}, limits));
  };
  using Ways = std::set<std::string>;
  EXPECT_EQ(ways("megatron-lm", {{"mp", "1"}, {"pp", "1"}, {"dp", "8"}}),
            (Ways{"1 0 all_to_all", "2 0 all_to_all", "2 0 all_gather", "4 0 all_to_all"}));
  // Each mp rank has a part of each expert, or all of each.
  EXPECT_EQ(ways("megatron-lm", {{"mp", "2"}, {"ep", "1"}}),
            (Ways{"1 0 all_to_all", "1 1 all_to_all"}));
  EXPECT_EQ(ways("megatron-lm", {{"mp", "1"}, {"pp", "1"}, {"dp", "2"}, {"sharding_degree", "4"}}),
            (Ways{"1 0 all_to_all"}));
  EXPECT_EQ(ways("torchtitan", {{"mp", "1"}, {"ep", "2"}}), (Ways{"2 0 all_to_all"}));
  EXPECT_EQ(ways("megatron-lm-2021", {{"mp", "1"}}), (Ways{"1 0 all_to_all"}));
  EXPECT_EQ(ways("megatron-lm", {{"mp", "1"}, {"expert_dispatch", "all_gather"}},
                 {make_limit(LimitKind::most, "ep", "2")}),
            (Ways{"1 0 all_gather", "2 0 all_gather"}));
}

TEST(Space, SharedExpertsComputeBesideExchangesOrNot) {
  Job job = job_with_experts();
  job.experts->shared_ffn_hidden = 6;
  const auto overlaps = [&](Framework framework, const char* dispatch) {
    const Fixed fixed = {{"mp", "1"}, {"ep", "2"}, {"expert_dispatch", dispatch}};
    std::set<bool> found;
    for (const Strategy& s : enumerate(job, framework, 4, fixed).legal)
      found.insert(s.experts.overlap_shared);
    return found;
  };
  const std::set<bool> both = {false, true}, none = {false};
  Framework megatron = framework_by_name("megatron-lm");
  EXPECT_EQ(overlaps(megatron, "all_to_all"), both);
  EXPECT_EQ(overlaps(megatron, "all_gather"), none);
  EXPECT_EQ(overlaps(framework_by_name("torchtitan"), "all_to_all"), none);
  megatron.parallelism.sends_tokens_once_per_node = true;
  EXPECT_EQ(overlaps(megatron, "all_to_all"), none);
  job.experts->shared_ffn_hidden = 0;
  EXPECT_EQ(overlaps(framework_by_name("megatron-lm"), "all_to_all"), none);
}

TEST(Space, ExpertsOnOtherRanksNeedTheirTokensSplit) {
  for (const Strategy& s :
       enumerate(job_with_experts(), framework_by_name("megatron-lm"), 4, {}).legal)
    EXPECT_TRUE(!experts_apart(s) || s.mp == 1 || s.tokens.sequence_parallel)
        << strategy_summary(s);
}

TEST(Space, FixedSwitchesStay) {
  const Space space = enumerate(nano_job(), bundled_framework(), 4,
                                {{"pp", "2"},
                                 {"mp", "2"},
                                 {"virtual_stages", "1"},
                                 {"loss_as_layers", "0"},
                                 {"sequence_parallel", "true"},
                                 {"recompute_layers", "0"},
                                 {"schedule", "1f1b"}});
  // 5 micro-batches x 5 ways to recompute: nothing is left to choose.
  EXPECT_EQ(space.enumerated, 5 * 5);
  for (const Strategy& s : space.legal) {
    EXPECT_TRUE(s.tokens.sequence_parallel);
    EXPECT_EQ(s.pipeline.virtual_stages, 1);
  }
}

TEST(Space, EveryStrategyIsLegalAndDistinct) {
  const Space space = enumerate(nano_job(), bundled_framework(), 4, {});
  std::set<std::string> seen;
  for (const Strategy& strategy : space.legal) {
    EXPECT_TRUE(legal(nano_job(), strategy, 4)) << strategy_summary(strategy);
    EXPECT_TRUE(seen.insert(strategy_summary(strategy)).second) << strategy_summary(strategy);
    if (strategy.cp == 1) {
      EXPECT_EQ(strategy.sharding_stage > 0, strategy.sharding_degree > 1);
    }
  }
}

TEST(Space, OrderIsTheSameEveryTime) {
  const Space one = enumerate(nano_job(), bundled_framework(), 4, {});
  const Space other = enumerate(nano_job(), bundled_framework(), 4, {});
  ASSERT_EQ(one.legal.size(), other.legal.size());
  for (std::size_t i = 0; i < one.legal.size(); ++i) EXPECT_EQ(one.legal[i], other.legal[i]);
}

TEST(Space, FixedFieldsTakeOnlyThatValue) {
  const Space space =
      enumerate(nano_job(), bundled_framework(), 4, {{"mp", "2"}, {"micro_batch", "4"}});
  ASSERT_FALSE(space.legal.empty());
  for (const Strategy& strategy : space.legal) {
    EXPECT_EQ(strategy.mp, 2);
    EXPECT_EQ(strategy.micro_batch, 4);
  }
}

TEST(Space, FixedBucketBytesReplaceTheLadder) {
  const Space space =
      enumerate(nano_job(), bundled_framework(), 2, {{"dp", "2"}, {"grad_bucket_bytes", "65536"}});
  EXPECT_EQ(space.enumerated, 4 * 11);
  for (const Strategy& strategy : space.legal)
    EXPECT_EQ(strategy.gradients.bucket_bytes, Bytes(65536));
}

TEST(Space, FieldsWithoutALadderCanBeFixedToo) {
  const Space space =
      enumerate(nano_job(), bundled_framework(), 2, {{"pp", "2"}, {"send_slots", "3"}});
  ASSERT_FALSE(space.legal.empty());
  for (const Strategy& strategy : space.legal) EXPECT_EQ(strategy.pipeline.send_slots, 3);
}

TEST(Space, RejectionsAreCountedByRuleNotByNumber) {
  Job job = nano_job();
  job.heads = job.kv_heads = 7;
  job.hidden = 56;
  job.ffn_hidden = 224;
  const Space space = enumerate(job, bundled_framework(), 4, {});
  // mp 2 and mp 4 break the same rule: one row, with both counted.
  std::int64_t heads_rows = 0, rejected = 0;
  for (const Pruned& pruned : space.rejected) {
    heads_rows += pruned.reason.find("heads") != std::string::npos;
    rejected += pruned.count;
  }
  EXPECT_EQ(heads_rows, 1);
  EXPECT_EQ(rejected + std::int64_t(space.legal.size()), space.enumerated);
  for (const Strategy& strategy : space.legal) EXPECT_EQ(strategy.mp, 1);
}

TEST(Space, ImpossibleFixedDegreesLeaveTheReason) {
  const Space space = enumerate(nano_job(), bundled_framework(), 2, {{"mp", "4"}, {"pp", "4"}});
  EXPECT_TRUE(space.legal.empty());
  ASSERT_FALSE(space.rejected.empty());
  EXPECT_NE(space.reason.find("devices"), std::string::npos) << space.reason;
}

TEST(Space, RulesOfAFrameworkAreCounted) {
  const Framework flash = framework_by_name("megatron-lm");
  const Space space = enumerate(nano_job(), flash, 1, {});
  EXPECT_EQ(space.enumerated, 5 * (1 + 1 + 4 + 2));  // a refused form counts once
  EXPECT_EQ(space.legal.size(), 35u);
  ASSERT_EQ(space.rejected.size(), 1u);
  EXPECT_EQ(space.rejected[0].count, 5);
  EXPECT_NE(space.rejected[0].reason.find("flash attention"), std::string::npos);
}

TEST(Space, DigitsOfANameStayInItsRule) {
  const Framework old = framework_by_name("megatron-lm-2021");
  const Space space = enumerate(nano_job(), old, 2, {{"sharding_degree", "2"}});
  ASSERT_FALSE(space.rejected.empty());
  EXPECT_TRUE(states(space.rejected[0].reason,
                     {"sharding_degree is N", "megatron-lm-2021", "distributed optimizer"}));
}

TEST(Space, IndivisibleBatchLeavesTheReason) {
  Job job = nano_job();
  job.global_batch = 3;
  const Space space = enumerate(job, bundled_framework(), 2, {{"dp", "2"}});
  EXPECT_TRUE(space.legal.empty());
  EXPECT_NE(space.reason.find("batch"), std::string::npos) << space.reason;
}

TEST(Space, TheReasonIsOfTheCommonestRule) {
  const Space space =
      enumerate(nano_job(), framework_by_name("megatron-lm"), 2, {{"recompute", "selective"}});
  EXPECT_TRUE(space.legal.empty());
  EXPECT_NE(space.reason.find("flash attention"), std::string::npos) << space.reason;
}

TEST(Space, UnknownKeysAndBadValuesAreUsageErrors) {
  EXPECT_THROW(enumerate(nano_job(), bundled_framework(), 2, {{"micro_bach", "2"}}), UsageError);
  EXPECT_THROW(enumerate(nano_job(), bundled_framework(), 2, {{"mp", "two"}}), UsageError);
}

TEST(Space, DeviceCountsHaveLimits) {
  for (const std::int64_t devices :
       {std::int64_t{0}, std::int64_t{-1}, kMostDevices + 1, std::int64_t{1} << 62}) {
    EXPECT_THROW(enumerate(nano_job(), bundled_framework(), devices, {}), UsageError) << devices;
  }
  EXPECT_NO_THROW(enumerate(nano_job(), bundled_framework(), kMostDevices, {}));
}

TEST(Space, LargeCountsWithManyDivisorsAreEnumerated) {
  // 3603600 = 2^4 3^2 5^2 7 11 13 is a product of four ordered factors in C(7,3) C(5,3)^2 C(4,3)^3
  // = 224000 ways. With micro_batch, recompute and bucket fixed each is one candidate.
  const Space space = enumerate(nano_job(), bundled_framework(), 3'603'600,
                                {{"micro_batch", "1"},
                                 {"cp", "1"},
                                 {"recompute", "none"},
                                 {"grad_bucket_bytes", "4 MiB"},
                                 {"sharding_stage", "1"}});
  EXPECT_EQ(space.enumerated, 224'000);
}

TEST(Space, DimensionsCountEveryLegalStrategyOncePerChoice) {
  const Space space = enumerate(nano_job(), bundled_framework(), 4, {});
  for (const Dimension& dimension : dimensions(space)) {
    std::int64_t sum = 0;
    for (const auto& [value, count] : dimension.values) sum += count;
    EXPECT_EQ(sum, std::int64_t(space.legal.size())) << dimension.key;
    if (dimension.key == "mp") {
      ASSERT_EQ(dimension.values.size(), 3u);
      EXPECT_EQ(dimension.values[0].first, "1");
      EXPECT_EQ(dimension.values[2].first, "4");
    }
  }
}

TEST(Space, DimensionsShowSwitchesThatAreTried) {
  std::set<std::string> keys;
  for (const Dimension& dimension :
       dimensions(enumerate(nano_job(), bundled_framework(), 4, {{"send_slots", "3"}}))) {
    EXPECT_TRUE(keys.insert(dimension.key).second);
    if (dimension.key == "virtual_stages") {
      ASSERT_EQ(dimension.values.size(), 3u);
      EXPECT_EQ(dimension.values[1].first, "2");
    }
  }
  for (const char* key : {"mp", "send_slots", "virtual_stages", "sequence_parallel",
                          "split_boundary", "recompute_layers", "layer_split"}) {
    EXPECT_TRUE(keys.contains(key)) << key;
  }
  EXPECT_FALSE(keys.contains("cast_placement"));
}

TEST(Space, LargeModelsHaveALongerBucketLadder) {
  EXPECT_EQ(grad_bucket_ladder(nano_job()).size(), 4u);
  Job large = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/gpt3-1.3b.json");
  EXPECT_EQ(grad_bucket_ladder(large).back(), Bytes(std::int64_t{1} << 30));
}

TEST(Space, FrameworksThatReduceOnceHaveNoLadder) {
  const Framework framework = framework_by_name("megatron-lm-2021");
  ASSERT_FALSE(framework.parallelism.overlap.grad_reduce);
  for (const Strategy& strategy : enumerate(nano_job(), framework, 2, {}).legal) {
    EXPECT_EQ(strategy.gradients.bucket_bytes, Strategy().gradients.bucket_bytes);
    EXPECT_EQ(strategy.sharding_degree, 1);
  }
}

}  // namespace
}  // namespace plimsoll
