// A fit finds what made-up runs were made with, and says what they do not determine.
#include "fitting/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "published/validate.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

const FitOptions kOptions{.cluster = "dgx-a100-80gb", .framework = "megatron-lm-2021"};

Json layout(std::int64_t hidden, std::int64_t tp, std::int64_t dp, std::int64_t micro) {
  Json run = plain_row();
  run["id"] = "made up";
  set_source(run, "this test");
  run["hardware"]["gpu"] = "A100-80GB";
  run["hardware"]["gpus"] = tp * dp;
  run["hardware"]["gpus_per_node"] = 8;
  run["model"]["name"] = "GPT";
  run["model"]["hidden"] = hidden;
  run["model"]["layers"] = 2;
  run["model"]["heads"] = hidden / 64;
  run["model"]["vocab"] = 51200;
  run["model"]["seq_len"] = 1024;
  run["parallel"] = {{"tp", tp}, {"dp", dp}};
  run["batch"]["micro"] = micro;
  run["batch"]["global"] = 2 * micro * dp;
  run["precision"] = "fp16";
  run["recompute"] = "full";
  run["attention"] = "unfused";
  run["framework"] = "megatron-lm 50a4b5fa";  // as others measured it: without dropout
  return run;
}

/// Returns the row as a run that took as long as the values predict.
PublishedRun measured_with(const FittedCalibration& truth, Json run) {
  PublishedTarget target = target_of(run, own_numbers());
  EXPECT_EQ(target.missing, "");
  apply(truth, target.cluster, target.framework);
  run["measured"]["step_time_s"] = predict_published(target).step_time.value();
  return run_of(run);
}

/// Runs whose step times are those of a device that reaches `fraction` of its peak and a host that
/// needs `dispatch` seconds for an op, and `more`.
std::vector<PublishedRun> made_with(double fraction, double dispatch,
                                    const std::string& recompute = "full", std::int64_t layers = 2,
                                    std::int64_t most_micro = 8,
                                    const std::vector<FittedValue>& more = {}) {
  FittedCalibration truth;
  truth.values = {{"matmul.peak_fraction", fraction, 1, 0, 0, true},
                  {"dispatch_op", dispatch, 1, 0, 0, true}};
  truth.values.insert(truth.values.end(), more.begin(), more.end());
  std::vector<PublishedRun> runs;
  for (const std::int64_t hidden : {512, 2048, 4096}) {
    for (const std::int64_t tp : {1, 2}) {
      for (const std::int64_t dp : {1, 2, 4}) {
        for (const std::int64_t micro : {std::int64_t{1}, most_micro}) {
          Json run = layout(hidden, tp, dp, micro);
          run["model"]["layers"] = layers;
          run["recompute"] = recompute;
          runs.push_back(measured_with(truth, run));
        }
      }
    }
  }
  return runs;
}

const FittedValue& value(const Fit& fit, std::string_view name) {
  return *std::find_if(fit.fitted.values.begin(), fit.fitted.values.end(),
                       [&](const FittedValue& other) { return other.name == name; });
}

TEST(Fit, FindsWhatRunsWereMadeWith) {
  FitOptions plain = kOptions;
  plain.layers = LayerShapes::none;
  const Fit found = fit(made_with(0.7, 120e-6), plain);
  EXPECT_LT(found.mean_abs_error, 0.02);
  EXPECT_GT(found.mean_abs_error_before, 0.1);
  EXPECT_LT(*found.fitted.cross_validated_mean, 0.03);
  EXPECT_NEAR(value(found, "matmul.peak_fraction").value, 0.7, 0.04);
  EXPECT_NEAR(value(found, "dispatch_op").value, 120e-6, 3e-6);
  EXPECT_TRUE(value(found, "dispatch_op").determined);
  EXPECT_EQ(found.fitted.sources, std::vector<std::string>{"this test, page"});
}

