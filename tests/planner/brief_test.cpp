// The default result of a plan is short, and says what a practitioner asks first.
#include "planner/cli/brief.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"
#include "reports/text_lines.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

LoadedTarget loaded_nano(std::int64_t devices) {
  return {nano_target(devices), CostSource{}, nano_job().vocab, ""};
}

Plan nano_plan(std::int64_t devices) { return search(SearchRequest{nano_target(devices)}); }

/// Returns the line behind a label, with the lines that go on below it.
std::string line_of(const std::string& text, const std::string& label) {
  std::istringstream in(text);
  std::string found;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const bool begins = !line.starts_with(' ');
    inside = begins ? line.starts_with(label + " ") : inside;
    if (inside) found += (found.empty() ? "" : " ") + line.substr(9);
  }
  return found;
}

void expect_short(const std::string& text) {
  EXPECT_LE(count_lines(text), kBriefLines) << text;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), kTerminalColumns) << line;
}

TEST(Brief, HasTheLayoutTheStepAndItsMemory) {
  const LoadedTarget loaded = loaded_nano(4);
  const Plan plan = nano_plan(4);
  const std::string text = brief(loaded, plan, {{}, {"planner explain plan.json"}});
  expect_short(text);
  EXPECT_TRUE(text.starts_with(plan.job.name + " (")) << text;
  EXPECT_NE(text.find("4 CPU cores of "), std::string::npos) << text;
  EXPECT_EQ(line_of(text, "layout"), layout_text(plan.job, plan.framework, plan.strategy));
  EXPECT_TRUE(line_of(text, "step").starts_with(to_text(plan.prediction.step_time) + " (90 %"));
  EXPECT_TRUE(line_of(text, "memory")
                  .starts_with(joined_amounts(to_text(plan.prediction.memory.taken), "of",
                                              to_text(plan.prediction.stages[0].capacity))));
  EXPECT_TRUE(line_of(text, "memory").ends_with(": safe")) << text;
  EXPECT_TRUE(line_of(text, "days").starts_with("100 B tokens: ")) << text;
  EXPECT_EQ(line_of(text, "next"), "planner explain plan.json");
  const Training training = training_of(training_step(plan), {2e9, 3.5});
  EXPECT_EQ(line_of(brief(loaded, plan, {training, {}}), "days"),
            training_text(training, DeviceKind::cpu_core));
}

TEST(Brief, SaysWhyTheFastestIsNotRecommended) {
  const LoadedTarget loaded = loaded_nano(4);
  Plan plan = nano_plan(4);
  plan.fastest.reset();
  EXPECT_EQ(line_of(brief(loaded, plan, {}), "faster"), "");
  FastestPlan fastest;
  fastest.strategy = plan.strategy;
  fastest.step_time = plan.prediction.step_time * 0.98;
  fastest.strategy.recompute = Recompute::full;
  fastest.gain = 0.02;
  fastest.reasons = {UnusualChoice::context_split};
  plan.fastest = fastest;
  const std::string line = line_of(brief(loaded, plan, {}), "faster");
  for (const std::string& words :
       {to_text(fastest.step_time), std::string("-2.0 %"), std::string("full recompute"),
        words_of(fastest.reasons), std::string("--fastest")})
    EXPECT_NE(line.find(words), std::string::npos) << line << " lacks " << words;
  plan.fastest->gain = 0.0004;  // 0.0 % in print
  EXPECT_EQ(line_of(brief(loaded, plan, {}), "faster"), "");
}

TEST(Brief, TheFastestIsNotListedTwice) {
  const LoadedTarget loaded = loaded_nano(4);
  Plan plan = nano_plan(4);
  RunnerUp other;
  other.strategy = plan.strategy;
  other.strategy.recompute = Recompute::full;
  other.step_time = plan.prediction.step_time * 0.98;
  plan.runners_up = {other};
  FastestPlan fastest;
  fastest.strategy = other.strategy;
  fastest.step_time = other.step_time;
  fastest.gain = 0.02;
  plan.fastest = fastest;
  const std::string text = brief(loaded, plan, {{}, {}, true});
  EXPECT_NE(line_of(text, "faster"), "");
  EXPECT_EQ(line_of(text, "instead"), "");
}

TEST(Brief, TheScriptsOwnStepStandsBesideThePlans) {
  const LoadedTarget loaded = loaded_nano(4);
  const Plan plan = nano_plan(4);
  BriefEnd end;
  EXPECT_EQ(line_of(brief(loaded, plan, end), "script"), "");
  end.script = plan.prediction;
  EXPECT_NE(line_of(brief(loaded, plan, end), "script").find("as long"), std::string::npos);
  end.script->step_time = plan.prediction.step_time * 1.25;
  EXPECT_NE(line_of(brief(loaded, plan, end), "script").find("20.0 % less"), std::string::npos);
  end.script->step_time = plan.prediction.step_time * 0.8;
  EXPECT_NE(line_of(brief(loaded, plan, end), "script").find("25.0 % more"), std::string::npos);
  end.script->memory.verdict = MemoryVerdict::does_not_fit;
  EXPECT_NE(line_of(brief(loaded, plan, end), "script").find("does not fit"), std::string::npos);
}

