// Bounds: at most what evaluate finds, for random jobs, clusters and strategies; and close to it.
#include "planner/bounds/bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "passes/strategy/pipeline_order.h"
#include "predict/evaluate.h"
#include "tests/planner/random_problems.h"

namespace plimsoll {
namespace {

/// Kernels that lose time beside transfers may lose more where these come earlier, so that a bound
/// may exceed a step by up to 0.05 %.
constexpr double kLostLater = 1.0005;

/// How far bounds stay below what is evaluated, over many strategies.
struct Slack {
  double sum = 0, worst = 0;
  std::int64_t count = 0;
  void add(double bound, double value) {
    const double share = 1 - bound / value;
    sum += share;
    worst = std::max(worst, share);
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / double(count); }
};

void show(const std::string& name, const Slack& slack) {
  testing::Test::RecordProperty(
      name, fmt::format("mean {:.4f} %, worst {:.3f} %", 100 * slack.mean(), 100 * slack.worst));
  fmt::print("{:<22} below evaluate by {:.4f} % in the mean, {:.3f} % at worst ({})\n", name,
             100 * slack.mean(), 100 * slack.worst, slack.count);
}

/// The result of lowering and simulating a strategy.
struct Found {
  Seconds step;
  Bytes peak, arena, reserved;  ///< largest over stages
};

Found found_of(const Target& target, const Strategy& strategy) {
  const Footprint footprint = lay_out(target, strategy, Proof::structure);
  const Prediction found =
      predict(target, strategy, footprint, Folding::folded, Detail::none).prediction;
  return {found.step_time, largest(found.stages, &StagePrediction::peak),
          largest(found.stages, &StagePrediction::arena),
          largest(found.stages, &StagePrediction::reserved)};
}

TEST(Bounds, AreAtMostWhatEvaluateFindsOnRandomStrategies) {
  std::mt19937_64 random(1);
  Slack bottleneck, actions_gpu, actions_cpu, peak, arena;
  Slack sharded, sharded_peak;  // gradients reduced, or parameters gathered, per micro-batch
  std::int64_t checked = 0, two_meetings = 0;
  while (checked < problems_to_draw(4'000)) {
    const bool llama = random() % 2 == 0;
    const Problem problem = llama ? random_llama_problem(random) : random_problem(random);
    const Target target = problem.target();
    const Bounds bounds(target);
    for (const Strategy& strategy : random_strategies(problem, random, 40)) {
      const Found found = found_of(target, strategy);
      const double step = found.step.value();
      const MemoryBound memory = bounds.memory(strategy);
      const double low = bounds.bottleneck(strategy).seconds().value();
      const double sharp = bounds.actions(strategy).seconds().value();
      const std::string who = describe(problem) + strategy_summary(strategy);
      ASSERT_LE(bounds.persistent(strategy), memory.peak) << who;
      ASSERT_LE(memory.peak, found.peak) << who;
      ASSERT_LE(memory.arena, found.arena) << who;
      ASSERT_LE(memory.reserved, found.reserved) << who;
      ASSERT_LE(low, step) << who;
      ASSERT_LE(sharp, step * kLostLater) << who;
      ++checked;
      if (strategy.sharding_stage > 1 || strategy.gradients.reduction != GradReduction::at_end) {
        sharded.add(std::max(low, sharp), step);
        sharded_peak.add(double(memory.peak.count()), double(found.peak.count()));
        continue;
      }
      bottleneck.add(low, step);
      // With several kinds of devices every op counts as on the fastest, which is far below its
      // cost.
      if (problem.cluster.other_devices.empty()) {
        (target.costs->host_executes() ? actions_cpu : actions_gpu).add(sharp, step);
      }
      two_meetings += problem.job.precision == DType::f16 && strategy.pp > 1 &&
                      strategy.optimizer.flatten == Flatten::coalesced && problem.job.clip_norm > 0;
      // Copies that these forms make for the update are not counted.
      if (strategy.optimizer.flatten != Flatten::fused || classes_by_owner(strategy)) continue;
      peak.add(double(memory.peak.count()), double(found.peak.count()));
      arena.add(double(memory.arena.count()), double(found.arena.count()));
    }
  }
  // Stages meet for the norm and for the finite check, in one routine.
  EXPECT_GT(two_meetings, checked / 1000);
  // Loose bounds would cut nothing.
  EXPECT_LT(peak.mean(), 0.001);
  EXPECT_LT(arena.mean(), 0.02);
  // Clusters drawn at random are odd: steps bound by latencies, groups that lie differently, and
  // devices of several kinds, of which the bound takes the fastest. What communications that share
  // links lose to each other no bound counts, and no copies of activations to the host. The mean of
  // few draws says little.
  if (checked >= 4'000) {
    EXPECT_LT(actions_gpu.mean(), 0.125);
  }
  show("bottleneck", bottleneck);
  show("actions, GPUs", actions_gpu);
  show("actions, CPU cores", actions_cpu);
  show("peak", peak);
  show("arena", arena);
  show("per micro-batch, time", sharded);
  show("per micro-batch, peak", sharded_peak);
}

// Layers of some shapes faster than the rest of a fit says, of others slower; some with ops that
// were measured, which these factors leave alone.
TEST(Bounds, StayBelowWithFactorsOfLayerShapes) {
  std::mt19937_64 random(11);
  std::int64_t checked = 0, faster = 0;
  while (checked < problems_to_draw(1'000)) {
    const Problem problem = random_problem(random);
    const std::vector<Strategy> strategies = random_strategies(problem, random, 20);
    FittedCalibration fitted;
    for (const Strategy& strategy : strategies) {
      const LayerShape shape = layer_shape(problem.job, strategy);
      const bool known = std::any_of(fitted.layers.begin(), fitted.layers.end(),
                                     [&](const LayerPoint& point) { return point.shape == shape; });
      if (known || random() % 2 == 0) continue;
      fitted.layers.push_back({shape, 0.8 + 0.05 * double(random() % 9), 0.01, 1});
    }
    const CostModel costs(problem.cluster, problem.calibration, problem.framework, fitted);
    const Target plain = problem.target(), target(problem.job, costs, problem.devices);
    const Bounds bounds(target);
    for (const Strategy& strategy : strategies) {
      const Seconds found = found_of(target, strategy).step;
      const std::string who = describe(problem) + strategy_summary(strategy);
      ASSERT_LE(bounds.bottleneck(strategy).seconds(), found) << who;
      ASSERT_LE(bounds.actions(strategy).seconds(), found * kLostLater) << who;
      faster += found < found_of(plain, strategy).step ? 1 : 0;
      ++checked;
    }
  }
  EXPECT_GT(faster, checked / 10);
}

// Matrices are updated one by one, by owners of whole ones where states are shared out.
TEST(Bounds, HoldForMuonAndAdafactor) {
  std::mt19937_64 random(21);
  std::int64_t checked = 0, shared = 0;
  while (checked < problems_to_draw(1'000)) {
    Problem problem = random_problem(random);
    problem.job.optimizer.kind = checked % 3 == 0 ? OptimizerKind::adafactor : OptimizerKind::muon;
    const Target target = problem.target();
    const Bounds bounds(target);
    for (const Strategy& strategy : random_strategies(problem, random, 20)) {
      const Found found = found_of(target, strategy);
      const MemoryBound memory = bounds.memory(strategy);
      const std::string who = describe(problem) + strategy_summary(strategy);
      ASSERT_LE(bounds.persistent(strategy), memory.peak) << who;
      ASSERT_LE(memory.peak, found.peak) << who;
      ASSERT_LE(memory.arena, found.arena) << who;
      ASSERT_LE(memory.reserved, found.reserved) << who;
      ASSERT_LE(bounds.bottleneck(strategy).seconds(), found.step) << who;
      ASSERT_LE(bounds.actions(strategy).seconds(), found.step * kLostLater) << who;
      shared += strategy.sharding_stage > 0 ? 1 : 0;
      ++checked;
    }
  }
  EXPECT_GT(shared, checked / 20);
}

/// Another schedule or lifetime of sends, where it is legal.
Strategy with_other_schedule(const Problem& problem, Strategy strategy, std::mt19937_64& random) {
  const Strategy before = strategy;
  switch (random() % 5) {
    case 0:
      strategy.schedule = Schedule::gpipe;
      break;
    case 1:
      strategy.schedule = random() % 2 == 0 ? Schedule::zb_h1 : Schedule::zb_h2;
      strategy.pipeline.virtual_stages = 1;
      break;
    case 3:
      strategy.schedule = Schedule(int(Schedule::zb_v) + int(random() % 5));
      strategy.pipeline.virtual_stages = 2;
      strategy.pipeline.layer_split.clear();
      if (random() % 3 == 0 && strategy.pp == 2 && problem.job.layers > 2) {
        strategy.pipeline.embedding_as_layers = strategy.pipeline.loss_as_layers = 0;
        strategy.pipeline.layer_split = {1, 0, problem.job.layers - 2, 1};
      }
      break;
    case 2:
      strategy.pipeline.virtual_stages = 2;
      strategy.pipeline.layer_split.clear();
      break;
    default:
      strategy.pipeline.send_lifetime =
          random() % 2 == 0 ? SendLifetime::held : SendLifetime::published;
  }
  const bool holds = problem.framework.host.waits.transfers_hold != TransfersHold::nothing ||
                     problem.framework.host.waits.for_launches;
  const bool deep = strategy.schedule == Schedule::zb_h2 || is_placed_as_v(strategy.schedule);
  if (holds && deep) return before;
  return legal(problem.job, strategy, problem.devices) ? strategy : before;
}

/// Any schedule that is placed as a V, where it is legal.
Strategy placed_as_v(const Problem& problem, Strategy strategy, std::mt19937_64& random) {
  strategy.schedule = Schedule(int(Schedule::zb_v) + int(random() % 5));
  strategy.pipeline.virtual_stages = 2;
  strategy.pipeline.layer_split.clear();
  const bool holds = problem.framework.host.waits.transfers_hold != TransfersHold::nothing;
  if (holds || !legal(problem.job, strategy, problem.devices)) strategy.schedule = {};
  return strategy;
}

// Neighbours of three stages and more are apart by different links, and a V sends over each of them
// in both directions.
TEST(Bounds, HoldForAVWhoseStagesLieDifferently) {
  std::mt19937_64 random(6);
  std::int64_t checked = 0;
  while (checked < problems_to_draw(300)) {
    const Problem problem = random_problem(random);
    const Target target = problem.target();
    const Bounds bounds(target);
    for (const Strategy& drawn : random_strategies(problem, random, 20)) {
      const Strategy strategy = placed_as_v(problem, drawn, random);
      if (strategy.pp < 3 || !is_placed_as_v(strategy.schedule)) continue;
      const double step = found_of(target, strategy).step.value();
      const std::string who = describe(problem) + strategy_summary(strategy);
      ASSERT_LE(bounds.bottleneck(strategy).seconds().value(), step * kLostLater) << who;
      ASSERT_LE(bounds.actions(strategy).seconds().value(), step * kLostLater) << who;
      ++checked;
    }
  }
}

TEST(Bounds, HoldForOtherSchedulesAndLifetimes) {
  std::mt19937_64 random(2);
  std::map<std::string, Slack> slack;
  std::int64_t checked = 0;
  while (checked < problems_to_draw(1'250)) {
    const Problem problem = random_problem(random);
    const Target target = problem.target();
    const Bounds bounds(target);
    for (const Strategy& drawn : random_strategies(problem, random, 20)) {
      const Strategy strategy = with_other_schedule(problem, drawn, random);
      if (strategy == drawn) continue;
      const Found found = found_of(target, strategy);
      const std::string who = describe(problem) + strategy_summary(strategy);
      const MemoryBound memory = bounds.memory(strategy);
      ASSERT_LE(bounds.persistent(strategy), memory.peak) << who;
      ASSERT_LE(memory.peak, found.peak) << who;
      ASSERT_LE(memory.arena, found.arena) << who;
      const double step = found.step.value();
      const double low = bounds.bottleneck(strategy).seconds().value();
      ASSERT_LE(low, step) << who;
      const double sharp = bounds.actions(strategy).seconds().value();
      ASSERT_LE(sharp, step * kLostLater) << who;
      ++checked;
      const std::string kind = is_placed_as_v(strategy.schedule)      ? "placed as a V"
                               : strategy.pipeline.virtual_stages > 1 ? "interleaved"
                               : strategy.schedule == Schedule::gpipe ? "gpipe"
                               : splits_backward(strategy.schedule)   ? "zb_h1, zb_h2"
                                                                      : "lifetimes";
      slack[kind].add(std::max(low, sharp), step);
      slack[kind + ", peak"].add(double(memory.peak.count()), double(found.peak.count()));
      slack[kind + ", arena"].add(double(memory.arena.count()), double(found.arena.count()));
    }
  }
  for (const auto& [name, of] : slack) show(name, of);
}

/// A mixture of experts whose framework's host may wait for ops, in several ways.
Problem waiting_problem(std::mt19937_64& random) {
  Problem problem;
  do {
    problem = random_llama_problem(random);
  } while (!problem.job.experts || problem.target().costs->host_executes());
  Framework& framework = problem.framework;
  const auto coin = [&] { return random() % 2 == 0; };
  framework.host.waits.before_exchange = coin();
  framework.host.waits.before_products = coin();
  framework.host.waits.for_norm = coin();
  framework.host.waits.for_launches = random() % 4 == 0;
  framework.host.dispatch.graphs = std::array{Graphs::nothing, Graphs::router, Graphs::attention,
                                              Graphs::layers, Graphs::step}[random() % 5];
  framework.host.dispatch.ops_per_tensor = coin() ? 1 : 0;
  framework.host.dispatch.ops_per_expert_op = coin() ? 2.2 : 1;
  framework.host.dispatch.ops_per_part = coin() ? 3.2 : 1;
  framework.host.waits.time = Seconds(coin() ? 1e-6 : 1e-4);
  return problem;
}

TEST(Bounds, HoldForHostsThatWait) {
  std::mt19937_64 random(21);
  Slack slack;
  std::int64_t checked = 0, later = 0;
  while (checked < problems_to_draw(1'000)) {
    const Problem problem = waiting_problem(random);
    Problem free = problem;
    free.framework.host.waits.before_exchange = free.framework.host.waits.before_products = false;
    const Target target = problem.target(), free_target = free.target();
    const Bounds bounds(target), free_bounds(free_target);
    for (const Strategy& drawn : random_strategies(problem, random, 10)) {
      const Strategy strategy =
          random() % 3 == 0 ? with_other_schedule(problem, drawn, random) : drawn;
      // A host that waits for launches cannot receive ahead.
      if (problem.framework.host.waits.for_launches && strategy.pipeline.virtual_stages > 1)
        continue;
      const std::string who = describe(problem) + strategy_summary(strategy);
      const double step = found_of(target, strategy).step.value();
      const double low = bounds.bottleneck(strategy).seconds().value();
      const double sharp = bounds.actions(strategy).seconds().value();
      ASSERT_LE(low, step) << who;
      ASSERT_LE(sharp, step * kLostLater) << who;
      // Waits for rows only lengthen a step, and its bounds.
      const Picoseconds without = free_bounds.actions(strategy);
      ASSERT_GE(bounds.actions(strategy), without) << who;
      later += sharp > 1.01 * without.seconds().value() ? 1 : 0;
      slack.add(std::max(low, sharp), step);
      ++checked;
    }
  }
  show("hosts that wait", slack);
  EXPECT_GT(later, checked / 20);
}

/// With any framework, as if it could.
TEST(Bounds, HoldWhereBackwardFreesGradients) {
  std::mt19937_64 random(31);
  Slack slack, peak;
  std::int64_t checked = 0;
  while (checked < problems_to_draw(400)) {
    Problem problem = random_problem(random);
    problem.job.clip_norm = 0;
    problem.framework.can.precision.release_gradients.value = true;
    const Target target = problem.target();
    const Bounds bounds(target);
    for (Strategy strategy : random_strategies(problem, random, 40)) {
      strategy.gradients.release = true;
      strategy.gradients.merge = GradientMerge::direct;
      strategy.optimizer = {};
      strategy.precision.main_gradients = strategy.precision.gradients;
      if (strategy.sharding_stage == 1) strategy.sharding_stage = 2;
      const std::int64_t width = strategy.dp * strategy.sharding_degree;
      if (problem.job.global_batch % width != 0) continue;
      strategy.micro_batch = problem.job.global_batch / width;
      if (!legal(problem.job, strategy, problem.devices) ||
          !legal(problem.framework, problem.job, strategy))
        continue;
      const std::string who = describe(problem) + strategy_summary(strategy);
      const Found found = found_of(target, strategy);
      const MemoryBound memory = bounds.memory(strategy);
      ASSERT_LE(bounds.persistent(strategy), memory.peak) << who;
      ASSERT_LE(memory.peak, found.peak) << who;
      ASSERT_LE(memory.arena, found.arena) << who;
      ASSERT_LE(memory.reserved, found.reserved) << who;
      const double step = found.step.value();
      const double low = bounds.bottleneck(strategy).seconds().value();
      const double sharp = bounds.actions(strategy).seconds().value();
      ASSERT_LE(low, step) << who;
      ASSERT_LE(sharp, step * kLostLater) << who;
      ASSERT_LE(bounds.traffic(strategy).seconds().value(), step) << who;
      slack.add(std::max(low, sharp), step);
      peak.add(double(memory.peak.count()), double(found.peak.count()));
      ++checked;
    }
  }
  show("gradients freed", slack);
  show("gradients freed, peak", peak);
}

TEST(Bounds, FollowThePaddingOfTensorsThatAreUpdatedOneByOne) {
  Problem problem;
  problem.job.name = "padded";
  problem.job.layers = 6;
  problem.job.hidden = problem.job.ffn_hidden = 16;
  problem.job.heads = problem.job.kv_heads = 2;
  problem.job.vocab = 257;
  problem.job.sequence = 8;
  problem.job.tied_embeddings = true;
  problem.job.global_batch = 8;
  problem.job.precision = DType::bf16;
  problem.job.fp32_parameters = {"bias"};
  problem.job.optimizer.groups = {{"bias", {}, true, 0.5}, {"embedding", 0.01, false, {}}};
  problem.framework = bundled_framework();
  problem.devices = 2;
  std::mt19937_64 random(3);
  problem.cluster = random_problem(random).cluster;
  problem.cluster.other_devices.clear();
  const Target target = problem.target();
  const Bounds bounds(target);
  for (const char* text : {"mp=2,flatten=none,sequence_parallel=true,recompute=selective",
                           "mp=2,flatten=none,recompute=selective"}) {
    const Strategy strategy = parse_strategy(text);
    ASSERT_TRUE(legal(problem.job, strategy, 2)) << text;
    const Found found = found_of(target, strategy);
    EXPECT_LE(bounds.memory(strategy).peak, found.peak) << text;
    EXPECT_LE(bounds.memory(strategy).arena, found.arena) << text;
  }
}

}  // namespace
}  // namespace plimsoll
