// The plan and measurement files: what is written is read back, and nothing else is.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/json.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

/// The example's text after `change` on its JSON.
std::string changed(const std::string& text, const std::function<void(Json&)>& change) {
  Json json = Json::parse(text);
  change(json);
  return json.dump();
}

/// Pointer of the refusal; empty when the text was accepted.
template <class Parse>
std::string refused_at(const std::string& text, Parse parse) {
  try {
    parse(text, "FILE");
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), "FILE");
    return error.pointer();
  }
  return "";
}

std::string plan_refused_at(const std::function<void(Json&)>& change) {
  return refused_at(changed(plan_text(example_plan()), change), parse_plan);
}

std::string measured_refused_at(const std::function<void(Json&)>& change) {
  return refused_at(changed(measured_text(example_measured(example_plan())), change),
                    parse_measured);
}

TEST(PlanFile, ReadsBackToTheSameBytes) {
  const std::string text = plan_text(example_plan());
  EXPECT_EQ(plan_text(parse_plan(text, "FILE")), text);
}

TEST(PlanFile, ReadsBackEveryField) {
  const Plan plan = example_plan();
  const Plan read = parse_plan(plan_text(plan), "FILE");
  EXPECT_EQ(read.job, plan.job);
  EXPECT_EQ(read.framework, plan.framework);
  EXPECT_EQ(read.strategy, plan.strategy);
  EXPECT_EQ(read.timeline, plan.timeline);
  EXPECT_EQ(read.program_digests, plan.program_digests);
  EXPECT_EQ(read.calibration_digest, "");
  EXPECT_EQ(read.prediction.stages[1].by_role, plan.prediction.stages[1].by_role);
  EXPECT_EQ(read.prediction.share_by_provenance, plan.prediction.share_by_provenance);
  EXPECT_EQ(read.prediction.breakdown.bubble, Seconds(0.0065));
  EXPECT_EQ(read.runners_up[0].term, LossTerm::optimizer);
  EXPECT_EQ(read.runners_up[0].ratio.low, 1.1);
  EXPECT_EQ(read.runners_up[0].ratio.high, 1.25);
  EXPECT_FALSE(read.runners_up[0].ratio.tied);
  EXPECT_TRUE(read.pareto[0].ratio.tied);
  EXPECT_EQ(read.pareto[1].ratio.high, 1.3);
  EXPECT_EQ(read.search.pruned[0].count, 6);
  EXPECT_EQ(read.prediction.memory, plan.prediction.memory);
  EXPECT_EQ(read.unusual, plan.unusual);
  EXPECT_EQ(read.pareto[1].unusual, std::vector<Unusual>{UnusualChoice::odd_micro_batch});
  ASSERT_TRUE(read.fastest);
  EXPECT_EQ(read.fastest->strategy, plan.fastest->strategy);
  EXPECT_EQ(read.fastest->step_time, plan.fastest->step_time);
  EXPECT_EQ(read.fastest->gain, 0.01);
  EXPECT_EQ(read.fastest->unusual, std::vector<Unusual>{UnusualChoice::tight_memory});
  ASSERT_EQ(read.pareto.size(), plan.pareto.size());
  EXPECT_EQ(read.pareto[1].strategy, plan.pareto[1].strategy);
  EXPECT_EQ(read.pareto[1].step_time, plan.pareto[1].step_time);
  EXPECT_EQ(read.pareto[1].peak, plan.pareto[1].peak);
}

TEST(PlanFile, ReadsBackEveryFramework) {
  for (const Framework& framework : all_frameworks()) {
    Plan plan = example_plan();
    plan.framework = framework;
    EXPECT_EQ(parse_plan(plan_text(plan), "FILE").framework, framework) << framework.name;
  }
}

TEST(PlanFile, SaysWhatAnswersForWhatWasNotMeasured) {
  Plan plan = example_plan();
  EXPECT_EQ(plan_text(plan).find("calibration_rest_digest"), std::string::npos);
  plan.calibration_rest_digest = std::string(64, 'b');
  EXPECT_EQ(parse_plan(plan_text(plan), "test").calibration_rest_digest, std::string(64, 'b'));
}

