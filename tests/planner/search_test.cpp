// Search: the same answer as a loop that knows nothing of it.
#include "planner/search/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <set>

#include "passes/strategy/pipeline_order.h"
#include "plan/check.h"
#include "planner/explore/explore.h"
#include "tests/planner/random_problems.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

SearchRequest request_of(Target target, Fixed fixed = {}) {
  SearchRequest request{std::move(target), std::move(fixed)};
  request.inputs.cluster_digest = std::string(64, '0');
  return request;
}

/// On more than two devices sequences are whole, which leaves a third of the candidates.
SearchRequest nano_request(std::int64_t devices, Fixed fixed = {},
                           const Cluster& cluster = small_cluster()) {
  if (devices > 2) fixed.emplace_back("cp", "1");
  return request_of(nano_target(devices, cluster), std::move(fixed));
}

/// Without fixed choices.
SearchRequest nano_request_on(const Cluster& cluster, std::int64_t devices) {
  return nano_request(devices, {}, cluster);
}

/// Fields that a search chooses, and values of each, the default first.
struct Choice {
  std::string key;
  std::vector<std::string> values;
};

std::vector<Choice> choices_of(std::int64_t devices) {
  std::vector<std::string> degrees;
  for (std::int64_t degree = 1; degree <= devices; ++degree)
    degrees.push_back(std::to_string(degree));
  std::vector<Choice> choices = {{"mp", degrees},
                                 {"pp", degrees},
                                 {"dp", degrees},
                                 {"sharding_degree", degrees},
                                 {"sharding_stage", {"0", "1", "2", "3"}},
                                 {"micro_batch", {"1", "2", "3", "4", "8", "16"}},
                                 {"recompute", {"none", "selective", "full", "modules"}},
                                 {"recompute_modules", {"none", "norms", "norms+mlp"}},
                                 {"recompute_layers", {"0", "1", "2", "3", "4", "5"}},
                                 {"sequence_parallel", {"false", "true"}},
                                 {"split_boundary", {"false", "true"}},
                                 {"prefetch_depth", {"1", "0", "2"}},
                                 {"keep_gathered", {"false", "true"}},
                                 {"schedule", {"1f1b", "zb_h1"}},
                                 {"virtual_stages", {"1", "2", "3", "4", "5", "6"}},
                                 {"embedding_as_layers", {"0", "1"}},
                                 {"loss_as_layers", {"0", "1"}},
                                 {"grad_bucket_bytes", {"4MiB", "1MiB", "16MiB", "64MiB"}}};
  if (devices == 2) {  // nano_request() holds cp on more
    choices.push_back({"cp", degrees});
    choices.push_back({"context_exchange", {"ring", "all_gather", "all_to_all"}});
  }
  return choices;
}

/// Each field has its default or, in one of three draws, any of its values.
Strategy drawn_strategy(const std::vector<Choice>& choices, std::mt19937_64& random) {
  Strategy strategy;
  for (const Choice& choice : choices) {
    const std::size_t at = random() % 3 == 0 ? random() % choice.values.size() : 0;
    set_field(strategy, choice.key, choice.values[at]);
  }
  return strategy;
}

struct Found {
  Seconds step;
  Bytes peak;
  auto operator<=>(const Found&) const = default;
};

Found found_of(const Prediction& prediction) {
  return {prediction.step_time, largest(prediction.stages, &StagePrediction::peak)};
}

