// Explanations of a plan: terms that add up, rates that scale as times do, and the same answer
// always.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "passes/strategy/strategy_fields.h"
#include "planner/api/question_command.h"
#include "planner/cli/flags.h"
#include "planner/explain/explain_json.h"
#include "planner/explain/explain_text.h"
#include "planner/search/search.h"
#include "tests/planner/random_problems.h"
#include "tests/predict/fixtures.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

ExplainRequest request_of(const Target& target, const std::string& strategy) {
  return {target, parse_strategy(strategy)};
}

Seconds step_of(const Target& target, const Strategy& strategy) {
  return evaluate(target, strategy).prediction.step_time;
}

/// Nodes of four GPUs. Nothing has a latency, so that all of a step goes as its rates do.
Target gpu_target(std::int64_t devices) {
  Cluster cluster = small_cluster();
  cluster.nodes = 2;
  cluster.device.kind = DeviceKind::gpu;
  cluster.levels = {{"wires", 4, BytesPerSecond(5e9), Seconds()},
                    {"network", 0, BytesPerSecond(1e9), Seconds()}};
  return {nano_job(), CostModel(cluster, std::nullopt, bundled_cuda_framework()), devices};
}

TEST(ExplainedStep, TermsAddUpToTheStepThatIsPredicted) {
  std::mt19937_64 random(20);
  for (int i = 0; i < problems_to_draw(40); ++i) {
    const Problem problem = random_problem(random);
    const Target target = problem.target();
    for (const Strategy& strategy : random_strategies(problem, random, 2)) {
      const ExplainedStep step = explain_step(target, strategy);
      const Evaluation evaluation = evaluate(target, strategy);
      const StepParts& parts = step.parts;
      EXPECT_EQ(step.prediction.step_time, evaluation.prediction.step_time);
      EXPECT_EQ(compute_of(parts) + exposed_of(parts) + parts.bubble + parts.dispatch, parts.step)
          << describe(problem) << strategy_summary(strategy);
      EXPECT_EQ(exposed_of(parts), exposed_of(evaluation.parts));
      EXPECT_EQ(parts.communication.size(), step.links.size());
      EXPECT_LE(step.memory_traffic, compute_of(parts) + parts.dispatch);
      EXPECT_EQ(step.fits, fits_devices(target, strategy, evaluation.prediction.stages));
      // The rows of a table have all of the step, too.
      const ExplainedStep* const steps[] = {&step};
      Picoseconds sum;
      for (const TermRow& row : term_rows(steps)) sum += row.times[0];
      EXPECT_EQ(sum, parts.step);
    }
  }
}

TEST(ExplainedStep, NamesTheLinkThatAGroupCrosses) {
  const Target target = gpu_target(8);
  const ExplainedStep step = explain_step(target, parse_strategy("mp=4,dp=2"));
  ASSERT_FALSE(step.links.empty());
  for (std::size_t c = 0; c < step.links.size(); ++c) {
    const std::string& name = step.parts.communication[c].group;
    if (name.ends_with(" over mp")) {
      EXPECT_EQ(step.links[c], "wires") << name;
    }
    if (name.ends_with(" over dp")) {
      EXPECT_EQ(step.links[c], "network") << name;
    }
  }
  const auto link_of_transfers = [&](const std::string& strategy) {
    const ExplainedStep pipeline = explain_step(target, parse_strategy(strategy));
    std::set<std::string> links;
    for (std::size_t c = 0; c < pipeline.links.size(); ++c) {
      if (pipeline.parts.communication[c].group.ends_with(" over pp"))
        links.insert(pipeline.links[c]);
    }
    return links;
  };
  const std::set<std::string> wires = {"wires"}, network = {"network"};
  EXPECT_EQ(link_of_transfers("pp=2,mp=4"), network);
  const std::string stages_of_a_node = "pp=2,mp=2,dp=2,rank_order=mp-cp-pp-sharding-dp";
  EXPECT_EQ(link_of_transfers(stages_of_a_node), wires);
  // The partner of the last stage, which has all layers here, is on the other node.
  EXPECT_EQ(link_of_transfers(stages_of_a_node + ",schedule=dualpipe,layer_split=0+2+2+0"),
            network);
}

TEST(ExplainedStep, WhatIsAliveAddsUpToWhatIsAllocated) {
  const ExplainedStep step = explain_step(gpu_target(8), parse_strategy("mp=2,pp=2,dp=2"));
  Bytes sum;
  for (const AliveTensors& one : step.fullest.alive) sum += one.bytes;
  EXPECT_EQ(sum, step.fullest.stage.allocated);
}

TEST(ChangedRates, TheSameRatesChangeNothing) {
  std::mt19937_64 random(21);
  for (int i = 0; i < problems_to_draw(20); ++i) {
    const Problem problem = random_problem(random);
    const Target target = problem.target();
    for (const Strategy& strategy : random_strategies(problem, random, 1)) {
      for (const Rate rate : kRates) {
        if (const auto same = with_rate(target, rate, 1)) {
          EXPECT_EQ(step_of(*same, strategy), step_of(target, strategy)) << to_text(rate);
        }
      }
    }
  }
}

