// Learning finds what made-up runs were made with, as far as they tell, and how well they tell it.
#include "fitting/learn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/log_statistics.h"
#include "lab/learning_curves.h"
#include "predict/learned_interval.h"
#include "published/validate.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

struct Layout {
  std::int64_t hidden, tp, dp, micro;
};
constexpr Layout kSmall{512, 1, 4, 1}, kSmallByTwo{512, 2, 2, 1}, kLarge{4096, 1, 4, 8},
    kLargeByTwo{4096, 2, 2, 8}, kMiddle{2048, 2, 2, 2}, kOther{2048, 1, 4, 8}, kHuge{8192, 1, 4, 8};

PublishedTarget placed(const Layout& layout) {
  Json run = plain_row();
  run["hardware"]["gpu"] = "A100-80GB";
  run["hardware"]["gpus"] = layout.tp * layout.dp;
  run["hardware"]["gpus_per_node"] = 8;
  run["model"]["hidden"] = layout.hidden;
  run["model"]["layers"] = 4;
  run["model"]["heads"] = layout.hidden / 64;
  run["model"]["vocab"] = 51200;
  run["model"]["seq_len"] = 1024;
  run["parallel"] = {{"tp", layout.tp}, {"dp", layout.dp}};
  run["batch"]["micro"] = layout.micro;
  run["batch"]["global"] = 2 * layout.micro * layout.dp;
  run["precision"] = "fp16";
  run["recompute"] = "full";
  run["attention"] = "unfused";
  run["framework"] = "megatron-lm 50a4b5fa";
  return target_of(run);
}

/// A cluster whose products take `products` times as long, its host `host` times, and ops bound by
/// memory `memory` times.
struct Truth {
  double products = 1, host = 1, memory = 1;
};

Evaluation evaluated(const PublishedTarget& published) {
  const Target target = published.target();
  const Strategy& strategy = published.strategies.at(0);
  return predict(target, strategy, lay_out(target, strategy, Proof::none), Folding::folded,
                 Detail::critical);
}

/// Returns a layout on a cluster with other numbers than those that predictions rest on.
PublishedTarget placed_with(const Layout& layout, const Truth& truth) {
  PublishedTarget target = placed(layout);
  for (const FitParameter& parameter : fit_parameters(target.cluster)) {
    const double value = parameter.get(target.cluster, target.framework, parameter.level);
    if (parameter.name == "matmul.peak_fraction")
      parameter.set(target.cluster, target.framework, parameter.level, value / truth.products);
    if (parameter.name == "dispatch_op")
      parameter.set(target.cluster, target.framework, parameter.level, value * truth.host);
    if (parameter.name == "memory.bandwidth_fraction")
      parameter.set(target.cluster, target.framework, parameter.level, value / truth.memory);
  }
  return target;
}

Seconds step_of(const Layout& layout, const Truth& truth) {
  return predict_published(placed_with(layout, truth)).step_time;
}

FitRun run_of(const Layout& layout, const Truth& truth, double wrong = 1) {
  return *fit_run(placed(layout), step_of(layout, truth) * wrong);
}

std::optional<FittedCalibration> basis() { return placed(kLarge).fitted; }

const FittedValue& value(const Learned& learned, std::string_view name) {
  return *std::ranges::find(learned.fitted.values, name, &FittedValue::name);
}

/// Returns the prediction of a layout with what was learned.
Evaluation predicted_with(const Learned& learned, const Layout& layout) {
  PublishedTarget published = placed(layout);
  apply(learned.fitted, published.cluster, published.framework);
  published.fitted = learned.fitted;
  return evaluated(published);
}

TEST(Learn, HostAndProductsThatAreOffInOppositeWaysMoveApart) {
  const Truth truth{.products = 0.93, .host = 1.3};
  const Learned learned = learn({run_of(kSmall, truth), run_of(kSmallByTwo, truth),
                                 run_of(kLarge, truth), run_of(kLargeByTwo, truth)},
                                basis());
  EXPECT_GT(value(learned, "dispatch_op").value, 1.12 * value(learned, "dispatch_op").prior);
  EXPECT_TRUE(value(learned, "dispatch_op").determined);
  for (const Layout& unseen : {kMiddle, kOther}) {
    const double measured = step_of(unseen, truth).value();
    const double before = predict_published(placed(unseen)).step_time.value();
    const Prediction now = predicted_with(learned, unseen).prediction;
    EXPECT_LT(std::abs(now.step_time.value() / measured - 1), 0.08);
    EXPECT_LT(std::abs(now.step_time.value() / measured - 1),
              std::abs(before / measured - 1) + 0.01);
    EXPECT_LE(now.step_time_low.value(), measured);
    EXPECT_GE(now.step_time_high.value(), measured);
  }
}

