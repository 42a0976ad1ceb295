// Evaluate: rates by their definitions, memory as planned, terms that add up.
#include "predict/evaluate.h"

#include <gtest/gtest.h>

#include "passes/pipeline.h"
#include "tests/predict/fixtures.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Evaluation evaluate_nano(const Strategy& strategy, std::int64_t devices, Bytes reserve = Bytes(0)) {
  return evaluate(nano_target(devices, small_cluster(), reserve), strategy);
}

bool nano_fits(const Cluster& cluster, const Strategy& strategy, Bytes reserve) {
  const Target target = nano_target(grid_of(strategy).world_size(), cluster, reserve);
  return fits_devices(target, strategy, evaluate(target, strategy).prediction.stages);
}

Bytes arena_of(const Evaluation& evaluation) {
  return largest(evaluation.prediction.stages, &StagePrediction::arena);
}

double sum(const Breakdown& b) {
  return (b.forward + b.recompute + b.backward + b.optimizer + b.exposed_communication + b.bubble +
          b.dispatch)
      .value();
}

TEST(Evaluate, AJobOfATypeTheDeviceLacksIsRefused) {
  Job job = nano_job();
  job.precision = DType::bf16;
  const Framework framework = framework_by_name("megatron-lm-2021");
  const Cluster cluster =
      read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/dgx1-v100-32gb.json");
  const CostModel costs(cluster, std::nullopt, framework);
  try {
    evaluate(Target(job, costs, 1), Strategy{});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"dgx1-v100-32gb", "/device/peak", "fp32, fp16", "bf16"}));
  }
}

TEST(Evaluate, RatesFollowTheirDefinitions) {
  const Prediction p = evaluate_nano(parse_strategy("micro_batch=4"), 1).prediction;
  const double step = p.step_time.value();
  ASSERT_GT(step, 0);
  EXPECT_DOUBLE_EQ(p.tokens_per_second, 16 * 32 / step);
  // Per sequence of n=32 tokens, h=64: a layer's linears 24 n h^2, attention 4 n^2 h; logits 2 n h
  // v.
  const double forward = 4 * (24.0 * 32 * 64 * 64 + 4.0 * 32 * 32 * 64) + 2.0 * 32 * 64 * 256;
  EXPECT_NEAR(p.mfu, 3 * forward * 16 / (step * 100e9), 1e-12);
  EXPECT_DOUBLE_EQ(p.hfu, p.mfu);
  EXPECT_DOUBLE_EQ(p.peak_flops.value(), 100e9);
  EXPECT_NE(p.peak_source.find("not measured"), std::string::npos);
}

TEST(Evaluate, HfuCountsTheLayersThatAreRecomputed) {
  const Prediction p = evaluate_nano(parse_strategy("micro_batch=4,recompute=full"), 1).prediction;
  const double layers = 4 * (24.0 * 32 * 64 * 64 + 4.0 * 32 * 32 * 64);
  const double logits = 2.0 * 32 * 64 * 256;
  const double extra = p.hfu / p.mfu - 1;
  // A layer's last matmul need not be repeated, since nothing in backward reads its output.
  EXPECT_GT(extra, 0.5 * layers / (3 * (layers + logits)));
  EXPECT_LE(extra, layers / (3 * (layers + logits)) + 1e-12);
}

TEST(Evaluate, TermsSumToTheStep) {
  for (const char* text : {"mp=1", "mp=2", "pp=2,micro_batch=4", "dp=2", "pp=2,recompute=full",
                           "sharding_degree=2,sharding_stage=1"}) {
    const Strategy strategy = parse_strategy(text);
    const std::int64_t devices = grid_of(strategy).world_size();
    const Prediction p = evaluate_nano(strategy, devices).prediction;
    EXPECT_NEAR(sum(p.breakdown), p.step_time.value(), 1e-6 * p.step_time.value()) << text;
    EXPECT_GT(p.breakdown.backward.value(), p.breakdown.forward.value()) << text;
    EXPECT_EQ(p.breakdown.recompute.value() > 0, strategy.recompute == Recompute::full) << text;
  }
}

TEST(Evaluate, MemoryIsThePlannedOne) {
  const Strategy strategy = parse_strategy("pp=2,micro_batch=4");
  const Evaluation evaluation = evaluate_nano(strategy, 2);
  const auto programs = lower({nano_job(), strategy, bundled_framework()});
  ASSERT_EQ(evaluation.prediction.stages.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const StagePrediction& stage = evaluation.prediction.stages[i];
    EXPECT_EQ(stage.stage, std::int64_t(i));
    EXPECT_EQ(stage.peak, memory_peak(programs[i]).peak);
    EXPECT_EQ(stage.arena, programs[i].arena_bytes);
    EXPECT_EQ(stage.capacity, Bytes(std::int64_t{4} << 30));
  }
  EXPECT_EQ(evaluation.program_digests.size(), 2u);
}

TEST(Evaluate, FitsUpToTheLastByte) {
  const Bytes capacity = small_cluster().device.memory;
  const Bytes arena = arena_of(evaluate_nano(Strategy(), 1));
  EXPECT_TRUE(nano_fits(small_cluster(), Strategy(), capacity - arena));
  EXPECT_FALSE(nano_fits(small_cluster(), Strategy(), capacity - arena + Bytes(1)));
}