// Plans from before fitted and typical were told apart from the others.
TEST(PlanFile, BeginsWithItsVersion) {
  EXPECT_TRUE(
      plan_text(example_plan()).starts_with("{\n  \"version\": " + std::to_string(kPlanVersion)));
}

TEST(PlanFile, WritesOneIntervalPerLine) {
  const std::string text = plan_text(example_plan());
  EXPECT_NE(text.find("\n      {\"rank\":0,\"stream\":\"compute\",\"kind\":\"matmul\","
                      "\"phase\":\"forward\",\"routine\":\"layer.forward\",\"layer\":0,"
                      "\"micro_batch\":0,\"begin_ps\":0,\"end_ps\":1500000000},\n"),
            std::string::npos);
}

TEST(PlanFile, WritesPostedOnlyWhereItWaits) {
  const Json json = Json::parse(plan_text(example_plan()));
  std::size_t waiting = 0;
  for (const Json& interval : json["timeline"]["intervals"])
    waiting += interval.contains("posted_ps");
  // Rank 0: its second send and both receives; rank 2: both receives and both sends.
  EXPECT_EQ(waiting, 7u);
}

TEST(PlanFile, RefusesMissingAndUnknownKeys) {
  const Json json = Json::parse(plan_text(example_plan()));
  for (const auto& member : json.items()) {
    EXPECT_EQ(plan_refused_at([&](Json& plan) { plan.erase(member.key()); }), "/" + member.key());
  }
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["colour"] = "red"; }), "/colour");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["timeline"]["intervals"][3]["shade"] = 1; }),
            "/timeline/intervals/3/shade");
}

TEST(PlanFile, TheFastestPlanMayBeTheChosenOne) {
  Plan plan = example_plan();
  plan.fastest.reset();
  EXPECT_TRUE(Json::parse(plan_text(plan))["fastest"].is_null());
  EXPECT_FALSE(parse_plan(plan_text(plan), "test").fastest);
  EXPECT_EQ(plan_refused_at([](Json& json) { json["fastest"]["reasons"][0] = "taste"; }),
            "/fastest/reasons/0");
  EXPECT_EQ(plan_refused_at([](Json& json) { json["fastest"]["reasons"][0]["choice"] = "taste"; }),
            "/fastest/reasons/0/choice");
  EXPECT_EQ(plan_refused_at([](Json& json) { json["prediction"]["memory"]["verdict"] = "roomy"; }),
            "/prediction/memory/verdict");
}

TEST(PlanFile, SaysWhichCommunicatorItsTimesHoldFor) {
  Plan plan = example_plan();
  EXPECT_EQ(plan_text(plan).find("\"communicator\""), std::string::npos);  // threads
  plan.communicator = CommunicatorKind::mpi;
  EXPECT_EQ(parse_plan(plan_text(plan), "test").communicator, CommunicatorKind::mpi);
  EXPECT_EQ(plan_refused_at([](Json& json) { json["communicator"] = "tcp"; }), "/communicator");
  EXPECT_EQ(plan_refused_at([](Json& json) { json["runners_up"][0]["term"] = "bad luck"; }),
            "/runners_up/0/term");
}

TEST(PlanFile, RefusesWrongTypes) {
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["version"] = 2; }), "/version");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["devices"] = 2.5; }), "/devices");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["device_kind"] = "abacus"; }), "/device_kind");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["prediction"]["mfu"] = "high"; }),
            "/prediction/mfu");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["prediction"]["stages"][1]["peak_bytes"] = -1; }),
            "/prediction/stages/1/peak_bytes");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["timeline"]["intervals"][0]["begin_ps"] = 0.5; }),
            "/timeline/intervals/0/begin_ps");
}