TEST(Learn, OneRunMovesOnlyWhatItShows) {
  const Learned large = learn({run_of(kLarge, {.products = 1.1})}, basis());
  EXPECT_FALSE(value(large, "dispatch_op").determined);
  EXPECT_NEAR(value(large, "dispatch_op").value / value(large, "dispatch_op").prior, 1, 0.1);
  EXPECT_FALSE(large.runs[0].left_out.has_value());
  EXPECT_FALSE(large.fitted.cross_validated_mean.has_value());
  EXPECT_LT(std::abs(large.runs[0].after / large.runs[0].measured - 1), 0.06);
  EXPECT_LT(large.half_width, large.half_width_before);
  const Learned small = learn({run_of(kSmall, {.host = 1.2})}, basis());
  EXPECT_GT(value(small, "dispatch_op").value, 1.02 * value(small, "dispatch_op").prior);
}

const ErrorPart& part(const LearnedRun& run, std::string_view name) {
  return *std::ranges::find(run.error_parts, name, &ErrorPart::name);
}

TEST(Learn, PartsOfTheErrorAreTheNumbersThatAreOff) {
  const Truth truth{.products = 1.3, .host = 1};
  const Learned learned = learn({run_of(kLarge, truth)}, basis());
  const LearnedRun& run = learned.runs[0];
  // The parts change the step as the numbers did, to first order.
  double sum = 0;
  for (const ErrorPart& one : run.error_parts) sum += one.change;
  EXPECT_NEAR(sum, std::log(run.after / run.before), 0.2 * sum);
  // A large layer's step depends on products, and hardly on the host.
  EXPECT_GT(part(run, "products").change, 10 * part(run, "host").change);
  // Slower products alone account for the whole error, if they are as slow as they were made.
  EXPECT_NEAR(*part(run, "products").alone, truth.products, 0.1);
}

TEST(Learn, PartsOfOneStepTimeAreOpen) {
  // Without a difference nothing is off, and all stays open that the step depends on.
  const LearnedRun same = learn({run_of(kLarge, {})}, basis()).runs[0];
  for (const ErrorPart& one : same.error_parts) EXPECT_NEAR(one.change, 0, 1e-6) << one.name;
  EXPECT_GT(part(same, "products").deviation, 0);
  EXPECT_FALSE(part(same, "InfiniBand").alone.has_value());  // all ranks are on one node
  // A run on which the host has little weight shows that it is not products that are off.
  const Truth truth{.products = 1, .host = 2};
  const Learned one = learn({run_of(kSmall, truth)}, basis());
  const Learned several =
      learn({run_of(kSmall, truth), run_of(kSmallByTwo, truth), run_of(kLarge, truth)}, basis());
  const ErrorPart& host = part(several.runs[0], "host");
  EXPECT_GT(host.change, part(one.runs[0], "host").change);
  EXPECT_LT(std::abs(part(several.runs[2], "host").change), 0.1 * host.change);
}

TEST(Learn, TimersMoveApartWhatTheStepCannotTellApart) {
  // Memory is slower, so that the update takes 1.4 times as long, and products make up for it.
  Truth truth{.memory = 1.4};
  const Seconds step = step_of(kHuge, {});
  double least = 0.3, most = 1;
  for (int i = 0; i < 30; ++i) {
    truth.products = (least + most) / 2;
    (step_of(kHuge, truth) < step ? least : most) = truth.products;
  }
  ASSERT_GT(truth.products, 0.31);
  const StepParts parts = evaluated(placed_with(kHuge, truth)).parts;
  std::vector<FitPartTime> timers;
  for (const TimedPart part : {TimedPart::forward, TimedPart::backward, TimedPart::optimizer})
    timers.push_back({part, std::log(time_of(part, parts).value())});
  const auto moved = [](const Learned& learned, const char* name) {
    return value(learned, name).value / value(learned, name).prior;
  };
  const Learned alone = learn({run_of(kHuge, truth)}, basis());
  EXPECT_NEAR(moved(alone, "memory.bandwidth_fraction"), 1, 0.01);
  EXPECT_NEAR(moved(alone, "matmul.peak_fraction"), 1, 0.01);
  const Learned timed = learn({*fit_run(placed(kHuge), step, timers)}, basis());
  ASSERT_EQ(timed.runs[0].parts.size(), 3U);
  EXPECT_LT(moved(timed, "memory.bandwidth_fraction"), 0.93);
  EXPECT_GT(moved(timed, "matmul.peak_fraction"), 1.01);
  EXPECT_NEAR(timed.runs[0].after / step, 1, 0.05);
  for (const LearnedPart& part : timed.runs[0].parts) {
    EXPECT_LT(std::abs(std::log(part.after / part.measured)),
              std::abs(std::log(part.before / part.measured)) + 0.01);
  }
  const LearnedPart& update = timed.runs[0].parts[2];
  EXPECT_NEAR(update.measured / update.before, 1.4, 0.1);
  EXPECT_LT(update.measured / update.after, 1.25);
}

