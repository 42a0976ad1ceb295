// Regret of made-up rows, of which the right answer is known.
#include "published/layout_regret.h"

#include <gtest/gtest.h>

#include <array>

namespace plimsoll {
namespace {

/// A row of tp x 1 x (8 / tp) ranks. Absent `measured`: it ran out of memory.
ValidatedRun row(std::int64_t tp, double predicted, std::optional<double> measured,
                 const std::string& release = "") {
  ValidatedRun row;
  row.run.id = "run " + std::to_string(tp) + release;
  row.run.source = "document@1, page 1";
  row.run.model = "GPT";
  row.run.vocab = 50257;
  row.run.gpus = 8;
  row.run.release = release;
  if (measured) row.run.step_time = Seconds(*measured);
  row.run.out_of_memory = !measured;
  row.predicted.emplace();
  row.predicted->step_time = Seconds(predicted);
  row.predicted->fits = Fits::yes;
  row.predicted->job.vocab = 128 * tp * 400;  // padded for the layout
  row.predicted->strategy.mp = tp;
  row.predicted->strategy.dp = 8 / tp;
  return row;
}

std::vector<LayoutGroup> groups_of(std::vector<ValidatedRun> runs) {
  return layout_groups(std::array{ValidatedFamily{"runs", std::move(runs)}});
}

TEST(LayoutRegret, TheChosenLayoutIsHeldAgainstTheBest) {
  const auto groups =
      groups_of({row(1, 1.0, 1.2), row(2, 1.1, 1.5), row(4, 1.2, 1.1), row(8, 1.3, 1.0)});
  ASSERT_EQ(groups.size(), 1u);
  const LayoutGroup& group = groups[0];
  EXPECT_EQ(group.source, "document");
  ASSERT_EQ(group.layouts.size(), 4u);
  EXPECT_EQ(group.layouts[0].runs, std::vector<std::string>{"run 8"});  // the best comes first
  EXPECT_EQ(group.fastest.chosen, 2u);
  EXPECT_NEAR(group.fastest.first, 0.2, 1e-12);
  EXPECT_NEAR(group.fastest.best_of_three, 0.1, 1e-12);  // the best is the fourth
  EXPECT_NEAR(group.spearman.value(), -0.8, 1e-12);
}

TEST(LayoutRegret, TrialsAreTriedAfterTheFirstLayout) {
  // Two layouts are predicted alike, and the other is measured to be faster; the last one is
  // predicted to be ten times as slow, and nobody tries it.
  std::vector<ValidatedRun> runs = {row(1, 1.0, 1.3), row(2, 1.001, 1.1), row(4, 10, 1.0)};
  for (ValidatedRun& run : runs) {
    run.predicted->interval = around(0.1);
    run.predicted->breakdown.bubble = Seconds(0.01 * double(run.predicted->strategy.mp));
  }
  const Regret found = groups_of(runs)[0].recommended;
  EXPECT_NEAR(found.first, 0.3, 1e-12);
  EXPECT_NEAR(found.after_trials, 0.1, 1e-12);
  EXPECT_EQ(found.trials, 2u);
}

TEST(LayoutRegret, UnusualChoicesCountForTheRecommendedLayoutAlone) {
  ValidatedRun odd = row(1, 1.0, 1.3);
  odd.predicted->unusual = {Unusual(UnusualChoice::odd_micro_batch)};
  const auto groups = groups_of({odd, row(2, 1.01, 1.0), row(4, 2, 2)});
  EXPECT_NEAR(groups[0].fastest.first, 0.3, 1e-12);
  EXPECT_EQ(groups[0].recommended.first, 0);
}

TEST(LayoutRegret, LayoutsOutOfMemoryAreFailedStarts) {
  const auto groups =
      groups_of({row(1, 1.0, {}), row(2, 1.1, 1.2), row(4, 1.2, 1.0), row(8, 1.3, 1.1)});
  EXPECT_EQ(groups[0].fastest.failed_starts, 1u);
  EXPECT_NEAR(groups[0].fastest.first, 0.2, 1e-12);
  EXPECT_GE(groups[0].fastest.trials, 2u);
  EXPECT_EQ(groups[0].layouts.back().measured, std::nullopt);
  // Two layouts that ran are no group, whatever else was tried.
  EXPECT_TRUE(groups_of({row(1, 1, {}), row(2, 1, 1), row(4, 1, 1)}).empty());
}

TEST(LayoutRegret, WhatIsCalledTooLargeIsNotChosenButMayBeTheBest) {
  ValidatedRun large = row(1, 0.9, 1.0);
  large.predicted->fits = Fits::no;
  EXPECT_NEAR(groups_of({large, row(2, 1.1, 1.4), row(4, 1.2, 1.5)})[0].fastest.first, 0.4, 1e-12);
  std::vector<ValidatedRun> none = {large, row(2, 1.1, 1.4), row(4, 1.2, 1.5)};
  for (ValidatedRun& run : none) run.predicted->fits = Fits::no;
  EXPECT_EQ(groups_of(none)[0].fastest.first, 0);
}

TEST(LayoutRegret, ReleasesOfOneRecipeAreOneLayout) {
  // The newer release of the recipe overlaps the exchange, and the source measured it twice as
  // fast.
  ValidatedRun newer = row(1, 0.8, 1.0, "2"), older = row(1, 1.2, 2.0, "1");
  newer.predicted->strategy.experts.overlap_exchange = true;
  const auto groups = groups_of({newer, older, row(2, 1.1, 1.1), row(4, 1.3, 1.3)});
  ASSERT_EQ(groups[0].layouts.size(), 3u);
  EXPECT_EQ(groups[0].layouts.back().measured, Seconds(1.5));
  EXPECT_EQ(groups[0].layouts.back().predicted, Seconds(1.0));
  // Within one release they are two layouts.
  older.run.release = "2";
  EXPECT_EQ(groups_of({newer, older, row(2, 1.1, 1.1)})[0].layouts.size(), 3u);
}

TEST(LayoutRegret, JobsMachinesAndProgramsAreGroupsApart) {
  const std::vector<ValidatedRun> runs = {row(1, 1, 1), row(2, 2, 2), row(4, 3, 3)};
  EXPECT_EQ(groups_of(runs).size(), 1u);
  const auto apart = [&](auto change) {
    std::vector<ValidatedRun> all = runs;
    for (ValidatedRun run : runs) {
      change(run);
      all.push_back(run);
    }
    return groups_of(all).size();
  };
  EXPECT_EQ(apart([](ValidatedRun& run) { run.run.source = "other, page 1"; }), 2u);
  EXPECT_EQ(apart([](ValidatedRun& run) { run.predicted->job.global_batch = 3; }), 2u);
  EXPECT_EQ(apart([](ValidatedRun& run) { run.run.gpus = 16; }), 2u);
  EXPECT_EQ(apart([](ValidatedRun& run) { run.run.interconnect = "TCP"; }), 2u);
  EXPECT_EQ(apart([](ValidatedRun& run) { run.predicted->framework = "other"; }), 2u);
  EXPECT_EQ(apart([](ValidatedRun& run) { run.run.kernels = {"other"}; }), 2u);
  EXPECT_EQ(apart([](ValidatedRun& run) { run.run.release = "2"; }), 1u);
}

TEST(LayoutRegret, EachSourceCountsOnce) {
  std::vector<ValidatedRun> runs;
  const auto add = [&](const std::string& source, std::int64_t batch, double chosen) {
    for (ValidatedRun run : {row(1, 1, chosen), row(2, 2, 1), row(4, 3, 3)}) {
      run.run.source = source + ", page";
      run.predicted->job.global_batch = batch;
      runs.push_back(run);
    }
  };
  add("a", 8, 1.1);
  add("a", 16, 1.3);
  add("b", 8, 1.0);
  const auto groups = groups_of(runs);
  const auto sources = regret_by_source(groups);
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].groups, 2u);
  EXPECT_NEAR(sources[0].recommended.mean, 0.2, 1e-12);
  EXPECT_NEAR(sources[0].recommended.worst, 0.3, 1e-12);
  const SourceRegret all = regret_of_all(sources).value();
  EXPECT_EQ(all.groups, 3u);
  EXPECT_NEAR(all.recommended.mean, 0.1, 1e-12);
  EXPECT_NEAR(all.recommended.worst, 0.3, 1e-12);
  EXPECT_EQ(all.recommended.best_of_three, 0);
  EXPECT_NE(regret_text(groups, true).find("30.0 %"), std::string::npos);
  EXPECT_EQ(regret_text({}, true), "");
  EXPECT_TRUE(regret_json({})["all"].is_null());
}

}  // namespace
}  // namespace plimsoll