TEST(PlanFile, RefusesTimesThatNoClockHolds) {
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["prediction"]["step_time_s"] = 1e10; }),
            "/prediction/step_time_s");
  EXPECT_EQ(
      plan_refused_at([](Json& plan) { plan["prediction"]["breakdown"]["dispatch_s"] = -1e7; }),
      "/prediction/breakdown/dispatch_s");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["runners_up"][0]["step_time_s"] = 1e300; }),
            "/runners_up/0/step_time_s");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["prediction"]["mfu"] = 1e308; }),
            "/prediction/mfu");
  // Each interval within its bounds, their sum beyond the clock: 1200 of 2 x 2^53 ps.
  EXPECT_EQ(plan_refused_at([](Json& plan) {
              Json& intervals = plan["timeline"]["intervals"];
              Json longest = intervals[0];
              longest["begin_ps"] = -(std::int64_t{1} << 53);
              longest["end_ps"] = std::int64_t{1} << 53;
              for (int i = 0; i < 1200; ++i) intervals.push_back(longest);
            }),
            "/timeline/intervals");
}

/// Returns the message of check_legal about a changed plan, and nothing when it accepts the plan.
std::string illegal_at(const std::function<void(Plan&)>& change) {
  Plan plan = example_plan();
  change(plan);
  try {
    check_legal(plan, "FILE");
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), "FILE");
    return error.pointer();
  }
  return "";
}

TEST(LegalPlan, NamesTheRuleThatIsBroken) {
  EXPECT_EQ(illegal_at([](Plan&) {}), "");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.strategy.micro_batch = 3; }), "/strategy");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.strategy.sharding_degree = 4096; }), "/strategy");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.devices = 8; }), "/strategy");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.prediction.stages.clear(); }), "/prediction/stages");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.prediction.stages[1].stage = 7; }),
            "/prediction/stages/1/stage");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.timeline.memory[1].rank = 4; }),
            "/timeline/memory/1/rank");
  EXPECT_EQ(illegal_at([](Plan& plan) { plan.timeline.intervals[0].rank = 99; }),
            "/timeline/intervals/0/rank");
  try {
    Plan plan = example_plan();
    plan.strategy.micro_batch = 3;
    check_legal(plan, "FILE");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("global batch 16 is not divisible by micro_batch 3"),
              std::string::npos)
        << error.what();
  }
}

TEST(PlanFile, PointsIntoEmbeddedFiles) {
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["job"]["layers"] = -4; }), "/job/layers");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["strategy"]["mp"] = "two"; }), "/strategy/mp");
  EXPECT_EQ(plan_refused_at([](Json& plan) { plan["runners_up"][0]["strategy"]["pp"] = 0.5; }),
            "/runners_up/0/strategy/pp");
}

TEST(PlanFile, RefusesACurveWithColumnsOfUnequalLength) {
  EXPECT_EQ(plan_refused_at([](Json& plan) {
              plan["timeline"]["memory"][0]["curve"]["by_class"]["saved"].push_back(0);
            }),
            "/timeline/memory/0/curve/by_class/saved");
}

