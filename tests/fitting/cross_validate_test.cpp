// Intervals of runs left out of a fit are as wide as others needed, in both cross-validations.
#include "fitting/cross_validate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plimsoll {
namespace {

constexpr std::size_t kRuns = 60, kFolds = 3;

/// Runs within a node, each in fold run % kFolds, predicted off by `off(run)` of a logarithm.
template <class Off>
CrossValidation left_out(Off off) {
  CrossValidation found;
  found.folds.resize(kFolds);
  for (std::size_t run = 0; run < kRuns; ++run) {
    UnseenRun& unseen = found.runs.emplace_back();
    unseen.run = run;
    unseen.family = "family";
    unseen.fold = run % kFolds;
    unseen.predicted = (run % 2 == 0 ? 1 : -1) * off(run);
  }
  return found;
}

std::vector<UnseenRun> pooled(const CrossValidation& a, const CrossValidation& b) {
  std::vector<UnseenRun> all = a.runs;
  all.insert(all.end(), b.runs.begin(), b.runs.end());
  return all;
}

TEST(CrossValidation, IntervalsAreAsWideAsBothNeeded) {
  const CrossValidation narrow = left_out([](std::size_t) { return 0.02; });
  const CrossValidation wide = left_out([](std::size_t) { return 0.1; });
  const FitFamily alone = families_of(narrow, narrow.runs).at(0);
  const FitFamily together = families_of(narrow, pooled(narrow, wide)).at(0);
  EXPECT_NEAR(*alone.unseen.interval90_half_width, std::exp(0.02) - 1, 1e-6);
  EXPECT_NEAR(*together.unseen.interval90_half_width, std::exp(0.1) - 1, 1e-6);
  EXPECT_EQ(*together.unseen.interval90_coverage, 1);
  EXPECT_NEAR(together.unseen.mean_abs, alone.unseen.mean_abs, 1e-12);
}

TEST(CrossValidation, WhatIsKnownOfAFoldDoesNotWidenItsOwnInterval) {
  // Runs of fold 0 are far off; by the other cross-validation, in which they lie in all folds, too.
  const auto off = [](std::size_t run) { return run % kFolds == 0 ? 0.3 : 0.02; };
  const CrossValidation by_layout = left_out(off);
  CrossValidation by_size = left_out(off);
  for (UnseenRun& run : by_size.runs) run.fold = run.run / (kRuns / kFolds);
  const FitFamily family = families_of(by_layout, pooled(by_layout, by_size)).at(0);
  // Fold 0 is judged by the others' 0.02, and missed; they by its 0.3.
  EXPECT_NEAR(*family.unseen.interval90_coverage, 2.0 / 3, 1e-12);
  EXPECT_NEAR(*family.unseen.interval90_half_width,
              (std::exp(0.02) - 1 + 2 * (std::exp(0.3) - 1)) / 3, 1e-3);
}

TEST(CrossValidation, WithoutRunsLeftOutThereIsNothing) {
  EXPECT_TRUE(families_of(CrossValidation{}, {}).empty());
}

}  // namespace
}  // namespace plimsoll