TEST(Fit, RunsInEightBitsSayNothingOfProductsInSixteen) {
  FittedCalibration truth;
  truth.values = {{"matmul.fp8_rate", 0.6, 1, 0, 0, true}};
  const auto runs_in = [&](const char* precision) {
    std::vector<PublishedRun> runs;
    for (const std::int64_t hidden : {2048, 4096, 8192}) {
      for (const std::int64_t dp : {1, 2, 4}) {
        Json run = layout(hidden, 1, dp, 4);
        run["hardware"]["gpu"] = "H100-80GB SXM";
        run["framework"] = "megatron-core";
        run["attention"] = "flash";
        run["precision"] = precision;
        runs.push_back(measured_with(truth, run));
      }
    }
    return runs;
  };
  FitOptions options{.cluster = "dgx-h100-80gb", .framework = "megatron-lm"};
  options.layers = LayerShapes::none;
  std::vector<PublishedRun> runs = runs_in("fp8");
  const Fit narrow = fit(runs, options);
  const FittedValue& fraction = value(narrow, "matmul.peak_fraction");
  EXPECT_EQ(fraction.value, fraction.prior);
  EXPECT_FALSE(fraction.determined);
  EXPECT_NEAR(value(narrow, "matmul.fp8_rate").value, 0.6, 0.06);
  for (PublishedRun& run : runs) run.source = "github:a/narrow@1, page";
  for (PublishedRun& run : runs_in("bf16")) {
    run.source = "github:b/wide@1, page";
    runs.push_back(run);
  }
  options.without = true;
  const Fit both = fit(runs, options);
  EXPECT_TRUE(value(both, "matmul.peak_fraction").determined);
  ASSERT_EQ(both.without.size(), 2u);
  const FittedCalibration& fold = both.without[1].fitted;
  EXPECT_EQ(both.without[1].document, "github:b/wide");
  EXPECT_FALSE(
      std::ranges::find(fold.values, "matmul.peak_fraction", &FittedValue::name)->determined);
}

TEST(Fit, IsMadeAgainWithoutEachDocument) {
  FitOptions options = kOptions;
  options.layers = LayerShapes::none;
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6);
  for (PublishedRun& run : runs) run.source = "github:a/fast@1, page";
  EXPECT_TRUE(fit(runs, options).without.empty());  // not asked for
  options.without = true;
  EXPECT_TRUE(fit(runs, options).without.empty());  // nothing is left
  for (PublishedRun& run : made_with(0.5, 120e-6, "full", 3)) {
    run.source = "github:b/slow@1, page";
    runs.push_back(run);
  }
  runs.push_back(runs.front());
  runs.back().source = "github:c/one@1, page";
  const Fit found = fit(runs, options);
  ASSERT_EQ(found.without.size(), 3u);
  const auto rate = [](const FittedCalibration& fitted) {
    return std::ranges::find(fitted.values, "matmul.peak_fraction", &FittedValue::name)->value;
  };
  const FittedCalibration &slow = found.without[0].fitted, &fast = found.without[1].fitted;
  EXPECT_EQ(found.without[0].document, "github:a/fast");
  EXPECT_NEAR(rate(slow), 0.5, 0.04);
  EXPECT_NEAR(rate(fast), 0.7, 0.04);
  EXPECT_EQ(fast.sources,
            (std::vector<std::string>{"github:a/fast@1, page", "github:c/one@1, page"}));
  EXPECT_EQ(slow.runs + fast.runs, found.fitted.runs + 1);  // both have the run of the third
  EXPECT_LT(fast.sizes.size(), found.fitted.sizes.size());
  EXPECT_EQ(fast.levels, found.fitted.levels);
  EXPECT_EQ(fast.cluster, found.fitted.cluster);
  // Its error is over the runs that it uses, as cross-validation by layouts predicted them.
  EXPECT_NE(fast.cross_validated_mean, found.fitted.cross_validated_mean);
  std::vector<UnseenRun> used = found.by_layout.runs;
  std::erase_if(used, [&](const UnseenRun& run) {
    return runs[run.run].source.starts_with("github:b/slow");
  });
  EXPECT_EQ(std::ssize(used), fast.runs);
  EXPECT_EQ(fast.cross_validated_mean, mean_abs_error(used));
}

