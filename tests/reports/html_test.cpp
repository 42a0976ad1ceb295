// The report page: what it shows and that it is safe to open.
#include "reports/sections/html.h"

#include <gtest/gtest.h>

#include "reports/compare.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"
#include "tests/plan/example_plan.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

std::size_t count_of(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

bool contains(const std::string& text, std::string_view word) { return count_of(text, word) > 0; }

/// Bars that are drawn in all pipeline charts: each begins with a move.
std::size_t bars_in(std::string_view html) {
  constexpr std::string_view kPath = "<path class=\"interval ";
  std::size_t count = 0;
  for (auto at = html.find(kPath); at != html.npos; at = html.find(kPath, at + kPath.size()))
    count += count_of(html.substr(at, html.find('>', at) - at), "M");
  return count;
}

TEST(Report, DrawsOneBarPerInterval) {
  const Plan plan = example_plan();
  const Measured measured = example_measured(plan);
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_EQ(bars_in(html), plan.timeline.intervals.size() + measured.timeline.intervals.size());
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
  EXPECT_TRUE(states(html, {"verdict fails", "does not hold"}));
  EXPECT_EQ(count_of(html, "\u2260 "), 1u);
}

TEST(Report, ShowsThePredictedHalfAlone) {
  const Plan plan = example_plan();
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_EQ(bars_in(html), plan.timeline.intervals.size());
  EXPECT_TRUE(contains(html, "Predicted only"));
  EXPECT_TRUE(states(html, {"id=\"verdict\"", "21.0 ms"}));
  EXPECT_FALSE(contains(html, "id=\"comparison\""));
  EXPECT_FALSE(contains(html, "id=\"measured-timeline\""));
}

TEST(Report, SaysWhatRecomputesAndWhatIsShared) {
  Plan plan = example_plan();
  const auto says = [&](std::initializer_list<std::string_view> values) {
    return states(report_html(plan, std::nullopt, 0.30), values);
  };
  plan.strategy.recompute = Recompute::full;
  EXPECT_TRUE(says({"<p>", "full recompute", "</p>"}));
  plan.strategy.recomputed.layers = 1;
  EXPECT_TRUE(says({"<p>", "full recompute", "1 layer", "</p>"}));
  plan.strategy.recomputed.layers = 2;
  EXPECT_TRUE(says({"<p>", "full recompute", "2 layers", "</p>"}));
  plan.strategy.recomputed.list = {0, 3, 4};
  EXPECT_TRUE(says({"<p>", "full recompute", "3 layers", "</p>"}));
  plan.strategy.sharding_degree = 2;
  plan.strategy.sharding_stage = 2;
  EXPECT_TRUE(says({"<p>", "ZeRO-2 over 2", "</p>"}));
  EXPECT_FALSE(says({"<p>", "CP 2", "</p>"}));
  plan.strategy.cp = 2;
  EXPECT_TRUE(says({"<p>", "CP 2", "</p>"}));
}

TEST(Report, EscapesEverythingThatFilesSay) {
  Plan plan = example_plan();
  const std::string attack = "<script>alert('\"&')</script>";
  plan.job.name = plan.cluster_name = plan.prediction.peak_source = attack;
  plan.framework.name = plan.framework.sources.kernels = attack;
  plan.origin = {attack, attack, attack, attack, attack};
  plan.search.pruned[0].reason = attack;
  plan.timeline.intervals[0].routine = attack;
  Measured measured = example_measured(plan);
  measured.backend = measured.communicator = measured.host_cpu = measured.date = attack;
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_EQ(count_of(html, "<script"), 3u);  // the page's own, and the data of two charts
  EXPECT_FALSE(contains(html, "<script>alert"));
  EXPECT_TRUE(contains(html, "\\u003cscript>alert"));
  EXPECT_GE(count_of(html, "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;"), 10u);
}

TEST(Report, ReachesForNothingOutside) {
  const Plan plan = example_plan();
  const std::string html = report_html(plan, example_measured(plan), 0.30);
  for (std::string_view word : {"http:", "https:", "src=", "<link", "<img", "url(", "@import"}) {
    EXPECT_FALSE(contains(html, word)) << word;
  }
  EXPECT_TRUE(contains(html, "default-src 'none'; script-src 'sha256-"));
  EXPECT_FALSE(contains(html, "unsafe-inline"));
  EXPECT_FALSE(contains(html, " style=\""));  // the policy would refuse it
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
  larger.term = LossTerm::memory;
  larger.term_bytes = Bytes(3 << 20);
  plan.runners_up.push_back(larger);
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(states(html, {"<td>+2.10 ms", "optimizer", "</td>"}));
  EXPECT_TRUE(states(html, {"<td>+3.00 MiB", "</td>"}));
}

TEST(Report, SaysWhichPlanIsFasterAndWhyItIsNotRecommended) {
  Plan plan = example_plan();
  plan.runners_up[0].ratio = {0.9, 1.44, true};
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(contains(html, words_of(plan.fastest->unusual)));
  EXPECT_TRUE(contains(html, "<code>micro_batch=2</code>"));
  EXPECT_TRUE(states(html, {"<td>tied", "0.90", "1.44"}));
  plan.fastest.reset();
  EXPECT_TRUE(contains(report_html(plan, std::nullopt, 0.30), "is the fastest by prediction"));
  plan.oversubscribed = true;
  EXPECT_FALSE(contains(report_html(plan, std::nullopt, 0.30), "by prediction"));
}

TEST(Report, DrawsALongRunTogether) {
  Plan plan = example_plan();
  Measured measured = example_measured(plan);
  const Picoseconds end = measured.timeline.intervals.back().end;
  for (std::int64_t i = 0; i < 5'000; ++i) {
    Interval next = measured.timeline.intervals.back();
    next.posted = next.begin = end + Picoseconds(1'000'000 * i);
    next.end = next.begin + Picoseconds(1'000'000);
    measured.timeline.intervals.push_back(next);
  }
  const std::string html = report_html(plan, measured, 0.30);
  EXPECT_LE(bars_in(html), plan.timeline.intervals.size() + kMostIntervals);
  EXPECT_TRUE(contains(html, "drawn together"));
}

TEST(Report, ShowsEveryFieldThatIsNotTheDefault) {
  Plan plan = example_plan();
  plan.strategy.tokens.sequence_parallel = true;
  plan.runners_up[0].strategy = plan.strategy;
  plan.runners_up[0].strategy.pipeline.virtual_stages = 2;
  plan.runners_up[0].strategy.tokens.sequence_parallel = false;
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(states(html, {">sequence_parallel</th>", ">true</td>"}));
  EXPECT_TRUE(contains(html, ">virtual_stages=2 sequence_parallel=false</td>"));
  for (std::string_view key : strategy_keys()) EXPECT_NE(meaning_of(key), "") << key;
}

TEST(Report, SaysHowTheNumbersWereMade) {
  Plan plan = example_plan();
  plan.prediction.extrapolated = {{"matmul 1x2x3 f32", 0.04}, {"add 5 f32", 0.0001}};
  plan.origin.calibration_name = "a-fit";
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(states(html, {"<dd>21.0 ms", "19.0 ms", "23.0 ms", "90 %"}));
  EXPECT_TRUE(contains(html, escaped(plan.origin.command)));
  EXPECT_TRUE(contains(html, "a-fit: no calibration, datasheet rates"));
  EXPECT_TRUE(contains(html, "matmul 1x2x3 f32"));
  EXPECT_FALSE(contains(html, "add 5 f32"));  // 0.0 %
  EXPECT_TRUE(contains(html, "<span class=\"swatch interpolated\"></span>interpolated"));
  EXPECT_FALSE(contains(html, "<span class=\"swatch typical\"></span>"));  // none of it
  EXPECT_TRUE(contains(html, grouped(parameter_count(plan)) + " parameters"));
}

TEST(Report, SaysHowLongTheTrainingTakes) {
  Plan plan = example_plan();
  plan.training = training_of(training_step(plan), {1e9, 2.0});
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(contains(html, escaped(training_text(*plan.training, plan.device_kind))));
  EXPECT_TRUE(contains(html, "1 B tokens: "));
}

TEST(Report, HasTheFlagsToCopy) {
  const Plan plan = example_plan();
  const std::optional<Measured> none;
  const std::string html = report_html(
      {plan, none, 0.30, nullptr, "", "megatron", "torchrun <train.py>", "send_slots is 2"});
  EXPECT_TRUE(states(html, {"id=\"flags\"", "torchrun &lt;train.py&gt;</pre>"}));
  EXPECT_TRUE(contains(html, "data-copy=\"flags\""));
  EXPECT_TRUE(contains(html, "send_slots is 2"));
  EXPECT_FALSE(contains(report_html(plan, none, 0.30), "id=\"flags\""));
}

// The meaning is of the chosen schedule alone, and a value breaks between its parts.
TEST(Report, ExplainsTheChosenSchedule) {
  Plan plan = example_plan();
  plan.strategy.schedule = Schedule::gpipe;
  plan.strategy.recompute = Recompute::modules;
  plan.strategy.recomputed.modules.add(RecomputedModule::norms);
  plan.strategy.recomputed.modules.add(RecomputedModule::experts);
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(contains(html, "all forwards, then all backwards"));
  EXPECT_FALSE(contains(html, "dualpipe"));
  EXPECT_TRUE(contains(html, "norms+<wbr>experts"));
  for (const std::string_view schedule : kSchedules)
    EXPECT_NE(meaning_of("schedule", schedule), "") << schedule;
}

TEST(Report, FillsTheDeviceByWhatDecidesWhetherItFits) {
  Plan plan = example_plan();
  const Filling filling = fillings_of(plan)[0];
  EXPECT_EQ(filling.outside, memory_outside_program(plan.job, plan.strategy, plan.framework));
  EXPECT_EQ(filling.taken() + filling.reserve,
            plan.prediction.stages[0].reserved + filling.outside + plan.reserve);
  plan.prediction.stages[0].capacity = filling.taken() + filling.reserve;  // full to the byte
  EXPECT_TRUE(fillings_of(plan)[0].fits());
  plan.prediction.memory = {filling.taken(), filling.taken(), filling.taken() * 2, 0.25,
                            MemoryVerdict::tight};
  const std::string html = report_html(plan, std::nullopt, 0.30);
  const Filling full = fillings_of(plan)[0];
  EXPECT_EQ(full.missing(), Bytes());
  EXPECT_LT(full.share(), 1);  // what is kept free is not taken
  EXPECT_TRUE(states(html, {"class=\"tight\"", "memory", taken_text(full)}));
  EXPECT_TRUE(contains(html, "which is tight"));
  plan.prediction.stages[0].capacity = filling.taken();
  plan.prediction.memory.verdict = MemoryVerdict::does_not_fit;
  EXPECT_EQ(fillings_of(plan)[0].missing(), filling.reserve);
  EXPECT_EQ(fillings_of(plan)[0].share(), 1);
  const std::string unfit = report_html(plan, std::nullopt, 0.30);
  EXPECT_TRUE(states(unfit, {"verdict fails", "does not fit"}));
  for (StagePrediction& stage : plan.prediction.stages) stage.capacity = filling.taken() * 2;
  plan.prediction.memory.verdict = MemoryVerdict::safe;
  EXPECT_TRUE(contains(report_html(plan, std::nullopt, 0.30), "which is safe"));
  EXPECT_TRUE(contains(html, "<td class=\"number\">" + filled_text(full) + "</td>"));
}

TEST(Report, DrawsStagesThatAreAlikeOnce) {
  Plan plan = example_plan();
  plan.strategy.pp = 40;
  plan.job.layers = 40;
  plan.strategy.dp = 1;
  plan.devices = 40;
  const StagePrediction stage = plan.prediction.stages[0];
  const RankMemory memory = plan.timeline.memory[0];
  plan.prediction.stages.assign(40, stage);
  plan.timeline.memory.assign(40, memory);
  for (std::int64_t i = 0; i < 40; ++i) {
    plan.prediction.stages[std::size_t(i)].stage = plan.timeline.memory[std::size_t(i)].rank = i;
  }
  plan.prediction.stages[0].reserved += Bytes(1 << 20);
  const std::string html = report_html(plan, std::nullopt, 0.30);
  EXPECT_EQ(count_of(html, "class=\"chart memory\""), 2u);
  EXPECT_TRUE(states(html, {"stages 1 to 39", "rank 1"}));
  EXPECT_TRUE(states(html, {"<p>", "PP 40", "</p>"}));
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

TEST(Numbers, CountsInRuns) {
  EXPECT_EQ(counts_text({3, 3, 3}), "3 each");
  EXPECT_EQ(counts_text({7}), "7");
  EXPECT_EQ(counts_text({1, 2, 2, 2, 1}), "1, 2 x 3, 1");
  EXPECT_EQ(counts_text({}), "");
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
  EXPECT_TRUE(contains(html, kCuts[std::size_t(Cut::lasting_bytes)]));
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