TEST(ChangedRates, AllRatesTwiceAsHighHalveAStepWithoutLatencies) {
  for (const char* text : {"mp=4,dp=2", "pp=2,mp=2,dp=2", "sharding_degree=8,sharding_stage=3"}) {
    const Target target = gpu_target(8);
    Target faster = target;
    for (const Rate rate : kRates) faster = *with_rate(faster, rate, 2);
    const Strategy strategy = parse_strategy(text);
    // Each of some thousand ops is rounded to picoseconds.
    EXPECT_NEAR(step_of(faster, strategy) / step_of(target, strategy), 0.5, 1e-6) << text;
  }
}

TEST(ChangedRates, AreOfTheClusterThatHasThem) {
  EXPECT_FALSE(with_rate(nano_target(4), Rate::network, 2));  // one node
  EXPECT_TRUE(with_rate(nano_target(4), Rate::link_within_node, 2));
  EXPECT_TRUE(with_rate(gpu_target(8), Rate::network, 2));
}

TEST(Sensitivity, IsZeroForLinksThatNothingCrosses) {
  const auto effect = [](const std::string& strategy, std::int64_t devices, Rate rate) {
    const ExplainRequest request = request_of(gpu_target(devices), strategy);
    const ExplainedStep step = explain_step(request.target, request.strategy);
    const Sensitivity found = sensitivity(request, step);
    const RateEffect& of_rate = found.rates[std::size_t(rate)];
    EXPECT_TRUE(of_rate.is_there);
    return std::pair(of_rate, step.prediction.step_time);
  };
  {
    const auto [network, step] = effect("mp=2,dp=2", 4, Rate::network);  // one node
    EXPECT_EQ(network.slower, step);
    EXPECT_EQ(network.faster, step);
    EXPECT_EQ(network.doubled, step);
  }
  {
    // Only mp communicates within nodes, and there is none. Between nodes each rank has one peer.
    const auto [wires, step] = effect("dp=2,sharding_degree=1", 2, Rate::network);
    EXPECT_EQ(wires.doubled, step);
  }
  const auto [network, step] = effect("mp=4,dp=2", 8, Rate::network);
  EXPECT_GT(network.slower, step);
  EXPECT_LT(network.faster, step);
  EXPECT_LT(network.doubled, network.faster);
}

TEST(Sensitivity, SaysOfEachChangeWhatAnEvaluationSays) {
  const Target target = gpu_target(8);
  const ExplainRequest request = request_of(target, "mp=2,pp=2,sharding_degree=2");
  const Sensitivity found = sensitivity(request, explain_step(target, request.strategy));
  int runs = 0, others = 0;
  for (const AssessedChange& change : found.changes) {
    const Verdict verdict = legal(target, change.strategy);
    EXPECT_EQ(change.outcome == ChangeOutcome::illegal, !verdict) << change.rule;
    EXPECT_EQ(change.rule, verdict.reason());
    if (!verdict) continue;
    const Evaluation evaluation = evaluate(target, change.strategy);
    const bool fits = fits_devices(target, change.strategy, evaluation.prediction.stages);
    EXPECT_EQ(change.outcome == ChangeOutcome::runs, fits);
    ++(fits ? runs : others);
    if (fits) {
      EXPECT_EQ(change.step_time, evaluation.prediction.step_time);
    }
  }
  EXPECT_GT(runs, 10);
  EXPECT_EQ(others, 0);
}

TEST(Sensitivity, OfMemoryIsNothingWhereItLimitsNothing) {
  SearchRequest search_request{nano_target(4)};
  const Plan plan = search(search_request);
  ExplainRequest request{search_request.target, plan.strategy};
  const Sensitivity found = sensitivity(request, explain_step(request.target, plan.strategy));
  EXPECT_EQ(found.memory.strategy, plan.strategy);
  EXPECT_TRUE(found.memory.proven);
  EXPECT_EQ(found.memory.least_step, plan.prediction.step_time);
  for (const AssessedChange& change : found.changes) {
    if (change.outcome == ChangeOutcome::runs) {
      EXPECT_GE(change.step_time, plan.prediction.step_time);
    }
  }
}

TEST(Explain, IsTheSameOnAnyNumberOfThreads) {
  SearchRequest search_request{nano_target(4)};
  const Plan plan = search(search_request);
  std::string first;
  for (const std::int64_t threads : {1, 2, 5}) {
    ExplainRequest request{search_request.target, plan.strategy};
    request.threads = threads;
    const ExplainedStep step = explain_step(request.target, plan.strategy);
    const std::string text = explain_json(plan, step, sensitivity(request, step)) +
                             why_not_json(why_not(request, {{"mp", "4"}})) +
                             why_not_json(why_not(request, {{"mp", "3"}}));
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << threads;
  }
}

