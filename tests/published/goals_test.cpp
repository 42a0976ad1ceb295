// Goals of a validation: read, met, missed.
#include "published/goals.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

ValidatedRun row(double predicted, double measured) {
  ValidatedRun row;
  row.run.step_time = Seconds(measured);
  row.predicted.emplace();
  row.predicted->step_time = Seconds(predicted);
  row.predicted->interval = {0.8, 1.25};
  row.predicted->fits = Fits::yes;
  return row;
}

ValidatedFamily family() {
  ValidatedFamily family;
  family.name = "runs";
  family.runs = {row(1.1, 1), row(1.8, 2), row(3.3, 3)};  // each 10 % off
  return family;
}

std::vector<GoalResult> results(const std::string& bounds, const ValidatedFamily& family) {
  const std::string text = "{\"goals\": [{\"family\": \"runs\", \"of\": \"time\"" + bounds + "}]}";
  return check_goals(parse_goals(text, "g.json"), std::array{family}, "g.json");
}

TEST(Goals, BoundsAreMetOrMissed) {
  const auto close = results(", \"most_mean_abs_pct\": 11, \"least_spearman\": 0.9", family());
  ASSERT_EQ(close.size(), 2u);
  EXPECT_TRUE(close[0].met);
  EXPECT_NEAR(close[0].found, 10, 1e-9);
  EXPECT_TRUE(close[1].met);
  const auto far = results(", \"most_mean_abs_pct\": 9", family());
  EXPECT_FALSE(far[0].met);
  EXPECT_NE(goals_text(far).find("goals: 0 of 1 met"), std::string::npos);
}

TEST(Goals, IntervalsMustHoldAndBeNarrow) {
  const auto found =
      results(", \"least_interval90_coverage\": 0.9, \"most_interval90_to_error\": 2", family());
  EXPECT_TRUE(found[0].met);
  EXPECT_FALSE(found[1].met);  // 25 % against 10 %
  EXPECT_NEAR(found[1].found, 2.5, 1e-9);
}

TEST(Goals, OnlyRowsThatOthersCouldPredictCountAsSkipped) {
  ValidatedFamily mixed = family();
  ValidatedRun moe, fp8;
  moe.run.needs = {"moe"};
  fp8.run.needs = {"fp8"};
  mixed.runs.push_back(moe);
  mixed.runs.push_back(fp8);
  EXPECT_NEAR(results(", \"most_skipped_pct\": 10", mixed)[0].found, 25, 1e-9);
}

TEST(Goals, OutOfMemoryIsCountedBothWays) {
  ValidatedFamily wrong = family();
  wrong.runs[0].run.out_of_memory = true;
  wrong.runs[1].predicted->fits = Fits::no;
  const auto found = results(", \"most_missed_oom\": 0, \"most_false_oom\": 0", wrong);
  EXPECT_EQ(found[0].found, 1);
  EXPECT_EQ(found[1].found, 1);
  EXPECT_FALSE(found[0].met);
}

TEST(Goals, OutOfMemoryThatIsNotPredictedIsMissed) {
  ValidatedFamily silent = family();
  silent.runs[0].run.out_of_memory = true;
  silent.runs[0].predicted.reset();
  silent.runs[1].predicted.reset();  // it ran: no false alarm
  const auto found = results(", \"most_missed_oom\": 0, \"most_false_oom\": 0", silent);
  EXPECT_EQ(found[0].found, 1);
  EXPECT_FALSE(found[0].met);
  EXPECT_EQ(found[1].found, 0);
  EXPECT_TRUE(found[1].met);
}

TEST(Goals, NothingSkippedOfNothingIsNotMet) {
  ValidatedFamily moe = family();
  for (ValidatedRun& run : moe.runs) {
    run.run.needs = {"moe"};
    run.predicted.reset();
  }
  EXPECT_FALSE(results(", \"most_skipped_pct\": 100", moe)[0].met);
}

TEST(Goals, WhatWasNotMeasuredIsNotMet) {
  const std::string text =
      R"({"goals": [{"family": "runs", "of": "memory_device", "most_mean_abs_pct": 99}]})";
  const auto found = check_goals(parse_goals(text, "g.json"), std::array{family()}, "g.json");
  EXPECT_FALSE(found[0].met);
}

TEST(Goals, BoundRegretOverAllFamilies) {
  const std::string text =
      R"({"goals": [{"of": "regret", "most_mean_pct": 10, "most_worst_pct": 60,
                     "most_best_of_three_pct": 0}]})";
  const std::vector<Goal> goals = parse_goals(text, "g.json");
  ValidatedFamily one = family();
  for (std::size_t i = 0; i < 3; ++i) one.runs[i].predicted->strategy.micro_batch = 1 << i;
  one.runs[1].predicted->step_time = Seconds(1);  // chosen, and twice as slow as the best
  const auto found = check_goals(goals, std::array{one}, "g.json");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_NEAR(found[0].found, 100, 1e-9);
  EXPECT_FALSE(found[0].met);
  EXPECT_FALSE(found[1].met);
  EXPECT_TRUE(found[2].met);
  EXPECT_FALSE(check_goals(goals, {}, "g.json")[2].met);  // nothing was compared
}

TEST(Goals, BadFilesAreRefused) {
  EXPECT_THROW(parse_goals(R"({"goals": [{"family": "runs"}]})", "g.json"), InputError);
  EXPECT_THROW(parse_goals(R"({"goals": [{"of": "regret", "family": "runs"}]})", "g.json"),
               InputError);
  EXPECT_THROW(results(", \"most_mean_pct\": 9", family()), InputError);
  ValidatedFamily other = family();
  other.name = "others";
  EXPECT_THROW(results(", \"most_mean_abs_pct\": 9", other), InputError);
}

}  // namespace
}  // namespace plimsoll