TEST(Fit, FindsWhatTheHostWaitsAndWhatBackwardCostsIt) {
  // The cost of each wait shows where few layers share one, and backward's part where some layers
  // are repeated.
  std::vector<PublishedRun> runs;
  for (const char* recompute : {"none", "full"}) {
    for (const std::int64_t layers : {2, 8}) {
      const std::vector<PublishedRun> next = made_with(
          0.7, 120e-6, recompute, layers, 8,
          {{"host_wait", 1e-3, 1, 0, 0, true}, {"backward_dispatch", 0.8, 1, 0, 0, true}});
      runs.insert(runs.end(), next.begin(), next.end());
    }
  }
  FitOptions plain = kOptions;
  plain.layers = LayerShapes::none;
  const Fit found = fit(runs, plain);
  EXPECT_NEAR(value(found, "host_wait").value, 1e-3, 1e-4);
  EXPECT_NEAR(value(found, "backward_dispatch").value, 0.8, 0.04);
  EXPECT_TRUE(value(found, "host_wait").determined);
  EXPECT_TRUE(value(found, "backward_dispatch").determined);
  EXPECT_NEAR(value(found, "dispatch_op").value, 120e-6, 6e-6);
}

TEST(Fit, FindsWhatKernelsLoseBesideGathers) {
  // Fully sharded, so that every layer is gathered beside the one before it: on more devices more
  // of its time is communication, and of small micro-batches.
  FittedCalibration truth;
  truth.values = {{"overlap.compute_slowdown", 1.4, 1, 0, 0, true}};
  std::vector<PublishedRun> runs;
  for (const std::int64_t hidden : {1024, 2048, 4096}) {
    for (const std::int64_t dp : {2, 4, 8, 16}) {
      for (const std::int64_t micro : {1, 2, 4, 16}) {
        Json run = layout(hidden, 1, dp, micro);
        run["model"]["layers"] = 8;
        run["framework"] = "pytorch-fsdp";
        run["parallel"]["zero_stage"] = 3;
        run["precision"] = "bf16";
        run["recompute"] = "none";
        run["attention"] = "flash";
        runs.push_back(measured_with(truth, run));
      }
    }
  }
  FitOptions plain = kOptions;
  plain.framework = "pytorch-fsdp";
  plain.layers = LayerShapes::none;
  const Fit found = fit(runs, plain);
  EXPECT_NEAR(value(found, "overlap.compute_slowdown").value, 1.4, 0.06);
  EXPECT_TRUE(value(found, "overlap.compute_slowdown").determined);
}

TEST(Fit, RunsOnTheDeviceOfAUsersClusterCount) {
  Cluster mine = read_cluster("dgx-a100-80gb");
  mine.name = "mine";
  mine.levels.back().bandwidth = BytesPerSecond(12.5e9);
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6);
  FitOptions options = kOptions;
  options.cluster = "mine";
  options.layers = LayerShapes::none;
  try {
    fit(runs, options);
    FAIL();
  } catch (const InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("36 on dgx-a100-80gb with megatron-lm-2021"),
              std::string::npos)
        << error.what();
  }
  for (PublishedRun& run : runs) put_on(mine, run);
  EXPECT_EQ(published_target(runs[0]).cluster.levels.back().bandwidth, BytesPerSecond(12.5e9));
  const Fit found = fit(runs, options);
  EXPECT_EQ(found.fitted.cluster, "mine");
  EXPECT_EQ(found.fitted.runs, std::int64_t(runs.size()));
  EXPECT_NEAR(value(found, "dispatch_op").value, 120e-6, 3e-6);
  // A run on another device stays where it is.
  Json other = layout(512, 1, 1, 1);
  other["hardware"]["gpu"] = "H100";
  PublishedRun elsewhere = run_of(other);
  put_on(mine, elsewhere);
  EXPECT_FALSE(elsewhere.own_cluster);
}

TEST(Fit, RunsWhoseLaunchesWaitAreLeftOut) {
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6);
  const Fit all = fit(runs, kOptions);
  for (std::size_t i = 0; i < runs.size(); i += 4)
    runs[i].framework->host.waits.for_launches = true;
  EXPECT_EQ(fit(runs, kOptions).fitted.runs, all.fitted.runs - std::int64_t(runs.size() / 4));
}

TEST(Fit, WhatRunsDoNotShowStaysAtItsPrior) {
  const Fit found = fit(made_with(0.7, 120e-6), kOptions);
  for (const char* name : {"attention_forward.peak_fraction", "levels.1.bandwidth_fraction"}) {
    EXPECT_FALSE(value(found, name).determined) << name;
    EXPECT_EQ(value(found, name).value, value(found, name).prior) << name;
  }
  EXPECT_NE(fit_text(found).find("not determined, stay: "), std::string::npos);
}

