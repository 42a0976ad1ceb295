// Compare: the example's numbers are simple enough to follow by hand.
#include "reports/compare.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/plan/example_plan.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(Compare, HoldsWhereBytesAreEqualAndTimeIsNear) {
  const Plan plan = example_plan();
  const Comparison comparison = compare(plan, example_measured(plan), 0.30);
  EXPECT_TRUE(comparison.bytes_equal);
  EXPECT_TRUE(comparison.time_within);
  EXPECT_DOUBLE_EQ(comparison.time_error, (0.0221 - 0.021) / 0.0221);
  EXPECT_TRUE(
      states(comparison.verdict, {"holds", "all 4", "21.0 ms", "5.0 % below", "22.1 ms", "30 %"}));
}

TEST(Compare, ComparesEveryRankWithItsStage) {
  const Plan plan = example_plan();
  const Comparison comparison = compare(plan, example_measured(plan), 0.30);
  ASSERT_EQ(comparison.ranks.size(), 4u);
  // mp, sharding, dp, then pp: ranks 0 and 1 are stage 0, ranks 2 and 3 stage 1.
  EXPECT_EQ(comparison.ranks[1].peak.predicted, plan.prediction.stages[0].peak);
  EXPECT_EQ(comparison.ranks[3].peak.predicted, plan.prediction.stages[1].peak);
}

TEST(Compare, SeesOneByteInOneClassOfOneRank) {
  const Plan plan = example_plan();
  Measured measured = example_measured(plan);
  measured.timeline.memory[3].by_role[std::size_t(TensorRole::saved)] += Bytes(64);
  const Comparison comparison = compare(plan, measured, 0.30);
  EXPECT_FALSE(comparison.bytes_equal);
  EXPECT_TRUE(states(comparison.verdict,
                     {"does not hold", "1 of 4", "rank 3", "saved", "196,608", "196,672"}));
  // A peak that differs while every class agrees is a difference too.
  measured = example_measured(plan);
  measured.timeline.memory[0].peak += Bytes(1);
  EXPECT_FALSE(compare(plan, measured, 0.30).bytes_equal);
}

TEST(Compare, SeesOneByteSentMore) {
  const Plan plan = example_plan();
  Measured measured = example_measured(plan);
  const Comparison equal = compare(plan, measured, 0.30);
  // Two replicas of two stages: gradients go over dp, boundary tensors and the norm over pp.
  ASSERT_EQ(equal.traffic.size(), 4u * 2);
  for (const TrafficComparison& one : equal.traffic) {
    EXPECT_EQ(one.sent.predicted, one.sent.measured) << one.rank << to_text(one.group);
  }
  const TrafficComparison& pipeline = equal.traffic[1];
  EXPECT_EQ(to_text(pipeline.group), "pp");
  // Two micro-batches of 4 sequences of 32 tokens, 64 wide, in f32. The one element of the norm is
  // this rank's own part, of which it sends nothing.
  EXPECT_EQ(pipeline.sent.measured, Bytes(2 * 4 * 32 * 64 * 4));
  const std::string text = comparison_text(equal), json = comparison_json(equal);
  EXPECT_TRUE(states(text, {"sent", "pp", "65,536", "65,536"}));
  EXPECT_TRUE(states(json, {"\"group\": \"pp\""}));
  measured.traffic[2].front().sent += Bytes(1);
  const Comparison comparison = compare(plan, measured, 0.30);
  EXPECT_FALSE(comparison.bytes_equal);
  EXPECT_TRUE(states(comparison.verdict, {"sent", "rank 2"}));
}

TEST(Compare, SetsTheLoadOfExpertsBesideThePredictedOne) {
  const Plan plan = example_plan();
  Measured measured = example_measured(plan);
  EXPECT_NE(comparison_json(compare(plan, measured, 0.30)).find("\"experts\": null"),
            std::string::npos);
  measured.experts = {{.layer = 3, .choices = 200, .dropped = 5, .load = 1.25, .highest_load = 2}};
  const Comparison comparison = compare(plan, measured, 0.30);
  const std::string text = comparison_text(comparison), json = comparison_json(comparison);
  EXPECT_TRUE(states(text, {"1.250", "2.5 %"}));
  EXPECT_TRUE(states(json, {"\"dropped\": 5"}));
}

TEST(Compare, MissesOutsideTheTolerance) {
  const Plan plan = example_plan();
  const Comparison comparison = compare(plan, example_measured(plan), 0.02);
  EXPECT_TRUE(comparison.bytes_equal);
  EXPECT_FALSE(comparison.time_within);
  EXPECT_NE(comparison.verdict.find("does not hold"), std::string::npos);
}

TEST(Compare, ClaimsNoTimeWhenRanksShareCores) {
  Plan plan = example_plan();
  plan.oversubscribed = true;
  const Comparison comparison = compare(plan, example_measured(plan), 0.02);
  EXPECT_FALSE(comparison.makes_timing_claim);
  EXPECT_TRUE(comparison.time_within);
  EXPECT_TRUE(states(comparison.verdict, {"holds", "all 4", "no claim", "more ranks than cores"}));
}

TEST(Compare, SaysWhereBothSidesComeFrom) {
  Plan plan = example_plan();
  plan.calibration_digest = std::string(64, 'a');
  plan.prediction.share_by_provenance = {0.75, 0.25};
  plan.communicator = CommunicatorKind::mpi;
  Measured measured = example_measured(plan);
  const auto is_of = [&](const Comparison& comparison, const char* communicator) {
    return states(comparison.provenance, {"mpi", "aaaaaaaaaaaa", "75.0 % measured", "25.0 %",
                                          "interpolated", communicator, "cpu backend"});
  };
  EXPECT_TRUE(is_of(compare(plan, measured, 0.30), "local"));
  measured.communicator = "mpi";
  const Comparison comparison = compare(plan, measured, 0.30);
  EXPECT_TRUE(is_of(comparison, "with the mpi"));
  EXPECT_NE(comparison_text(comparison).find(comparison.provenance), std::string::npos);
  EXPECT_NE(comparison_json(comparison).find("\"measured\": \"mpi\""), std::string::npos);
}

