// Sweep: lists of points, what a training costs at each, and which of them answers.
#include "planner/sweep/sweep.h"

#include <gtest/gtest.h>

#include "models/presets/presets.h"
#include "planner/search/search.h"
#include "planner/sweep/sweep_inputs.h"
#include "planner/sweep/sweep_output.h"
#include "predict/calibration_choice.h"
#include "predict/cost_basis.h"
#include "reports/numbers.h"
#include "reports/page.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<std::int64_t>;

TEST(Sweep, ListsAreNumbersAndRanges) {
  const auto parse = [](const std::vector<std::string>& lists) {
    return parse_numbers("--devices", lists, 1, 4096);
  };
  EXPECT_EQ(parse({"64..1024x2"}), (Numbers{64, 128, 256, 512, 1024}));
  EXPECT_EQ(parse({"64..1000x2"}), (Numbers{64, 128, 256, 512}));
  EXPECT_EQ(parse({"96,64,128,64"}), (Numbers{64, 96, 128}));
  EXPECT_EQ(parse({"64..256+64", "8"}), (Numbers{8, 64, 128, 192, 256}));
  EXPECT_EQ(parse({"7..7x3"}), (Numbers{7}));
  for (const char* wrong : {"", "0", "5000", "8..64", "64..8x2", "8..64x1", "8..64+0", "8..64y2",
                            "8,,16", "8-64", "1..4096+", "x2", "..x2"}) {
    EXPECT_THROW(parse({wrong}), UsageError) << wrong;
  }
  EXPECT_THROW(parse({"1..4096+1"}), UsageError);  // too many
}

TEST(Sweep, AmountsHaveUnits) {
  EXPECT_EQ(parse_tokens("15T"), 15e12);
  EXPECT_EQ(parse_tokens("300B"), 300e9);
  EXPECT_EQ(parse_tokens("1e12"), 1e12);
  EXPECT_EQ(parse_tokens("2.5 M"), 2.5e6);
  for (const char* wrong : {"", "T", "0", "-5B", "15 trillion", "1e30", "nan", "inf"})
    EXPECT_THROW(parse_tokens(wrong), UsageError) << wrong;
  EXPECT_EQ(parse_days("--deadline", "30d"), Seconds(30 * 86400.0));
  EXPECT_EQ(parse_days("--deadline", "1.5 h"), Seconds(5400));
  EXPECT_EQ(parse_days("--deadline", "90min"), Seconds(5400));
  for (const char* wrong : {"30", "d", "0d", "-1d", "30 days", "1e9d"})
    EXPECT_THROW(parse_days("--deadline", wrong), UsageError) << wrong;
  EXPECT_EQ(parse_price("2.5/h").per_hour, 2.5);
  EXPECT_EQ(parse_price("2.5").per_hour, 2.5);
  EXPECT_EQ(parse_price("2.5/h").cluster, "");
  EXPECT_EQ(parse_price("big-one=3/h").cluster, "big-one");
  for (const char* wrong : {"=2/h", "a=", "0/h", "-1/h", "2/d", "a=b"})
    EXPECT_THROW(parse_price(wrong), UsageError) << wrong;
}