std::string change_of(Seconds step, Seconds plan) {
  return fmt::format("{:+.1f} %", 100 * (step / plan - 1));
}

TEST(Explain, StatesEveryRateAndEveryChangeThatRuns) {
  SearchRequest search_request{nano_target(4)};
  search_request.constraints.fixed = {{"cp", "1"}};
  const Plan plan = search(search_request);
  const ExplainRequest request{search_request.target, plan.strategy, plan.constraints};
  const ExplainedStep step = explain_step(request.target, plan.strategy);
  const Sensitivity found = sensitivity(request, step);
  const std::string text = explain_text(plan, step, found);
  const Seconds own = step.prediction.step_time;
  EXPECT_TRUE(states(text, {to_text(own), "MFU"}));
  EXPECT_TRUE(states(text, {"proven of"}));
  for (const RateEffect& one : found.rates) {
    EXPECT_EQ(one.is_there, one.rate != Rate::network);  // one node
    if (!one.is_there) continue;
    EXPECT_TRUE(states(text, {to_text(one.rate), change_of(one.slower, own),
                              change_of(one.faster, own), change_of(one.doubled, own)}));
  }
  EXPECT_FALSE(found.changes.empty());
  for (const AssessedChange& change : found.changes) {
    if (change.outcome != ChangeOutcome::runs) continue;
    EXPECT_TRUE(states(text, {change_of(change.step_time, own),
                              fields_text(differing_fields(change.strategy, plan.strategy))}));
  }
}

TEST(Explain, SetsTheTermsOfAskedChoicesBesideThePlans) {
  SearchRequest search_request{nano_target(4)};
  search_request.constraints.fixed = {{"cp", "1"}};
  const Plan plan = search(search_request);
  const ExplainRequest request{search_request.target, plan.strategy, plan.constraints};
  const WhyNot slower = why_not(request, {{"mp", "4"}});
  const std::string text = why_not_text(request.target, slower);
  ASSERT_TRUE(slower.as_asked && slower.best);
  const ExplainedStep* const steps[] = {&slower.plan, &slower.as_asked->step, &slower.best->step};
  for (const ExplainedStep* const step : steps)
    EXPECT_TRUE(states(text, {to_text(step->prediction.step_time)}));
  std::int64_t shown = 0;
  for (const TermRow& row : term_rows(steps)) {
    if (row.times[0].seconds() < slower.plan.prediction.step_time * 0.01) continue;
    ++shown;
    EXPECT_TRUE(states(text, {row.name, to_text(row.times[0].seconds()),
                              to_text(row.times[1].seconds()), to_text(row.times[2].seconds())}));
  }
  EXPECT_GT(shown, 3);
  const WhyNot illegal = why_not(request, {{"mp", "3"}});
  EXPECT_TRUE(states(why_not_text(request.target, illegal), {"mp=3", illegal.rule}));
  EXPECT_FALSE(illegal.least.found.empty());
}

TEST(Explain, APlanSaysInItsCommandWhatItsSearchHeld) {
  PlanQuestion question;
  question.target.job = "llama3-8b";
  question.target.cluster = "dgx-h100-80gb";
  question.target.devices = 8;
  question.constraints = parse_held({{"pp=2", "grad_bucket_bytes=4 MiB", "DP=2"},
                                     {"mp=4"},
                                     {"cp=1"},
                                     {"recompute=full", "schedule=zb_h1"}});
  const PlanOrigin origin = origin_of(load_target(question.target, Bytes()), question);
  EXPECT_TRUE(states(origin.command,
                     {"--fix pp=2", "--fix grad_bucket_bytes=4MiB", "--fix DP=2", "--max mp=4",
                      "--min cp=1", "--exclude recompute=full", "--exclude schedule=zb_h1"}));
}

TEST(Explain, ACommandHasTheValuesOfItsQuestion) {
  PlanQuestion question;
  question.target.job = "llama3-8b";
  EXPECT_EQ(command_of(question), "planner plan llama3-8b");
  question.training = parse_training({"15000B", "2.50"});
  question.reserve = parse_reserve("2048 MiB");
  question.time_limit = parse_time_limit("1.5min");
  EXPECT_EQ(
      command_of(question),
      "planner plan llama3-8b --tokens 15T --price 2.5/h --reserve '2 GiB' --time-limit '90 s'");
  // The number of tokens is read again as it was.
  for (const double tokens : {1.0, 999.0, 1234.0, 1234567.0, 1.4e12 / 3, 8.25e13}) {
    question.training = TrainingGoal{tokens, {}};
    const std::string command = command_of(question);
    const std::size_t begin = command.find("--tokens ") + 9;
    const std::string text = command.substr(begin, command.find(' ', begin) - begin);
    EXPECT_EQ(parse_training({text, ""})->tokens, tokens) << command;
  }
  EXPECT_THROW(parse_training({"", "2/h"}), UsageError);
  EXPECT_EQ(parse_training({"", ""}), std::nullopt);
}

}  // namespace
}  // namespace plimsoll