TEST(Learn, PartsThatAgreeWithAStepSayWhatTheStepSays) {
  // The parts are a whole step that takes 1.1 times as long everywhere: less than twice as sure.
  const StepParts parts = evaluated(placed(kLarge)).parts;
  const Seconds step = step_of(kLarge, {}) * 1.1;
  std::vector<FitPartTime> timers;
  for (const TimedPart part : {TimedPart::forward, TimedPart::backward, TimedPart::optimizer})
    timers.push_back({part, std::log(1.1 * time_of(part, parts).value())});
  const Learned alone = learn({*fit_run(placed(kLarge), step)}, basis());
  const Learned timed = learn({*fit_run(placed(kLarge), step, timers)}, basis());
  EXPECT_NEAR(timed.runs[0].after / alone.runs[0].after, 1, 0.03);
  EXPECT_GT(timed.half_width, alone.half_width / 2);
}

TEST(Learn, IntervalsAreWideForStepsUnlikeTheRuns) {
  const Learned learned = learn({run_of(kSmall, {}), run_of(kSmallByTwo, {})}, basis());
  const auto half_width = [&](const Layout& layout) {
    const Prediction found = predicted_with(learned, layout).prediction;
    return std::sqrt(found.step_time_high / found.step_time_low) - 1;
  };
  EXPECT_GT(half_width(kLarge), 1.1 * half_width(kSmall));
}

TEST(Learn, ARunThatTheOthersContradictBendsNothing) {
  const Truth truth{.products = 1.1, .host = 1.2};
  const std::vector<FitRun> right = {run_of(kSmall, truth), run_of(kLarge, truth),
                                     run_of(kLargeByTwo, truth), run_of(kOther, truth)};
  std::vector<FitRun> with_wrong = right;
  with_wrong.push_back(run_of(kMiddle, truth, 2.5));
  const Learned without = learn(right, basis()), with = learn(with_wrong, basis());
  for (std::size_t i = 0; i < with.runs.size(); ++i) EXPECT_EQ(with.runs[i].contradicts, i == 4);
  EXPECT_EQ(with.fitted.runs, 4);
  for (const char* name : {"matmul.peak_fraction", "dispatch_op"})
    EXPECT_NEAR(value(with, name).value / value(without, name).value, 1, 0.02) << name;
}

TEST(Learn, AFileHoldsAllThatPredictionsNeed) {
  const Learned learned = learn({run_of(kSmall, {.host = 2}), run_of(kLarge, {})}, basis());
  const std::string text = fitted_calibration_text(learned.fitted);
  const FittedCalibration read = parse_fitted_calibration(text, "mine.json");
  EXPECT_EQ(read.learned, learned.fitted.learned);
  EXPECT_EQ(fitted_calibration_text(read), text);
}

TEST(SourceSpreads, AreFoundFromErrorsThatTheyMade) {
  // Numbers of 60 sources, the n-th quantile of a normal distribution each; runs without noise.
  PublishedTarget target = placed(kLarge);
  std::vector<FitParameter> parameters = fit_parameters(target.cluster);
  parameters.resize(2);
  constexpr std::array<double, 5> kQuantiles = {-1.28, -0.52, 0, 0.52, 1.28};
  std::vector<SourceErrors> sources;
  for (int n = 0; n < 60; ++n) {
    const double first = 0.3 * kQuantiles[std::size_t(n % 5)];
    const double second = 0.05 * kQuantiles[std::size_t((n / 5) % 5)];
    SourceErrors& source = sources.emplace_back();
    source.parameters = parameters;
    source.precision = Eigen::MatrixXd::Identity(2, 2);
    source.derivatives = Eigen::MatrixXd::Identity(2, 2).replicate(3, 1);
    source.errors = source.derivatives * Eigen::Vector2d(first, second);
  }
  const SourceSpreads found = most_likely_spreads(sources);
  EXPECT_NEAR(found.of(parameters[0]), 0.3, 0.07);
  EXPECT_LT(found.of(parameters[1]), found.of(parameters[0]) / 2);
  EXPECT_LT(found.noise, 0.03);
}

}  // namespace
}  // namespace plimsoll