// A legal strategy is in the space, or runs as one that is in it, as a bucket of another size does
// if no gradient is reduced. The plan is the first of those that run fastest.
TEST(Search, FindsTheFastestOfAllThatIsLegal) {
  std::mt19937_64 random(5);
  for (const std::int64_t devices : {1, 2, 4}) {
    SearchRequest request = nano_request(devices);
    request.fastest = true;
    const Target& target = request.target;
    const auto is_legal = [&](const Strategy& one) {
      return legal(target.job, one, devices) && legal(target.framework(), target.job, one);
    };
    std::set<Found> members;
    std::optional<std::pair<Found, Strategy>> best;
    for (const Strategy& one : enumerate(request).legal) {
      EXPECT_TRUE(is_legal(one)) << strategy_summary(one);
      const Prediction prediction = evaluate(target, one).prediction;
      const Found found = found_of(prediction);
      members.insert(found);
      if (!fits_devices(target, one, prediction.stages)) continue;
      if (!best || found < best->first) best = {found, one};
    }
    const Plan plan = search(request);
    EXPECT_EQ(plan.strategy, best->second) << strategy_summary(best->second);
    EXPECT_EQ(plan.prediction.step_time, best->first.step);
    EXPECT_TRUE(plan.search.proven);
    const std::vector<Choice> choices = choices_of(devices);
    std::int64_t checked = 0;
    for (std::int64_t i = 0; i < 100'000 && checked < 300; ++i) {
      const Strategy one = drawn_strategy(choices, random);
      if (!is_legal(one)) continue;
      ++checked;
      const Found found = found_of(evaluate(target, one).prediction);
      // Without a pipeline there is no bubble to fill. Modules are recomputed in all layers or
      // none.
      const bool is_left_out = (one.pp == 1 && splits_backward(one.schedule)) ||
                               (one.recompute == Recompute::modules && one.recomputed.layers > 0);
      if (is_left_out) {
        EXPECT_GE(found.step, best->first.step) << strategy_summary(one);
      } else {
        EXPECT_TRUE(members.contains(found)) << strategy_summary(one);
      }
    }
    EXPECT_GT(checked, 100) << devices;
  }
}

TEST(Search, AnyNumberOfThreadsGivesTheSameFile) {
  SearchRequest request = nano_request(4);
  std::set<std::string> texts;
  for (std::int64_t threads : {1, 2, 3, 8}) {
    request.threads = threads;
    texts.insert(plan_text(search(request)));
  }
  EXPECT_EQ(texts.size(), 1u);
}

TEST(Search, EveryCutIsCountedWithItsBound) {
  const Plan plan = search(nano_request(4));
  const std::int64_t bounded = sum_of(plan.search.bounded);
  EXPECT_GT(bounded, 0);
  std::int64_t pruned = 0;
  for (const Pruned& rule : plan.search.pruned) pruned += rule.count;
  EXPECT_EQ(plan.search.space, plan.search.evaluated + bounded + pruned);
}

TEST(Search, StopsAtItsTimeLimitWithoutAPlan) {
  SearchRequest request = nano_request(2);
  request.time_limit = Seconds(1e-9);
  EXPECT_THROW(search(request), NothingFoundYet);
}

TEST(Search, StopsAtItsTimeLimitWhileItBounds) {
  // To bound these 4,194,304 ranks' strategies takes minutes.
  Job job = nano_job();
  job.layers = job.heads = job.kv_heads = 64;
  job.hidden = 512;
  job.ffn_hidden = 2048;
  job.global_batch = 1 << 22;
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.nodes.reset();
  const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm"));
  SearchRequest request = request_of(Target(job, costs, 1 << 22));
  request.time_limit = Seconds(0.02);
  try {  // the first plan is looked for before any bound
    EXPECT_FALSE(search(request).search.proven);
  } catch (const NothingFoundYet&) {
  }
}

TEST(Search, StopsAtItsTimeLimitWithTheBestSoFarAndItsGap) {
  // Stopped by the clock after some rounds, wherever that is: the gap must hold against the truth.
  SearchRequest request = nano_request(4);
  const Plan best = search(request);
  for (double limit = 1e-4; limit < 1000; limit *= 3) {
    request.time_limit = Seconds(limit);
    try {
      const auto begin = std::chrono::steady_clock::now();
      const Plan plan = search(request);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_GE(plan.prediction.step_time, best.prediction.step_time);
      EXPECT_LE(plan.prediction.step_time / (1 + plan.search.gap),
                best.prediction.step_time * (1 + 1e-12));
      EXPECT_EQ(plan.search.proven, plan.search.unexplored == 0);
      for (const Violation& violation : check(plan)) ADD_FAILURE() << violation.message;
      // The clock may stop what comes after the proof: cuts by cost.
      if (!plan.search.proven || taken.count() >= limit) continue;
      EXPECT_EQ(plan_text(plan), plan_text(best));
      return;
    } catch (const NothingFoundYet&) {
    }
  }
  FAIL() << "never finished";
}

TEST(Search, EmitsPlansThatTheCheckerAccepts) {
  for (const char* fixed : {"mp", "pp", "dp", "sharding_degree"}) {
    const Plan plan = search(nano_request(2, {{fixed, "2"}}));
    for (const Violation& violation : check(plan)) {
      ADD_FAILURE() << fixed << ": " << violation.rule << ": " << violation.message;
    }
  }
}

