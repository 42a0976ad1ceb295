// The checker: values at the border of each rule, on both sides, and each condition of a rule by
// itself.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/framework/step_memory.h"
#include "plan/check_rules.h"
#include "plan/filling.h"
#include "tests/plan/checked_plan.h"

namespace plimsoll {
namespace {

TEST(CheckBorders, NumbersAreEqualUpToARelativeError) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(nearly_equal(0, 0));
  EXPECT_TRUE(nearly_equal(1e12, 1e12 + 500));
  EXPECT_FALSE(nearly_equal(1e12, 1e12 + 2000));
  EXPECT_TRUE(nearly_equal(-1e12, -1e12 - 500));
  EXPECT_FALSE(nearly_equal(1, -1));
  EXPECT_FALSE(nearly_equal(0, 1e-12));  // relative to the larger one
  EXPECT_FALSE(nearly_equal(kInfinite, kInfinite));
  EXPECT_FALSE(nearly_equal(kInfinite, 1));
  EXPECT_FALSE(nearly_equal(1, kInfinite));
}

TEST(CheckBorders, DegreesMultiplyToTheDevices) {
  EXPECT_TRUE(breaks("devices-product", [](Plan& p) { p.strategy.cp = 0; }));
  EXPECT_TRUE(breaks("devices-product", [](Plan& p) { p.strategy.dp = p.strategy.mp = -1; }));
  EXPECT_TRUE(breaks("devices-product", [](Plan& p) { p.strategy.dp = 3; }));
  EXPECT_TRUE(breaks("devices-product", [](Plan& p) { p.strategy.dp = 4; }));
  EXPECT_FALSE(breaks("devices-product", [](Plan& p) { std::swap(p.strategy.mp, p.strategy.dp); }));
}

TEST(CheckBorders, TheBatchIsDividedStepByStep) {
  const std::int64_t batch = valid_plan().job.global_batch;
  // It is a multiple of each degree, not of their product.
  EXPECT_TRUE(breaks("batch-divides", [&](Plan& p) { p.strategy.micro_batch = batch; }));
  EXPECT_TRUE(breaks("batch-divides", [](Plan& p) { p.strategy.micro_batch = 0; }));
  EXPECT_FALSE(breaks("batch-divides", [&](Plan& p) {
    p.strategy.micro_batch = batch / p.strategy.dp / p.strategy.sharding_degree;
  }));
}

TEST(CheckBorders, ASplitHasAllChunksAndAllLayers) {
  const std::int64_t layers = total_layers(valid_plan().job);
  const auto split = [&](std::vector<std::int64_t> parts, std::int64_t virtual_stages) {
    return breaks("layers-cover", [&](Plan& p) {
      p.strategy.pipeline.layer_split = parts;
      p.strategy.pipeline.virtual_stages = virtual_stages;
    });
  };
  EXPECT_FALSE(split({1, layers - 1}, 1));
  EXPECT_TRUE(split({1, layers}, 1));
  EXPECT_TRUE(split({1, layers - 2}, 1));
  EXPECT_TRUE(split({layers}, 1));
  EXPECT_TRUE(split({1, 1, layers - 2}, 1));
  EXPECT_FALSE(split({1, 1, 1, layers - 3}, 2));
  EXPECT_TRUE(split({1, layers - 1}, 2));
}

TEST(CheckBorders, AShardingStageNeedsRanksToShardOver) {
  const auto stage = [](std::int64_t stage, std::int64_t degree, std::int64_t cp) {
    return breaks("sharding-stage", [&](Plan& p) {
      p.strategy.dp = 1;
      p.strategy.sharding_stage = stage;
      p.strategy.sharding_degree = degree;
      p.strategy.cp = cp;
    });
  };
  EXPECT_TRUE(stage(-1, 2, 1));
  EXPECT_TRUE(stage(0, 2, 1));
  for (const std::int64_t legal : {1, 2, 3}) EXPECT_FALSE(stage(legal, 2, 1)) << legal;
  EXPECT_TRUE(stage(4, 2, 1));
  EXPECT_FALSE(stage(0, 1, 1));
  EXPECT_TRUE(stage(1, 1, 1));
  EXPECT_FALSE(stage(0, 1, 2));  // cp alone
  EXPECT_FALSE(stage(3, 1, 2));
  EXPECT_TRUE(stage(4, 1, 2));
  EXPECT_TRUE(stage(-1, 1, 2));
  EXPECT_TRUE(stage(0, 2, 2));
}

TEST(CheckBorders, AFrameworkMayRefuseALegalStrategy) {
  EXPECT_TRUE(breaks("strategy-legal", [](Plan& p) {
    p.strategy.dp = 1;
    p.strategy.sharding_degree = 2;
    p.strategy.sharding_stage = 1;
    p.framework.can.ranks.sharding_stages = p.framework.can.ranks.pipeline_sharding_stages = {};
  }));
}

TEST(CheckBorders, DigestsAreHexadecimal) {
  const std::string hex(64, 'a');
  const auto cluster = [](const std::string& digest) {
    return breaks("input-digests", [&](Plan& p) { p.cluster_digest = digest; });
  };
  EXPECT_FALSE(cluster(hex));
  EXPECT_TRUE(cluster(hex.substr(1)));
  EXPECT_TRUE(cluster(hex + "a"));
  EXPECT_TRUE(cluster(hex.substr(1) + "g"));
  EXPECT_TRUE(cluster(""));
  EXPECT_TRUE(breaks("input-digests", [&](Plan& p) { p.calibration_digest = "b"; }));
  EXPECT_FALSE(breaks("input-digests", [&](Plan& p) { p.calibration_digest = hex; }));
  EXPECT_FALSE(breaks("input-digests",
                      [&](Plan& p) { p.calibration_digest = p.calibration_rest_digest = hex; }));
}

TEST(CheckBorders, ACalibrationMayMeasureWhatAPresetStates) {
  const auto dispatch = [](bool calibrated) {
    return breaks("framework-known", [&](Plan& p) {
      if (calibrated) p.calibration_digest = p.cluster_digest;
      p.framework.host.dispatch.op = p.framework.host.dispatch.op + Seconds(1e-6);
    });
  };
  EXPECT_TRUE(dispatch(false));
  EXPECT_FALSE(dispatch(true));
  EXPECT_TRUE(breaks("framework-known", [](Plan& p) {
    p.calibration_digest = p.cluster_digest;
    p.framework.kernels.products.add_gradients = !p.framework.kernels.products.add_gradients;
  }));
}

TEST(CheckBorders, DevicesDecideWhichKernelsExist) {
  EXPECT_FALSE(breaks("framework-known", [](Plan& p) {
    p.framework = framework_by_name("megatron-lm");
    p.framework.kernels.attention.flash = p.framework.kernels.attention.by_parts = false;
    p.framework.kernels.products.untransposed_fp8 = true;
  }));
  EXPECT_TRUE(breaks("framework-known", [](Plan& p) {
    p.framework = framework_by_name("megatron-lm-2021");
    p.framework.kernels.attention.flash = true;
  }));
}

TEST(CheckBorders, FrameworksSayOnWhatTheyRun) {
  const auto wrong = [](RunsOn runs_on, DeviceKind kind) {
    return breaks("framework-on-device", [&](Plan& p) {
      p.framework.facts.runs_on = runs_on;
      p.device_kind = kind;
    });
  };
  EXPECT_FALSE(wrong(RunsOn::cpu_cores, DeviceKind::cpu_core));
  EXPECT_TRUE(wrong(RunsOn::cpu_cores, DeviceKind::gpu));
  EXPECT_TRUE(wrong(RunsOn::gpus, DeviceKind::cpu_core));
  EXPECT_FALSE(wrong(RunsOn::gpus, DeviceKind::gpu));
  EXPECT_FALSE(wrong(RunsOn::nothing, DeviceKind::gpu));
}

TEST(CheckBorders, StagesStandInTheirPlaces) {
  EXPECT_TRUE(breaks("stage-count", [](Plan& p) { p.prediction.stages.pop_back(); }));
  EXPECT_TRUE(breaks("stage-count", [](Plan& p) { p.prediction.stages[1].stage = 0; }));
  EXPECT_TRUE(breaks("stage-count", [](Plan& p) { p.program_digests.pop_back(); }));
  // Rules about stages look at those that are there.
  EXPECT_FALSE(breaks("peak-bytes", [](Plan& p) { p.prediction.stages.pop_back(); }));
}

TEST(CheckBorders, WhatAnArenaHoldsIsStatedTwice) {
  EXPECT_TRUE(
      breaks("reserved-bytes", [](Plan& p) { p.prediction.stages[0].reserved += Bytes(64); }));
  EXPECT_FALSE(breaks("reserved-bytes", [](Plan& p) {  // an allocator of blocks may hold less
    p.framework.memory.allocator = paddle_allocator();
    p.prediction.stages[0].allocated -= Bytes(64);
  }));
  EXPECT_FALSE(breaks("reserved-bytes", [](Plan& p) {
    p.framework.memory.allocator = paddle_allocator();
    for (StagePrediction& stage : p.prediction.stages) stage.reserved = stage.allocated;
  }));
}

/// The bytes that a class of the valid plan keeps between steps.
Bytes kept(std::size_t index) {
  const Plan& plan = valid_plan();
  const std::vector<Program> programs = lower({plan.job, plan.strategy, plan.framework});
  Bytes sum;
  for (const Buffer& buffer : programs[index].buffers) {
    if (buffer.persistent && !buffer.on_host && !made_in_steps(plan.framework, buffer.role, false))
      sum += buffer.bytes;
  }
  return sum;
}

TEST(CheckBorders, AnAllocatorHoldsWhatLivesBetweenSteps) {
  const Bytes least = kept(1);
  ASSERT_GT(least, Bytes());
  const auto allocated = [](Bytes bytes) {
    return breaks("allocated-bytes", [&](Plan& p) { p.prediction.stages[1].allocated = bytes; });
  };
  EXPECT_FALSE(allocated(least));
  EXPECT_TRUE(allocated(least - Bytes(1)));
}

TEST(CheckBorders, DevicesOfSeveralKindsDifferInMemory) {
  const auto wider = [](bool mixed) {
    return breaks("one-capacity", [&](Plan& p) {
      p.mixed_devices = mixed;
      p.prediction.stages[1].capacity += Bytes(1);
    });
  };
  EXPECT_TRUE(wider(false));
  EXPECT_FALSE(wider(true));
}

TEST(CheckBorders, AStepTakesAFiniteTime) {
  const auto step = [](double seconds) {
    return broken_by([&](Plan& p) { p.prediction.step_time = Seconds(seconds); });
  };
  EXPECT_TRUE(step(std::numeric_limits<double>::infinity()).contains("step-time-positive"));
  EXPECT_TRUE(step(-1).contains("step-time-positive"));
  EXPECT_FALSE(step(1).contains("step-time-positive"));
  EXPECT_FALSE(step(-1).contains("mfu-formula"));
  EXPECT_FALSE(step(-1).contains("hfu-formula"));
  for (const double peak : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(breaks("mfu-formula", [&](Plan& p) {
      p.prediction.peak_flops = FlopsPerSecond(peak);
    })) << peak;
  }
}

TEST(CheckBorders, MfuIsAShare) {
  const auto mfu = [](double value) {
    return breaks("mfu-range", [&](Plan& p) { p.prediction.mfu = value; });
  };
  EXPECT_TRUE(mfu(0));
  EXPECT_FALSE(mfu(1e-9));
  EXPECT_FALSE(mfu(1));
  EXPECT_TRUE(mfu(1.001));
}

TEST(CheckBorders, PartsOfAStepAddUpToPicoseconds) {
  const double step = valid_plan().prediction.step_time.value();
  const auto forward = [](double more) {
    return breaks("breakdown-sums",
                  [&](Plan& p) { p.prediction.breakdown.forward += Seconds(more); });
  };
  EXPECT_FALSE(forward(5e-12));
  EXPECT_TRUE(forward(3e-11 + 3e-9 * step));
  EXPECT_TRUE(forward(-3e-11 - 3e-9 * step));
  const auto dispatch = [](double seconds) {
    return breaks("breakdown-not-negative",
                  [&](Plan& p) { p.prediction.breakdown.dispatch = Seconds(seconds); });
  };
  EXPECT_FALSE(dispatch(-5e-12));
  EXPECT_TRUE(dispatch(-3e-11 - 3e-9 * step));
  EXPECT_TRUE(dispatch(std::numeric_limits<double>::quiet_NaN()));
}

TEST(CheckBorders, SharesAreOfOneWhole) {
  const auto shares = [](std::array<double, kProvenances> all, Provenance worst) {
    return breaks("provenance-shares", [&](Plan& p) {
      p.prediction.share_by_provenance = all;
      p.prediction.worst = worst;
    });
  };
  EXPECT_FALSE(shares({0.5, 0.5, 0, 0, 0, 0}, Provenance(1)));
  EXPECT_FALSE(shares({0.5, 0.5, 0, 0, 0, 0}, Provenance(2)));
  EXPECT_TRUE(shares({0.5, 0.5, 0, 0, 0, 0}, Provenance(0)));
  EXPECT_TRUE(shares({1.5, -0.5, 0, 0, 0, 0}, Provenance(1)));
  EXPECT_TRUE(shares({0.5, 0.6, 0, 0, 0, 0}, Provenance(1)));
  EXPECT_TRUE(shares({0.5, 0.4, 0, 0, 0, 0}, Provenance(1)));
}

TEST(CheckBorders, ExtrapolatedOpsHaveNamesAndShares) {
  const auto named = [](double share, std::vector<OutsideRange> ops) {
    return breaks("extrapolated-named", [&](Plan& p) {
      p.prediction.share_by_provenance[std::size_t(Provenance::extrapolated)] = share;
      p.prediction.extrapolated = ops;
    });
  };
  EXPECT_FALSE(named(0.5, {{"a", 0.3}, {"b", 0.2}}));
  EXPECT_FALSE(named(0.5, {{"a", 0.3}, {"b", 0.3}}));
  EXPECT_TRUE(named(0.5, {{"a", 0.2}, {"b", 0.3}}));
  EXPECT_TRUE(named(0.5, {{"a", 0.5}, {"b", 0.2}, {"c", 0.3}}));
  EXPECT_TRUE(named(0.5, {}));
  EXPECT_FALSE(named(0, {}));
  EXPECT_TRUE(named(0.5, {{"", 0.3}}));
  EXPECT_TRUE(named(0.5, {{"a", 0}}));
  EXPECT_TRUE(named(0.5, {{"a", -0.1}}));
}

TEST(CheckBorders, OnlyCoresAreShared) {
  EXPECT_FALSE(breaks("timing-claim", [](Plan& p) { p.oversubscribed = true; }));
  EXPECT_FALSE(breaks("timing-claim", [](Plan& p) { p.device_kind = DeviceKind::gpu; }));
}

}  // namespace
}  // namespace plimsoll