TEST(Brief, AlternativesDifferInWordsAndAreNotFaster) {
  const LoadedTarget loaded = loaded_nano(4);
  Plan plan = nano_plan(4);
  plan.pareto.clear();
  RunnerUp other;
  other.strategy = plan.strategy;
  other.strategy.gradients.bucket_bytes = Bytes(64 << 20);
  other.step_time = plan.prediction.step_time * 1.01;
  other.taken = plan.prediction.memory.taken;
  plan.runners_up = {other};
  EXPECT_EQ(line_of(brief(loaded, plan, {}), "instead"), "");
  EXPECT_NE(line_of(brief(loaded, plan, {{}, {}, true}), "instead").find("grad_bucket_bytes"),
            std::string::npos);
  other.strategy.recompute = Recompute::full;
  other.step_time = plan.prediction.step_time * 0.99;
  plan.runners_up = {other};
  EXPECT_EQ(line_of(brief(loaded, plan, {}), "instead"), "");
  other.step_time = plan.prediction.step_time * 1.25;
  plan.runners_up = {other};
  const std::string line = line_of(brief(loaded, plan, {}), "instead");
  EXPECT_NE(line.find("(+25.0 %"), std::string::npos) << line;
  EXPECT_NE(line.find("full recompute"), std::string::npos) << line;
  other.step_time = plan.prediction.step_time * 1.0001;  // as fast, with as much memory
  plan.runners_up = {other};
  EXPECT_EQ(line_of(brief(loaded, plan, {}), "instead"), "");
  other.taken = Bytes(other.taken.count() / 2);
  plan.runners_up = {other};
  EXPECT_NE(line_of(brief(loaded, plan, {}), "instead"), "");
  other.step_time = plan.prediction.step_time * 1.25;
  other.unusual = {UnusualChoice::many_virtual_stages};
  plan.runners_up = {other};
  EXPECT_EQ(line_of(brief(loaded, plan, {}), "instead"), "");
  plan.unusual = other.unusual;  // no more unusual than the chosen one
  EXPECT_NE(line_of(brief(loaded, plan, {}), "instead"), "");
}

TEST(Brief, SaysThatTheHostLimitsTheStep) {
  const Cluster cluster = preset_cluster("dgx-h100-80gb");
  Target target = nano_target(4, cluster);
  target.costs =
      std::make_shared<const CostModel>(cluster, std::nullopt, framework_by_name("megatron-lm"));
  const LoadedTarget loaded{target, CostSource{}, nano_job().vocab, ""};
  const Strategy strategy = parse_strategy("mp=2,dp=2,micro_batch=1");
  Prediction prediction = evaluate(target, strategy).prediction;
  const std::string text = brief(loaded, strategy, prediction, {});
  expect_short(text);
  EXPECT_NE(line_of(text, "host").find("larger micro-batches"), std::string::npos) << text;
  prediction.breakdown.dispatch = Seconds();
  EXPECT_EQ(line_of(brief(loaded, strategy, prediction, {}), "host"), "");
}

TEST(Brief, RefusalsAreThreeLines) {
  FoundChanges changes;
  changes.fitting = {
      {ChangeKind::other, "with a global batch of 2", {}, Bytes(1 << 20), Seconds(2)},
      {ChangeKind::offload, "with offload", {}, Bytes(2 << 20), Seconds(1)}};
  const Filling filling{Bytes(2 << 20), Bytes(1 << 20), Bytes(1 << 20), Bytes(1 << 20)};
  const NothingFits refused("a long reason", {"job does not fit", filling}, changes);
  EXPECT_EQ(brief(refused, "planner plan job"),
            "job does not fit: 3.00 of 1.00 MiB, 2.00 MiB too much\n"
            "  change  with offload it takes 2.00 MiB, a step at most 1.00 s\n"
            "  run     planner plan job\n");
  EXPECT_EQ(count_lines(brief(NothingFits("why", {}, {}), "")), 2u);
  changes.fitting[1].unusual = {UnusualChoice::tensor_over_nodes};
  const NothingFits marked("a long reason", {"job does not fit", filling}, changes);
  for (const std::string& text : {brief(marked, ""), marked.changes()[1]})
    EXPECT_NE(text.find(words_of(changes.fitting[1].unusual)), std::string::npos) << text;
  EXPECT_EQ(marked.changes()[0].find("unusual"), std::string::npos);
  FoundChanges ended;
  ended.proven = false;
  EXPECT_NE(brief(NothingFits("why", {}, ended), "planner plan").find("not looked at to the end"),
            std::string::npos);
  const Filling full{Bytes(1 << 20), {}, Bytes(1 << 10), Bytes(1 << 20)};
  EXPECT_TRUE(
      brief(NothingFits("why", {"job", full}, {}), "")
          .starts_with("job: 1.00 of 1.00 MiB, with less than 1.00 KiB left to keep free\n"));
}

}  // namespace
}  // namespace plimsoll