TEST(Search, FixedChoicesHold) {
  const Plan plan = search(nano_request(2, {{"pp", "2"}, {"recompute", "full"}}));
  EXPECT_EQ(plan.strategy.pp, 2);
  EXPECT_EQ(plan.strategy.recompute, Recompute::full);
  for (const RunnerUp& loser : plan.runners_up) EXPECT_EQ(loser.strategy.pp, 2);
}

TEST(Search, RunnersUpAreSlowerOrHeavierAndSayWhy) {
  const Plan plan = search(nano_request(2));
  ASSERT_FALSE(plan.runners_up.empty());
  EXPECT_LE(plan.runners_up.size(), 8u);
  for (const RunnerUp& loser : plan.runners_up) {
    EXPECT_GE(merit(loser.step_time, loser.unusual),
              merit(plan.prediction.step_time, plan.unusual));
    EXPECT_EQ(loser.term == LossTerm::memory, loser.term_bytes > Bytes());
    EXPECT_NE(loser.strategy, plan.strategy);
  }
}

TEST(Search, RefusedCandidatesAreCounted) {
  SearchRequest request = nano_request(4);
  request.target.job.heads = request.target.job.kv_heads = 7;
  request.target.job.hidden = 56;
  request.target.job.ffn_hidden = 224;
  const Plan plan = search(request);
  EXPECT_TRUE(std::any_of(
      plan.search.pruned.begin(), plan.search.pruned.end(),
      [](const Pruned& rule) { return rule.reason == "mp N does not divide the N heads"; }));
  EXPECT_EQ(plan.strategy.mp, 1);
}

TEST(Search, SevenHeadsCannotBeSplitInTwo) {
  SearchRequest request = nano_request(2, {{"mp", "2"}});
  request.target.job.heads = request.target.job.kv_heads = 7;
  request.target.job.hidden = 56;
  request.target.job.ffn_hidden = 224;
  try {
    search(request);
    FAIL() << "7 heads were split in 2";
  } catch (const InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("heads"), std::string::npos) << error.what();
  }
}

// Each degree breaks some rule; only one is broken by what was held.
TEST(Search, AHeldValueThatIsRefusedIsNamed) {
  try {
    search(nano_request(2, {{"moment_type", "fp8"}}));
    FAIL() << "the usual kernels have it";
  } catch (const InfeasibleError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("2 devices: moment_type"), std::string::npos) << message;
    EXPECT_EQ(message.find("candidates"), std::string::npos) << message;
  }
}

TEST(Search, MemoryDecidesWhatMayRun) {
  // Between the least arena and the fastest plan's: the fastest no longer fits, another does.
  Cluster cluster = small_cluster();
  const Plan roomy = search(nano_request_on(cluster, 2));
  cluster.device.memory = roomy.prediction.stages[0].arena - Bytes(1);
  for (const StagePrediction& stage : roomy.prediction.stages) {
    cluster.device.memory = std::max(cluster.device.memory, stage.arena - Bytes(1));
  }
  const Plan tight = search(nano_request_on(cluster, 2));
  EXPECT_NE(tight.strategy, roomy.strategy);
  const auto do_not_fit = [](const Plan& plan) {
    return plan.search.infeasible + plan.search.bounded[std::size_t(Cut::lasting_bytes)] +
           plan.search.bounded[std::size_t(Cut::bytes_in_flight)];
  };
  EXPECT_GT(do_not_fit(tight), do_not_fit(roomy));
  for (const StagePrediction& stage : tight.prediction.stages)
    EXPECT_LE(stage.arena, stage.capacity);
}