TEST(Sweep, NumbersHaveThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.01234), "0.0123");
  EXPECT_EQ(short_number(1), "1.00");
  EXPECT_EQ(short_number(12.34), "12.3");
  EXPECT_EQ(short_number(123.4), "123");
  EXPECT_EQ(short_number(4567), "4,570");
  EXPECT_EQ(short_number(999'400), "999 k");
  EXPECT_EQ(short_number(1'234'567), "1.23 M");
  EXPECT_EQ(short_number(15e12), "15 T");
}

TrainingStep step_of(const SweepRow& row) {
  const PointPlan& plan = *row.plan;
  return {plan.step_time, plan.step_time_low, plan.step_time_high,
          row.point.global_batch * row.point.sequence, row.point.devices};
}

/// Returns why bandwidths are refused, or nothing.
std::string refused_networks(const std::string& list) {
  try {
    parse_networks({list});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Sweep, NetworksAreGigabitsOfADevice) {
  const auto networks = parse_networks({"400,12.5", "100,400"});
  ASSERT_EQ(networks.size(), 3u);
  EXPECT_DOUBLE_EQ(networks[0].value(), 12.5e9 / 8);
  EXPECT_DOUBLE_EQ(networks[2].value(), 50e9);
  for (const char* wrong : {"", "100,", "fast", "-1", "0", "100 Gbit/s", "1e9", "nan"})
    EXPECT_NE(refused_networks(wrong).find("--network"), std::string::npos) << wrong;
}

/// A row whose step takes so many seconds, give or take a tenth.
SweepRow row_of(std::int64_t devices, double step, std::optional<double> price) {
  SweepRow row;
  row.point = {"cluster", "framework", devices, 10, 100};
  row.plan.emplace();
  row.plan->step_time = Seconds(step);
  row.plan->step_time_low = Seconds(0.9 * step);
  row.plan->step_time_high = Seconds(1.1 * step);
  row.plan->tokens_per_second = 1000 / step;
  row.plan->proven = true;
  row.plan->training = training_of(step_of(row), {1e6, price});
  return row;
}

TEST(Sweep, TrainingIsStepsTimesTheStep) {
  const SweepRow row = row_of(8, 86.4, 2.0);
  const Training& training = *row.plan->training;
  EXPECT_EQ(training.steps, 1000);
  EXPECT_DOUBLE_EQ(training.days.value, 1);
  EXPECT_DOUBLE_EQ(training.days.low, 0.9);
  EXPECT_DOUBLE_EQ(training.days.high, 1.1);
  EXPECT_DOUBLE_EQ(training.device_hours.value, 8 * 24);
  EXPECT_DOUBLE_EQ(training.cost->high, 1.1 * 8 * 24 * 2);
  EXPECT_EQ(training_of(step_of(row), {1e6 + 1, {}}).steps, 1001);
  EXPECT_FALSE(training_of(step_of(row), {1e6, {}}).cost);
  EXPECT_EQ(deadline_of(training, Seconds(1.2 * 86400)), Deadline::kept);
  EXPECT_EQ(deadline_of(training, Seconds(1.0 * 86400)), Deadline::open);
  EXPECT_EQ(deadline_of(training, Seconds(0.8 * 86400)), Deadline::missed);
}

Sweep sweep_of(std::vector<SweepRow> rows, std::optional<double> deadline_days) {
  Sweep sweep;
  sweep.rows = std::move(rows);
  sweep.goal.tokens = 1e6;
  if (deadline_days) sweep.goal.deadline = Seconds(*deadline_days * 86400);
  sweep.has_prices = true;
  return sweep;
}

TEST(Sweep, TheCheapestKeepsTheDeadline) {
  SweepRow none;
  none.point = {"cluster", "framework", 4, 10, 100};
  none.reason = "does, \"not\" fit";
  // 8 devices are the cheapest, 64 the fastest; 32 cost hardly more than 16.
  const std::vector<SweepRow> rows = {none, row_of(8, 86.4, 1.0), row_of(16, 46, 1.0),
                                      row_of(32, 23.5, 1.0), row_of(64, 20, 1.0)};
  SweepAnswer answer = answer_of(sweep_of(rows, std::nullopt));
  EXPECT_EQ(answer.fastest, 4u);
  EXPECT_EQ(answer.cheapest, 1u);
  EXPECT_EQ(answer.not_told_apart, 2);
  answer = answer_of(sweep_of(rows, 0.6));
  EXPECT_EQ(answer.cheapest, 2u);
  EXPECT_EQ(answer.not_told_apart, 1);
  answer = answer_of(sweep_of(rows, 0.01));
  EXPECT_EQ(answer.fastest, 4u);
  EXPECT_FALSE(answer.cheapest);
  EXPECT_FALSE(answer_of(sweep_of({none}, 1)).fastest);
  const Sweep sweep = sweep_of(rows, 0.55);
  const std::string text = sweep_text(sweep), csv = sweep_csv(sweep), page = sweep_page(sweep);
  EXPECT_NE(text.find("does, \"not\" fit"), text.npos) << text;
  EXPECT_NE(text.find("the deadline is within its interval"), text.npos) << text;
  EXPECT_NE(csv.find("\"does, \"\"not\"\" fit\""), csv.npos) << csv;
  EXPECT_NE(page.find("does, &quot;not&quot; fit"), page.npos);
  EXPECT_EQ(page.find("<script"), page.rfind("<script"));  // the page's own
  EXPECT_NE(page.find(std::string(page_script())), page.npos);
}

LoadedPoint nano_point(std::size_t index) {
  static constexpr const char* kCluster = "dgx-h100-80gb";
  const std::int64_t devices = index == 0 ? 3 : std::int64_t{1} << index;
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.heads = job.kv_heads = 4;
  CostBasis basis =
      cost_basis(parse_cluster(*find_preset(cluster_presets(), kCluster), kCluster),
                 framework_by_name("megatron-lm"), read_calibration_choice({}), kCluster);
  CostModel costs(std::move(basis.cluster), std::move(basis.measured), std::move(basis.framework),
                  std::move(basis.fitted));
  return {SearchRequest{Target(job, std::move(costs), devices)},
          {kCluster, "megatron-lm", devices, job.global_batch, job.sequence},
          "costs",
          1.0};
}

SweepRequest nano_sweep() {
  SweepRequest request;
  request.points = 4;
  request.load = nano_point;
  request.name = [](std::size_t) { return SweepPoint{}; };
  request.goal.tokens = 1e9;
  return request;
}

TEST(Sweep, EveryRowIsTheBestPlanOfItsPoint) {
  SweepRequest request = nano_sweep();
  std::size_t reported = 0;
  request.progress = [&](std::size_t done, std::size_t of) {
    EXPECT_GE(done, reported);
    EXPECT_EQ(of, 4u);
    reported = done;
  };
  request.threads = 1;
  const Sweep sweep = run_sweep(request);
  ASSERT_EQ(sweep.rows.size(), 4u);
  EXPECT_EQ(reported, 4u);
  EXPECT_EQ(sweep.left, 0u);
  for (std::size_t i = 0; i < 4; ++i) {
    const SweepRow& row = sweep.rows[i];
    const LoadedPoint point = nano_point(i);
    if (!row.plan) {
      EXPECT_THROW(search(point.request), InfeasibleError);
      EXPECT_FALSE(row.reason.empty());
      continue;
    }
    const Plan plan = search(point.request);
    EXPECT_EQ(row.plan->strategy, plan.strategy);
    EXPECT_EQ(row.plan->step_time, plan.prediction.step_time);
    EXPECT_TRUE(row.plan->proven);
  }
  request.progress = {};
  request.threads = 2;
  EXPECT_EQ(sweep_json(run_sweep(request)), sweep_json(sweep));
}

TEST(Sweep, ThatIsStoppedKeepsTheRowsThatAreFinished) {
  SweepRequest request = nano_sweep();
  std::size_t finished = 0;
  request.progress = [&](std::size_t done, std::size_t) { finished = done; };
  request.stop = [&] { return finished >= 2; };
  const Sweep sweep = run_sweep(request);
  EXPECT_EQ(sweep.rows.size(), 2u);
  EXPECT_EQ(sweep.left, 2u);
}

}  // namespace
}  // namespace plimsoll