TEST(PlanFile, HoldsTheWholeOfALongTimeline) {
  Plan plan = example_plan();
  plan.timeline.intervals.clear();
  for (std::int64_t rank : {0, 2}) {
    for (std::int64_t i = 0; i < 15'000; ++i) {
      Interval interval;
      interval.rank = rank;
      interval.kind = OpKind::matmul;
      interval.posted = interval.begin = Picoseconds(1'000 * i);
      interval.end = Picoseconds(1'000 * i + 900);
      plan.timeline.intervals.push_back(interval);
    }
  }
  plan.timeline.memory[0].curve.clear();
  for (std::int64_t i = 0; i < 20'000; ++i) {
    MemoryPoint point{Picoseconds(100 * i), plan.timeline.memory[0].by_role};
    point.by_role[0] -= Bytes(1 + i % 7);
    plan.timeline.memory[0].curve.push_back(point);
  }
  const Plan read = parse_plan(plan_text(plan), "FILE");
  EXPECT_GT(read.timeline_resolution, Picoseconds());
  EXPECT_LE(read.timeline.intervals.size(), kMostIntervals);
  EXPECT_GT(read.timeline.intervals.size(), kMostIntervals / 2);
  EXPECT_EQ(read.timeline.intervals.front().begin, Picoseconds(0));
  EXPECT_GE(read.timeline.intervals.back().end + read.timeline_resolution, Picoseconds(14'999'900));
  EXPECT_LE(read.timeline.memory[0].curve.size(), kMostPoints / 2);
  // Shorter intervals are counted, and their times add up.
  ASSERT_EQ(read.rank_times.size(), 2u);
  EXPECT_EQ(read.rank_times[1].by_kind[std::size_t(OpKind::matmul)], Picoseconds(15'000 * 900));
  EXPECT_EQ(time_by_kind(read.timeline, 2), read.rank_times[1].by_kind);
  // Once fitted it stays.
  EXPECT_EQ(plan_text(read), plan_text(plan));
  EXPECT_EQ(plan.timeline_resolution, Picoseconds());
  fit_timeline(plan);
  EXPECT_EQ(plan.timeline, read.timeline);
}

TEST(PlanFile, CountsTheParametersOfTheStatedVocabulary) {
  Plan plan = example_plan();
  const std::int64_t stated = parameter_count(plan);
  plan.stated_vocabulary = plan.job.vocab;
  EXPECT_EQ(parameter_count(plan) - stated, 2 * 6 * 64);  // embedding and head, not tied
}

TEST(MeasuredFile, ReadsBackToTheSameBytes) {
  const Measured measured = example_measured(example_plan());
  const std::string text = measured_text(measured);
  const Measured read = parse_measured(text, "FILE");
  EXPECT_EQ(measured_text(read), text);
  EXPECT_EQ(read.timeline, measured.timeline);
  EXPECT_EQ(read.losses, measured.losses);
  EXPECT_EQ(read.step_times, measured.step_times);
}

TEST(MeasuredFile, WritesALossThatIsNoNumberAsNull) {
  Measured measured = example_measured(example_plan());
  measured.losses[2] = std::numeric_limits<double>::quiet_NaN();
  measured.gradient_norms[5] = std::numeric_limits<double>::infinity();
  const Measured read = parse_measured(measured_text(measured), "FILE");
  EXPECT_TRUE(std::isnan(read.losses[2]));
  EXPECT_FALSE(std::isfinite(read.gradient_norms[5]));
  EXPECT_EQ(read.losses[3], 4.4);
}

TEST(MeasuredFile, RefusesMissingAndWrong) {
  const Json json = Json::parse(measured_text(example_measured(example_plan())));
  for (const auto& member : json.items()) {
    EXPECT_EQ(measured_refused_at([&](Json& file) { file.erase(member.key()); }),
              "/" + member.key());
  }
  EXPECT_EQ(measured_refused_at([](Json& file) { file["losses"][0] = "low"; }), "/losses");
  EXPECT_EQ(measured_refused_at([](Json& file) { file["step_times_s"][1] = -1; }), "/step_times_s");
  EXPECT_EQ(measured_refused_at([](Json& file) { file["step_times_s"][1] = 1e7; }),
            "/step_times_s");
  EXPECT_EQ(measured_refused_at([](Json& file) { file["median_step_time_s"] = 1e308; }),
            "/median_step_time_s");
  EXPECT_EQ(measured_refused_at([](Json& file) { file["version"] = 9; }), "/version");
}

TEST(Files, RefuseTruncatedText) {
  const std::string text = plan_text(example_plan());
  EXPECT_THROW(parse_plan(text.substr(0, text.size() / 2), "FILE"), InputError);
  EXPECT_THROW(parse_measured("", "FILE"), InputError);
}

TEST(PlanJson, EachBoundIsCountedOnce) {
  Json json = Json::parse(plan_text(example_plan()));
  Json& cuts = json["search"]["bounded_by"];
  ASSERT_EQ(cuts.size(), 1U);
  cuts.push_back(cuts[0]);
  EXPECT_THROW(parse_plan(json.dump(), "FILE"), InputError);
  cuts.erase(1);
  json["search"]["bounded"] = 1;
  EXPECT_THROW(parse_plan(json.dump(), "FILE"), InputError);
}

}  // namespace
}  // namespace plimsoll