TEST(Compare, ClaimsNoTimeForAnotherCommunicator) {
  Plan plan = example_plan();
  plan.calibration_digest = std::string(64, 'a');
  Measured measured = example_measured(plan);
  measured.communicator = "mpi";
  const Comparison comparison = compare(plan, measured, 0.02);  // times are 5 % off
  EXPECT_FALSE(comparison.makes_timing_claim);
  EXPECT_TRUE(comparison.time_within);
  EXPECT_TRUE(states(comparison.verdict, {"holds", "all 4", "no claim", "local", "mpi"}));
  EXPECT_TRUE(states(comparison_text(comparison), {"not judged", "local", "mpi"}));
  measured.timeline.memory[1].peak += Bytes(64);
  EXPECT_NE(compare(plan, measured, 0.02).verdict.find("does not hold"), std::string::npos);
  // Without a calibration nothing was measured of any communicator.
  plan.calibration_digest.clear();
  Measured of_datasheet = example_measured(plan);
  of_datasheet.communicator = "mpi";
  EXPECT_TRUE(compare(plan, of_datasheet, 0.02).makes_timing_claim);
}

TEST(Compare, AveragesOpKindsOverRanks) {
  const Plan plan = example_plan();
  const Comparison comparison = compare(plan, example_measured(plan), 0.30);
  ASSERT_EQ(comparison.ops.size(), 5u);
  const KindComparison& matmul = comparison.ops[0];
  EXPECT_EQ(matmul.kind, OpKind::matmul);
  // Three quarters of 2 x 2 ms forward, 2 x 4 ms backward and 1 ms optimizer, on every rank.
  EXPECT_NEAR(matmul.time.predicted.value(), 0.00975, 1e-12);
  EXPECT_NEAR(matmul.time.measured.value(), 0.00975 * 1.05, 1e-12);
  // Beside compute, in ms: stage 0 transfers 0.2 + 0.2 + 1 and waits 4.3 + 2.3; stage 1 transfers
  // 0.2 + 0.4 + 1 (its last send hides in the reduction) and waits 2 + 0.1.
  EXPECT_NEAR(comparison.exposed_transfer.predicted.value(), 0.0015, 1e-12);
  EXPECT_NEAR(comparison.exposed_wait.predicted.value(), 0.00435, 1e-12);
  EXPECT_NEAR(comparison.exposed_wait.measured.value(), 0.00435 * 1.05, 1e-12);
}

TEST(Compare, ShowsKindsOfEitherSide) {
  Plan plan = example_plan();
  Measured measured = example_measured(plan);
  measured.timeline.intervals[0].kind = OpKind::add;
  const Comparison comparison = compare(plan, measured, 0.30);
  const auto add = std::find_if(comparison.ops.begin(), comparison.ops.end(),
                                [](const KindComparison& op) { return op.kind == OpKind::add; });
  ASSERT_NE(add, comparison.ops.end());
  EXPECT_EQ(add->time.predicted, Seconds(0));
  EXPECT_GT(add->time.measured, Seconds(0));
}

TEST(Compare, RefusesTheRunOfAnotherPlan) {
  const Plan plan = example_plan();
  Measured measured = example_measured(plan);
  measured.plan_digest = digest("another plan");
  try {
    compare(plan, measured, 0.30, {"a-plan.json", "a-run.json"});
    FAIL() << "the run was of another plan";
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), "a-run.json");
    EXPECT_EQ(error.pointer(), "/plan_digest");
  }
}

TEST(Compare, RefusesOtherRanks) {
  const Plan plan = example_plan();
  Measured measured = example_measured(plan);
  measured.timeline.memory.pop_back();
  EXPECT_THROW(compare(plan, measured, 0.30), InputError);
  measured = example_measured(plan);
  measured.timeline.memory.push_back(measured.timeline.memory.back());
  EXPECT_THROW(compare(plan, measured, 0.30), InputError);
}

TEST(Compare, JsonHasTheDocumentedKeys) {
  const Plan plan = example_plan();
  const Json json = Json::parse(comparison_json(compare(plan, example_measured(plan), 0.30)));
  EXPECT_EQ(json["step_time_s"]["predicted"].get<double>(), 0.021);
  EXPECT_EQ(json["step_time_s"]["measured"].get<double>(), 0.0221);
  EXPECT_EQ(json["ranks"][2]["rank"].get<int>(), 2);
  EXPECT_EQ(json["ranks"][2]["peak_bytes"]["measured"],
            json["ranks"][2]["peak_bytes"]["predicted"]);
  EXPECT_EQ(json["ranks"][2]["by_class"]["gradient"]["measured"].get<int>(), 327'680);
  EXPECT_EQ(json["ops"][0]["kind"].get<std::string>(), "matmul");
  EXPECT_TRUE(json["ops"][0].contains("predicted_s") && json["ops"][0].contains("measured_s"));
  EXPECT_TRUE(json["exposed"]["wait_s"].contains("predicted"));
  EXPECT_TRUE(json["exposed"]["transfer_s"].contains("measured"));
}

TEST(Compare, TextShowsEveryRank) {
  const Plan plan = example_plan();
  const std::string text = comparison_text(compare(plan, example_measured(plan), 0.30));
  EXPECT_EQ(text.find("The plan holds"), 0u);
  EXPECT_NE(text.find("\n  3     peak                           1,638,464         1,638,464  =\n"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll
