// The sections of a report that need more than the plan file.
#include <gtest/gtest.h>

#include "planner/explain/report_explanation.h"
#include "reports/sections/html.h"
#include "tests/plan/example_plan.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

constexpr Picoseconds kMillisecond{1'000'000'000};
constexpr std::string_view kHostile = "<script>'\"";
constexpr std::string_view kHostileShown = "&lt;script&gt;&#39;&quot;";

Explanation example_explanation(const Plan& plan) {
  Explanation found;
  found.critical_rank = 2;
  found.critical_stage = 1;
  StageMemory peak;
  peak.stage.allocated = Bytes(3'000'000);
  peak.alive = {{"layers.0.weight", TensorRole::parameter, 2, Bytes(2'000'000)},
                {std::string(kHostile), TensorRole::saved, 1, Bytes(1'000'000)}};
  found.peaks = {peak};
  found.communication = {{"all_reduce", "dp", "memory", 3, Bytes(1 << 20), kMillisecond,
                          Picoseconds(2'000'000'000), Picoseconds()},
                         {"recv", "pp", std::string(kHostile), 0, Bytes(), kMillisecond,
                          Picoseconds(), Picoseconds()}};
  Sensitivity& sensitivity = found.sensitivity;
  sensitivity.rates = {{Rate::arithmetic, true, Seconds(0.022), Seconds(0.0202), Seconds(0.016)},
                       {Rate::network, true, Seconds(0.024), Seconds(0.019), Seconds(0.0105)}};
  Strategy other = plan.strategy;
  other.micro_batch = 2;
  sensitivity.memory = {other, Seconds(0.018), {0.8, 0.95, false}, true, {}};
  const auto add = [&](ChangeOutcome outcome, std::int64_t need) -> AssessedChange& {
    AssessedChange& change = sensitivity.changes.emplace_back();
    change.strategy = other;
    change.outcome = outcome;
    change.need = Bytes(need);
    return change;
  };
  AssessedChange& faster = add(ChangeOutcome::runs, 2'000'000);
  faster.step_time = Seconds(0.0231);
  faster.ratio = {1.0, 1.2, true};
  other.micro_batch = 16;
  add(ChangeOutcome::does_not_fit, 9'000'000'000);
  other.mp = 3;
  add(ChangeOutcome::illegal, 0).rule = "mp 3 must divide heads 4";
  FittedCalibration fitted;
  fitted.cluster = "four cores";
  fitted.framework = std::string(kHostile);
  fitted.runs = 7;
  fitted.cross_validated_mean = 0.031;
  fitted.values = {{"matmul.peak_fraction", 0.7, 0.6, 0.65, 0.75, true, false}};
  fitted.layers = {{{4096, 4096, 1024, 1, 2}, 1.08, 0.02, 5}};
  fitted.sources = {std::string(kHostile) + "@1 (2024-01-01), page 1"};
  found.fitted = fitted;
  found.measured =
      MeasuredMachine{std::string(kHostile),
                      "cpu",
                      "2026-11-20",
                      {"oneDNN 2.6.3"},
                      {{"all_reduce of 4", 9, 0.02, {0.9, 1.05, 1.25}}, {"copy f32", 2, 0.01, {}}}};
  found.timeline = plan.timeline;
  found.critical = plan.timeline.intervals;
  return found;
}

std::string page_with(const Plan& plan, const Explanation* explanation,
                      const std::string& why_not = "") {
  const std::optional<Measured> none;
  return report_html({plan, none, 0.30, explanation, why_not});
}

void expect_has(const std::string& html, std::string_view text) {
  EXPECT_NE(html.find(text), html.npos) << text;
}

TEST(Explanation, ShowsTensorsAndCommunication) {
  const Plan plan = example_plan();
  const Explanation found = example_explanation(plan);
  const std::string html = page_with(plan, &found);
  EXPECT_TRUE(states(html, {"stage 0", "2.86 MiB", "2 names"}));
  EXPECT_TRUE(states(html, {">layers.0.weight</th>", "<td>parameter</td>"}));
  EXPECT_TRUE(states(html, {"Rank 2", "stage 1", "4.00 ms"}));
  EXPECT_TRUE(states(html, {">all_reduce</th>", ">dp</td>"}));
}

TEST(Explanation, ShowsSensitivityLargestFirst) {
  const Plan plan = example_plan();
  const Explanation found = example_explanation(plan);
  const std::string html = page_with(plan, &found);
  EXPECT_LT(html.find("<title>network: +14.3 %"), html.find("<title>arithmetic: +4.76 %"));
  expect_has(html, "<title>twice the network: -50 %");
  expect_has(html, "<title>twice the memory: -14.3 %");
  expect_has(html, "<code>micro_batch=2</code>");
  expect_has(html, "1.00 to 1.20");
  expect_has(html, "mp 3 must divide heads 4");
}

TEST(Explanation, SaysWhyEachPlanLost) {
  const Plan plan = example_plan();
  const Explanation found = example_explanation(plan);
  const std::string html = page_with(plan, &found);
  EXPECT_TRUE(states(html, {"2.10 ms", "optimizer", "1.10 to 1.25"}));
  expect_has(html, "class=\"point misfit\"");
  EXPECT_TRUE(states(html, {"8.38 GiB", "does not fit", "micro_batch=16"}));
}

TEST(Explanation, ShowsTheFitAndItsResiduals) {
  const Plan plan = example_plan();
  const Explanation found = example_explanation(plan);
  const std::string html = page_with(plan, &found);
  expect_has(html, "7 runs on four cores");
  expect_has(html, "matmul.peak_fraction");
  EXPECT_TRUE(states(html, {"4096 tokens", "1024", "mp 1", "1.08", "1.05", "1.12"}));
}

TEST(Explanation, ShowsTheRunsThatNumbersWereLearnedFrom) {
  const Plan plan = example_plan();
  Explanation found = example_explanation(plan);
  found.fitted->runs = 1;
  found.fitted->learned = LearnedSpread{0.05, {"matmul.peak_fraction"}, {0.01}, {}};
  found.fitted->learned->runs = {
      {"a.log", "TP 2", "", "", Seconds(2), Seconds(1), Seconds(1.9), Seconds(2.4)},
      {"b.log", std::string(kHostile), "", "", Seconds(3), Seconds(2), Seconds(2.25), std::nullopt,
       true}};
  const std::string html = page_with(plan, &found);
  expect_has(html, "1 run of");
  EXPECT_TRUE(states(html, {"a.log", "TP 2", "2.00 s", "-50 %", "-5.0 %", "+20 %", "yes"}));
  EXPECT_TRUE(states(html, {"b.log", kHostileShown, "3.00 s", "-33 %", "-25 %", "no"}));
  // Measured over predicted now is 1.053 and 1.333; noise of 0.05 is a factor of exp(1.645 x 0.05).
  EXPECT_TRUE(states(html, {"a.log", "1.05", "0.97 to 1.14"}));
  EXPECT_TRUE(states(html, {"b.log", "1.33", "1.23 to 1.45"}));
}

TEST(Explanation, ShowsTheMeasuredCurvesAndTheirResiduals) {
  const Plan plan = example_plan();
  const Explanation found = example_explanation(plan);
  const std::string html = page_with(plan, &found);
  EXPECT_TRUE(states(html, {"2026-11-20", "cpu", "oneDNN 2.6.3"}));
  EXPECT_TRUE(states(html, {"all_reduce of 4", "1.05", "0.9 to 1.25"}));
  expect_has(html, "2 curves");
  expect_has(html, "data-exact=\"0.25\"");  // the largest error
}

TEST(Explanation, EscapesNames) {
  Plan plan = example_plan();
  plan.job.name = plan.cluster_name = kHostile;
  plan.origin.command = plan.origin.interval_basis = kHostile;
  const Explanation found = example_explanation(plan);
  const std::string html = page_with(plan, &found, std::string(kHostile));
  EXPECT_EQ(html.find("<script>"), html.rfind("<script>"));  // the page's own, at its end
  std::size_t shown = 0;
  for (auto at = html.find(kHostileShown); at != html.npos; at = html.find(kHostileShown, at + 1))
    ++shown;
  EXPECT_GE(shown, 8u);
}

TEST(Explanation, IsMissedWithAReason) {
  const Plan plan = example_plan();
  const std::string html = page_with(plan, nullptr, "--cluster is required <for it>");
  expect_has(html, "--cluster is required &lt;for it&gt;");
  EXPECT_EQ(html.find("id=\"communication\""), html.npos);
}

}  // namespace
}  // namespace plimsoll
