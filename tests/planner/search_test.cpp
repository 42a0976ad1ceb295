// Search: the same answer as a loop that knows nothing of it.
#include "planner/search/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <set>

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

struct Found {
  Strategy strategy;
  double step = 0;
  std::int64_t peak = 0, tried = 0;
};

/// Each number of chunks and each way to count the ends of the model as layers that spreads the
/// layers differently, in 1F1B and zb_h1.
std::vector<Strategy> layouts(const Job& job, const Strategy& strategy, std::int64_t devices) {
  std::vector<Strategy> all;
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zb_h1}) {
    for (std::int64_t chunks = 1; chunks <= 6; ++chunks) {
      std::set<std::vector<std::int64_t>> seen;
      // The head of nano_job has as many parameters as 2.7 layers have in the products.
      for (const auto& [embedding, loss] : {std::pair{0, 0}, {0, 1}, {1, 1}}) {
        Strategy s = strategy;
        s.schedule = schedule, s.virtual_stages = chunks;
        s.embedding_as_layers = embedding, s.loss_as_layers = loss;
        if (schedule == Schedule::zb_h1 && s.pp == 1) continue;
        if (!legal(job, s, devices) || !seen.insert(layers_per_part(job, s)).second) continue;
        all.push_back(s);
      }
    }
  }
  return all;
}

/// One strategy as it is, with tokens or borders split, gathered earlier, kept gathered or not, in
/// every layout that pp allows, and each with every number of layers that it may repeat.
std::vector<Strategy> with_switches(const Job& job, const Strategy& strategy,
                                    std::int64_t devices) {
  std::vector<Strategy> all;
  const std::int64_t gathers = strategy.sharding_stage == 3 ? 6 : 1;
  for (int split : {0, 1, 2}) {
    for (std::int64_t gather = 0; gather < gathers; ++gather) {
      Strategy split_one = strategy;
      split_one.sequence_parallel = split == 1;
      split_one.split_boundary = split == 2;
      if (gathers > 1) {
        split_one.prefetch_depth = gather % 3;
        split_one.keep_gathered = gather >= 3;
      }
      for (const Strategy& layout : layouts(job, split_one, devices)) {
        const std::vector<std::int64_t> parts = layers_per_part(job, layout);
        const std::int64_t most = *std::max_element(parts.begin(), parts.end());
        const bool some =
            layout.recompute == Recompute::full || layout.recompute == Recompute::selective;
        for (std::int64_t n = 0; n < (some ? most : 1); ++n) {
          all.push_back(layout);
          all.back().recompute_layers = n;
        }
      }
    }
  }
  return all;
}

/// Every number up to the device count as a degree, every number up to the batch as a micro-batch.
Found brute_force(const Target& target, std::int64_t most_cp) {
  Found found;
  const std::int64_t n = target.devices;
  const auto consider = [&](const Strategy& s) {
    if (!legal(target.job, s, n) || !legal(target.framework(), target.job, s)) return;
    const Prediction prediction = evaluate(target, s).prediction;
    const double step = prediction.step_time.value();
    const std::int64_t peak = largest(prediction.stages, &StagePrediction::peak).count();
    const bool first = found.tried++ == 0;
    if (!fits_devices(target, s, prediction.stages)) return;
    if (!first && (step > found.step || (step == found.step && peak >= found.peak))) return;
    found = {s, step, peak, found.tried};
  };
  const auto of_degrees = [&](const Strategy& degrees) {
    for (std::int64_t batch = 1; batch <= target.job.global_batch; ++batch) {
      for (const char* recompute : {"none", "selective", "full", "norms", "norms+mlp"}) {
        Strategy s = degrees;
        s.micro_batch = batch;
        const bool of_modules = std::string_view(recompute).starts_with("norms");
        set_field(s, "recompute", of_modules ? "modules" : recompute);
        if (of_modules) set_field(s, "recompute_modules", recompute);
        for (Strategy& one : with_switches(target.job, s, n)) {
          for (std::int64_t bucket_mib : {1, 4, 16, 64}) {
            const bool reduces_buckets =
                s.cp * s.dp * s.sharding_degree > 1 && s.sharding_stage < 3;
            if (!reduces_buckets && bucket_mib != 4) continue;
            one.grad_bucket_bytes = Bytes(bucket_mib << 20);
            consider(one);
          }
        }
      }
    }
  };
  for (std::int64_t mp = 1; mp <= n; ++mp) {
    for (std::int64_t pp = 1; pp <= n; ++pp) {
      for (std::int64_t dp = 1; dp <= n; ++dp) {
        for (std::int64_t sharding = 1; sharding <= n; ++sharding) {
          for (std::int64_t cp = 1; cp <= most_cp; ++cp) {
            if (mp * pp * dp * sharding * cp != n) continue;
            const std::int64_t least = sharding > 1 ? 1 : 0, most = sharding * cp > 1 ? 3 : 0;
            for (std::int64_t stage = least; stage <= most; ++stage) {
              for (const auto exchange : {ContextExchange::ring, ContextExchange::all_gather,
                                          ContextExchange::all_to_all}) {
                if (cp == 1 && exchange != ContextExchange::ring) continue;
                Strategy s;
                s.mp = mp, s.pp = pp, s.dp = dp, s.sharding_degree = sharding;
                s.cp = cp, s.context_exchange = exchange;
                s.sharding_stage = stage;
                of_degrees(s);
              }
            }
          }
        }
      }
    }
  }
  return found;
}

TEST(Search, EqualsAnIndependentLoop) {
  for (std::int64_t devices : {1, 2, 4}) {
    SearchRequest request = nano_request(devices);
    request.fastest = true;
    const Plan plan = search(request);
    const Found found = brute_force(request.target, devices > 2 ? 1 : devices);
    EXPECT_EQ(plan.strategy, found.strategy)
        << strategy_summary(plan.strategy) << " against " << strategy_summary(found.strategy);
    EXPECT_EQ(plan.prediction.step_time.value(), found.step);
    std::int64_t alike = 0;  // on one node all orders of ranks are
    std::int64_t refused = 0;
    for (const Pruned& pruned : plan.search.pruned) {
      if (pruned.reason.starts_with("rank_order")) alike += pruned.count;
      if (pruned.reason.starts_with("recompute is")) refused += pruned.count;
    }
    EXPECT_EQ(alike, devices == 4 ? 3 : 0);
    EXPECT_EQ(plan.search.space, found.tried + alike + refused);
    EXPECT_TRUE(plan.search.proven);
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
    search(nano_request(2, {{"moment_type", "bf16"}}));
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
    EXPECT_TRUE(loser.strategy.recompute != Recompute::full || loser.strategy.recompute_layers > 0);
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