TEST(Evaluate, ContextAndCommunicatorsTakeOfTheDeviceToo) {
  Framework framework = bundled_framework();
  framework.memory.process.context = Bytes(100);
  framework.memory.process.pair_communicator = Bytes(11);
  const CostModel costs(small_cluster(), std::nullopt, framework);
  const Strategy strategy = parse_strategy("dp=2");
  const Evaluation evaluation = evaluate(Target(nano_job(), costs, 2), strategy);
  const Bytes room = small_cluster().device.memory - arena_of(evaluation);
  const auto fits = [&](Bytes reserve) {
    return fits_devices(Target(nano_job(), costs, 2, reserve), strategy,
                        evaluation.prediction.stages);
  };
  EXPECT_TRUE(fits(room - Bytes(111)));
  EXPECT_FALSE(fits(room - Bytes(110)));
}

/// Two nodes of one core each; the second has half the rate and a quarter of the memory.
Cluster two_kinds() {
  Cluster cluster = small_cluster();
  cluster.nodes = 2;
  cluster.devices_per_node = 1;
  OtherDevices others{1, 1, cluster.device, {}};
  others.device.name = "other-core";
  others.device.memory = Bytes(std::int64_t{1} << 30);
  others.device.peak_fp32 = FlopsPerSecond(50e9);
  cluster.other_devices.push_back(others);
  return cluster;
}

TEST(Evaluate, EachStageHasTheMemoryOfItsDevicesAndThePeakIsTheirMean) {
  const Target both = nano_target(2, two_kinds());
  const Evaluation piped = evaluate(both, parse_strategy("pp=2"));
  EXPECT_EQ(piped.prediction.stages[0].capacity, Bytes(std::int64_t{4} << 30));
  EXPECT_EQ(piped.prediction.stages[1].capacity, Bytes(std::int64_t{1} << 30));
  EXPECT_DOUBLE_EQ(piped.prediction.peak_flops.value(), 75e9);
  EXPECT_TRUE(states(piped.prediction.peak_source,
                     {"mean", "1 x test-core fp32", "1 x other-core fp32", "chosen for tests"}));
  // Replicas of a stage on both: the smaller decides.
  const Evaluation wide = evaluate(both, parse_strategy("dp=2"));
  EXPECT_EQ(wide.prediction.stages[0].capacity, Bytes(std::int64_t{1} << 30));
  const Bytes room = Bytes(std::int64_t{1} << 30) - arena_of(wide);
  EXPECT_TRUE(nano_fits(two_kinds(), parse_strategy("dp=2"), room));
  EXPECT_FALSE(nano_fits(two_kinds(), parse_strategy("dp=2"), room + Bytes(1)));
  // One device alone is the cluster's own.
  const Evaluation one = evaluate(nano_target(1, two_kinds()), Strategy());
  EXPECT_DOUBLE_EQ(one.prediction.peak_flops.value(), 100e9);
}

TEST(Evaluate, APeakThatAnotherDeviceLacksIsNamed) {
  Cluster cluster = two_kinds();
  cluster.other_devices[0].device.peak_fp32.reset();
  cluster.other_devices[0].device.peak_fp16 = FlopsPerSecond(1e12);
  EXPECT_NO_THROW(evaluate(nano_target(1, cluster), Strategy()));
  try {
    evaluate(nano_target(2, cluster), parse_strategy("dp=2"));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"test-cpu", "/other_devices/0/device/peak", "fp16", "fp32"}));
  }
}

TEST(Evaluate, UnfoldedPredictsTheSame) {
  const Strategy strategy = parse_strategy("dp=2,micro_batch=2");
  const Evaluation folded = evaluate(nano_target(2), strategy, Folding::folded);
  const Evaluation unfolded = evaluate(nano_target(2), strategy, Folding::unfolded);
  EXPECT_EQ(folded.prediction.step_time, unfolded.prediction.step_time);
  EXPECT_EQ(unfolded.timeline.memory.size(), 2u);
}

TEST(Evaluate, TooManyRanksAreNotSimulatedUnfolded) {
  // 8 micro-batches of 4 layers, embedding and head, on each of 32768 ranks.
  const std::int64_t ranks = 1 << 15;
  Target target = nano_target(ranks);
  target.job.global_batch = 8 * ranks;
  try {
    evaluate(target, parse_strategy("dp=32768,micro_batch=1"), Folding::unfolded);
    ADD_FAILURE() << "every rank is simulated";
  } catch (const InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("1572864 passes, at most 1048576"), std::string::npos)
        << error.what();
  }
}

TEST(Evaluate, EndlessStepsAreRefusedWithTheBytesWhereTheyDoNotFit) {
  Cluster cluster = small_cluster();
  cluster.device.peak_fp32 = FlopsPerSecond(100);  // 81 days
  const auto refusal = [&] {
    try {
      evaluate(nano_target(1, cluster), Strategy());
    } catch (const InfeasibleError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), "one step would take longer than 10 days");
  cluster.device.memory = Bytes(1000);
  EXPECT_NE(refusal().find("nor does it fit"), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("and has 1000 B (1000 bytes)"), std::string::npos) << refusal();
}

TEST(Evaluate, ANeededPeakRateMustBeStated) {
  Cluster cluster = small_cluster();
  cluster.device.peak_fp32.reset();
  cluster.device.peak_bf16 = FlopsPerSecond(1e12);
  EXPECT_THROW(evaluate(nano_target(1, cluster), Strategy()), InputError);
}

}  // namespace
}  // namespace plimsoll
