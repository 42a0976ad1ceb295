// The report page: what it shows and that it is safe to open.
#include "reports/html.h"

#include <gtest/gtest.h>

#include "reports/compare.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

std::size_t count_of(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

bool contains(const std::string& text, std::string_view word) { return count_of(text, word) > 0; }

TEST(Report, DrawsOneBarPerInterval) {
  const Plan plan = example_plan();
  const Measured measured = example_measured(plan);
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_EQ(count_of(html, "<rect class=\"interval "),
            plan.timeline.intervals.size() + measured.timeline.intervals.size());
  EXPECT_TRUE(contains(html, "id=\"predicted-timeline\" role=\"img\""));
  // A rank has five phases of two ops each, two sends, two receives and a reduction.
  EXPECT_TRUE(contains(html, "data-interval-count=\"30\""));
  EXPECT_TRUE(contains(html, "data-interval-count=\"60\""));
}

TEST(Report, ShowsTheVerdictOfCompare) {
  const Plan plan = example_plan();
  Measured measured = example_measured(plan);
  EXPECT_TRUE(contains(report_html(plan, measured, 0.30),
                       "<p class=\"verdict holds\" id=\"verdict\">" +
                           escaped(compare(plan, measured, 0.30).verdict) + "</p>"));
  measured.timeline.memory[1].peak += Bytes(64);
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_TRUE(contains(html, "<p class=\"verdict fails\" id=\"verdict\">The plan does not hold"));
  EXPECT_EQ(count_of(html, "\u2260 "), 1u);
}

TEST(Report, ShowsThePredictedHalfAlone) {
  const Plan plan = example_plan();
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_EQ(count_of(html, "<rect class=\"interval "), plan.timeline.intervals.size());
  EXPECT_TRUE(contains(html, "Predicted only"));
  EXPECT_FALSE(contains(html, "id=\"comparison\""));
  EXPECT_FALSE(contains(html, "id=\"measured-timeline\""));
}

TEST(Report, EscapesEverythingThatFilesSay) {
  Plan plan = example_plan();
  const std::string attack = "<script>alert('\"&')</script>";
  plan.job.name = plan.cluster_name = plan.prediction.peak_source = attack;
  plan.framework.name = plan.framework.sources.kernels = plan.search.method = attack;
  plan.search.pruned[0].reason = plan.runners_up[0].term = attack;
  plan.timeline.intervals[0].routine = attack;
  Measured measured = example_measured(plan);
  measured.backend = measured.communicator = measured.host_cpu = measured.date = attack;
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_FALSE(contains(html, "<script"));
  EXPECT_FALSE(contains(html, "alert('"));
  EXPECT_GE(count_of(html, "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;"), 12u);
}

TEST(Report, ReachesForNothingOutside) {
  const Plan plan = example_plan();
  const std::string html = report_html(plan, example_measured(plan), 0.30);
  for (std::string_view word : {"http:", "https:", "<script", "<link", "<img", "url(", "@import"}) {
    EXPECT_FALSE(contains(html, word)) << word;
  }
  EXPECT_TRUE(contains(html, "default-src 'none'"));
}

TEST(Report, IsTheSameForTheSameFiles) {
  const Plan plan = example_plan();
  const Measured measured = example_measured(plan);
  EXPECT_EQ(report_html(plan, measured, 0.30), report_html(plan, measured, 0.30));
}

TEST(Report, NamesTheTermARunnerUpLosesBy) {
  Plan plan = example_plan();
  RunnerUp larger = example_runner_up();
  larger.strategy.recompute = Recompute::full;
  larger.term = "memory";
  larger.term_bytes = Bytes(3 << 20);
  plan.runners_up.push_back(larger);
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(contains(html, "<td>optimizer, 2.10 ms more</td>"));
  EXPECT_TRUE(contains(html, "<td>memory, 3.00 MiB more at equal time</td>"));
}

TEST(Report, SaysWhenBarsAreLeftOut) {
  Plan plan = example_plan();
  Measured measured = example_measured(plan);
  const Interval last = measured.timeline.intervals.back();
  while (measured.timeline.intervals.size() < kMostIntervals + 5) {
    measured.timeline.intervals.push_back(last);
  }
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_EQ(count_of(html, "<rect class=\"interval "),
            plan.timeline.intervals.size() + kMostIntervals);
  EXPECT_TRUE(contains(html, "The first 20,000 of 20,005 intervals are drawn."));
}

TEST(Report, SurvivesEmptyTimelines) {
  Plan plan = example_plan();
  plan.timeline = {};
  EXPECT_TRUE(contains(report_html(plan, std::nullopt, 0.30), "</html>"));
}

TEST(Markup, TicksAreRoundAndWithinTheAxis) {
  EXPECT_EQ(ticks(0, 4), std::vector<double>({0}));
  EXPECT_EQ(ticks(10, 5), std::vector<double>({0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(21, 4), std::vector<double>({0, 10, 20}));
}

TEST(Numbers, AreGroupedAndRounded) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(-1'234'567), "-1,234,567");
  EXPECT_EQ(percent(0.0421), "4.2 %");
  EXPECT_EQ(percent(0.30), "30 %");
  EXPECT_EQ(percent(0), "0 %");
  EXPECT_EQ(percent(0.0001), "< 0.1 %");
  EXPECT_EQ(signed_error({Seconds(9), Seconds(10)}), "-10 %");
  EXPECT_EQ(signed_error({Seconds(10.5), Seconds(10)}), "+5.0 %");
  EXPECT_EQ(signed_error({Seconds(1), Seconds(0)}), "-");
}

TEST(Report, ShowsTheFrontAndWhatWasCut) {
  Plan plan = example_plan();
  std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(contains(html, "Pareto front"));
  EXPECT_TRUE(contains(html, plan.search.bounded_by[0].reason));
  EXPECT_TRUE(contains(html, "proven best of the whole space"));
  plan.search.proven = false;
  plan.search.unexplored = 7;
  plan.search.gap = 0.25;
  html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(contains(html, "7 were left"));
  EXPECT_TRUE(contains(html, "20 %"));
}

}  // namespace
}  // namespace plimsoll