TEST(Fit, ARunThatLiesFarOffMovesLittle) {
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6);
  runs[3].step_time = 3.0 * *runs[3].step_time;
  EXPECT_NEAR(value(fit(runs, kOptions), "dispatch_op").value, 120e-6, 6e-6);
}

TEST(Fit, LayersOfAShapeThatAreSlowerAreFoundOut) {
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6);
  for (PublishedRun& run : runs) {
    const bool slower = run.hidden == 2048 && run.tp == 2 && run.micro_batch == 8;
    if (slower) run.step_time = 1.1 * *run.step_time;
  }
  const Fit with = fit(runs, kOptions);
  FitOptions plain = kOptions;
  plain.layers = LayerShapes::none;
  const Fit without = fit(runs, plain);
  EXPECT_TRUE(without.fitted.layers.empty());
  EXPECT_LT(with.mean_abs_error, without.mean_abs_error);
  const LayerShape shape{8 * 1024, 1024, 2048, 2};
  for (const LayerPoint& point : with.fitted.layers) {
    EXPECT_EQ(point.factor > 1.04, point.shape == shape) << point.factor;
    EXPECT_EQ(point.runs, 3);
    // The runs leave little open of a factor. All factors and the rate could be off together, by 3
    // % and more: that is open of the rate, not of a run.
    EXPECT_LT(point.deviation, 0.01);
  }
  const FittedValue& rate = value(with, "matmul.peak_fraction");
  EXPECT_GT(rate.high / rate.value, 1.03);
}

TEST(Fit, ShapesOfOneLayoutHaveNoFactor) {
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6);
  std::erase_if(runs, [](const PublishedRun& run) { return run.dp != 1; });
  const std::vector<PublishedRun> once = runs;
  runs.insert(runs.end(), once.begin(), once.end());
  runs.insert(runs.end(), once.begin(), once.end());
  EXPECT_TRUE(fit(runs, kOptions).fitted.layers.empty());
}

// With few layers, another rate of products explains repeated layers as well.
TEST(Fit, FindsOutWhetherLayersWereRepeated) {
  for (const bool full : {false, true}) {
    std::vector<PublishedRun> runs = made_with(0.7, 120e-6, full ? "full" : "none", 8);
    for (PublishedRun& run : runs) run.recompute = StatedRecompute::unknown;
    const Fit found = fit(runs, kOptions);
    EXPECT_EQ(found.fitted.assumed_recompute, (AssumedRecompute{full, std::nullopt}));
    EXPECT_LT(found.mean_abs_error, 0.02) << full;
    EXPECT_NE(fit_text(found).find("repeated within a node"), std::string::npos);
  }
}

TEST(Fit, RunsThatRanHadTheMemory) {
  // Times of runs that repeat nothing; but more than a tenth would not fit 80 GB so.
  std::vector<PublishedRun> runs = made_with(0.7, 120e-6, "none", 8, 64);
  for (PublishedRun& run : runs) run.recompute = StatedRecompute::unknown;
  EXPECT_EQ(fit(runs, kOptions).fitted.assumed_recompute, (AssumedRecompute{true, std::nullopt}));
}

TEST(Fit, ModelSizesAreLeftOutWhole) {
  const Fit found = fit(made_with(0.7, 120e-6), kOptions);
  ASSERT_EQ(found.by_size.folds.size(), 3u);
  EXPECT_EQ(found.by_size.folds[0].left_out, std::vector<std::string>{"2x2048"});
  EXPECT_EQ(found.by_size.runs.size(), std::size_t(found.fitted.runs));
  EXPECT_GT(found.fitted.unseen_sizes_mean, 0.0);
  EXPECT_LT(found.fitted.unseen_sizes_mean, 0.05);
}

TEST(Fit, SameRunsSameBytes) {
  const std::vector<PublishedRun> runs = made_with(0.75, 60e-6);
  EXPECT_EQ(fitted_calibration_text(fit(runs, kOptions).fitted),
            fitted_calibration_text(fit(runs, kOptions).fitted));
}

TEST(Fit, RefusesWhereNothingIsOnTheMachine) {
  FitOptions elsewhere = kOptions;
  elsewhere.cluster = "hgx-h200";
  EXPECT_THROW(fit(made_with(0.7, 120e-6), elsewhere), InfeasibleError);
}

}  // namespace
}  // namespace plimsoll