TEST(Search, NothingFitsNamesTheBytesAndTheStage) {
  Cluster cluster = small_cluster();
  cluster.device.memory = Bytes(100'000);
  try {
    search(nano_request_on(cluster, 2));
    FAIL() << "it fitted";
  } catch (const InfeasibleError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("100000 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("on stage"), std::string::npos) << message;
  }
}

/// A step of nano_job does 0.7 GFLOP: at 50 kFLOP/s it takes 4 hours.
Cluster slow_cluster(double flops_per_second) {
  Cluster cluster = small_cluster();
  cluster.device.peak_fp32 = FlopsPerSecond(flops_per_second);
  return cluster;
}

TEST(Search, StepsLongerThanATimelineAreRefused) {
  for (double rate : {5e4, 1e2, 1e-3}) {
    try {
      search(nano_request_on(slow_cluster(rate), 1));
      FAIL() << "a plan at " << rate << " FLOP/s";
    } catch (const InfeasibleError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("takes too long"), std::string::npos) << message;
      EXPECT_NE(message.find("some fit"), std::string::npos) << message;
    }
  }
}

TEST(Search, WhatTakesTooLongCountsAsInfeasibleAndIsNotShown) {
  // Just slow enough that recomputing whole layers is what makes a step too long.
  const Cluster fast = slow_cluster(1e6);
  const auto step = [&](const char* strategy) {
    return evaluate(nano_target(1, fast), parse_strategy(strategy)).prediction.step_time;
  };
  const double between =
      0.5 * (step("recompute=full,recompute_layers=2") + step("recompute=full")).value();
  const double rate = 1e6 * between / kLongestTimeline.seconds().value();
  const Plan plan = search(nano_request_on(slow_cluster(rate), 1));
  EXPECT_EQ(plan.strategy.recompute, Recompute::none);
  EXPECT_GT(plan.search.evaluated, plan.search.infeasible);
  EXPECT_LE(plan.search.evaluated - plan.search.infeasible, 15);  // of 20, 5 take too long
  for (const RunnerUp& loser : plan.runners_up) {
    EXPECT_TRUE(loser.strategy.recompute != Recompute::full ||
                loser.strategy.recomputed.layers > 0);
  }
  EXPECT_EQ(plan_text(parse_plan(plan_text(plan), "FILE")), plan_text(plan));
  for (const Violation& violation : check(plan)) ADD_FAILURE() << violation.message;
}

TEST(Search, MoreCoresThanThereAreIsLabelledAndMoreGpusAreRefused) {
  Cluster cluster = small_cluster();
  EXPECT_FALSE(is_oversubscribed(nano_target(4, cluster)));
  EXPECT_TRUE(is_oversubscribed(nano_target(8, cluster)));
  EXPECT_TRUE(search(nano_request(8, {{"pp", "4"}}, cluster)).oversubscribed);
  cluster.device.kind = DeviceKind::gpu;
  EXPECT_NO_THROW(check_devices(nano_target(4, cluster)));
  EXPECT_THROW(check_devices(nano_target(8, cluster)), InfeasibleError);
  EXPECT_THROW(search(nano_request(8, {{"pp", "4"}}, cluster)), InfeasibleError);
  cluster.nodes.reset();
  EXPECT_FALSE(is_oversubscribed(nano_target(8, cluster)));
}

TEST(Search, TheBundledRuntimeIsNotPlannedForGpus) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  EXPECT_THROW(search(nano_request_on(cluster, 1)), InfeasibleError);
  const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm"));
  for (const Violation& violation : check(search(request_of(Target(nano_job(), costs, 1))))) {
    ADD_FAILURE() << violation.rule << ": " << violation.message;
  }
}

TEST(Search, APeakBelowWhatWasMeasuredIsRefused) {
  Cluster cluster = small_cluster();
  cluster.device.peak_fp32 = FlopsPerSecond(1e9);
  const Sample time = {Seconds(1e-6), Seconds(0), 7, false};
  Calibration calibration;
  calibration.dispatch_op = calibration.dispatch_call = calibration.wake_up = time;
  calibration.matmuls = {{.shape = {1, 1024, 1024, 1024}, .time = time}};  // 2 PFLOP/s
  const CostModel costs(cluster, calibration, bundled_framework());
  EXPECT_THROW(search(request_of(Target(nano_job(), costs, 1))), InputError);
}

TEST(Search, ProgressReachesTheEnd) {
  SearchRequest request = nano_request(1);
  std::int64_t last = 0, of = 0;
  request.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GE(done, last);
    last = done, of = total;
  };
  search(request);
  EXPECT_EQ(last, 55);
  EXPECT_EQ(of, 55);
}

TEST(Search, ProvesNothingBesideAPlanThatDoesNotFit) {
  Explored explored;
  explored.bounded[std::size_t(Cut::bytes_in_flight)] = 3;
  explored.bounded[std::size_t(Cut::pipeline)] = 5;
  explored.unexplored = 2;
  explored.least_left = Seconds(1.5);
  take_back_time_cuts(explored, Seconds(2));
  EXPECT_EQ(explored.unexplored, 7);
  EXPECT_EQ(explored.least_left, Seconds(1.5));
  EXPECT_EQ(sum_of(explored.bounded), 3);
  take_back_time_cuts(explored, Seconds(1));
  EXPECT_EQ(explored.unexplored, 7);
}

}  // namespace
}  // namespace plimsoll
