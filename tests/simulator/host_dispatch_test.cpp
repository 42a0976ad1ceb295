// The host takes a time for each op of lowered routines.
#include "simulator/costs/host_dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "hand_programs.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMicrosecond = 1'000'000;  // ps

Framework framework() {
  Framework framework = bundled_framework();
  framework.host.dispatch.op = Seconds(10e-6);
  framework.host.dispatch.ops_per_kernel = 3;
  framework.host.dispatch.gather = Seconds(1000e-6);
  framework.host.dispatch.gradient = Seconds(100e-6);
  return framework;
}

std::vector<Program> lowered_by(const std::string& strategy) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.precision = DType::bf16;
  return lower({job, parse_strategy(strategy), framework()}, {}, Proof::structure);
}

const Routine& routine_of(const Program& program, const std::string& name) {
  const auto found = std::find_if(program.routines.begin(), program.routines.end(),
                                  [&](const Routine& routine) { return routine.name == name; });
  EXPECT_NE(found, program.routines.end()) << name;
  return *found;
}

/// Ops by their time in microseconds.
std::map<std::int64_t, std::vector<OpKind>> by_time(const Program& program, const Routine& routine,
                                                    const CostModel& costs) {
  std::map<std::int64_t, std::vector<OpKind>> result;
  const std::vector<Picoseconds> times = host_dispatch(program, routine, costs);
  EXPECT_EQ(times.size(), routine.ops.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    result[times[i].count() / kMicrosecond].push_back(routine.ops[i].kind);
  }
  return result;
}

CostModel gpu() { return {hand_cluster(DeviceKind::gpu, 4), std::nullopt, framework()}; }

TEST(HostDispatch, KernelsAreSeveralOpsCastsOfParametersOne) {
  const auto programs = lowered_by("dp=2,micro_batch=2,cast_placement=every_use");
  const auto times = by_time(programs[0], routine_of(programs[0], "layer.forward"), gpu());
  ASSERT_EQ(times.size(), 2u);
  // Four linear layers with biases; norms are read as they are or cast as the model says.
  for (const OpKind kind : times.at(10)) EXPECT_EQ(kind, OpKind::cast);
  EXPECT_GE(times.at(10).size(), 8u);
  EXPECT_EQ(std::count(times.at(30).begin(), times.at(30).end(), OpKind::matmul), 6);
  EXPECT_EQ(std::count(times.at(30).begin(), times.at(30).end(), OpKind::cast), 0);
}

// Scores of a number of heads that the fused kernel does not take need four ops more.
TEST(HostDispatch, ASoftmaxByPartsIsSeveralOps) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.precision = DType::f16;
  const Framework megatron = framework_by_name("megatron-lm-2021");
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, megatron);
  const auto softmax = [&](std::int64_t heads) {
    job.heads = job.kv_heads = heads;
    const auto programs = lower({job, Strategy(), megatron}, {}, Proof::structure);
    const Routine& forward = routine_of(programs[0], "layer.forward");
    const auto op = std::find_if(forward.ops.begin(), forward.ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::softmax; });
    return host_dispatch(programs[0], forward, costs).at(op - forward.ops.begin());
  };
  EXPECT_EQ(softmax(2).count(), 5 * softmax(4).count());
}

TEST(HostDispatch, OpsOfBackwardCostTheirShareAndRepeatedOnesAsInForward) {
  Framework eager = framework();
  eager.host.dispatch.gradient = {};
  eager.host.dispatch.backward = 0.5;
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, eager);
  const auto programs = lowered_by("dp=2,micro_batch=2,recompute=full");
  const Routine& backward = routine_of(programs[0], "layer.backward");
  const std::vector<Picoseconds> times = host_dispatch(programs[0], backward, costs);
  std::size_t repeated = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Op& op = backward.ops[i];
    const bool forward = op.phase == Phase::forward || op.phase == Phase::recompute;
    const std::int64_t whole = (is_kernel(backward, op) ? 30 : 10) * kMicrosecond;
    EXPECT_EQ(times[i].count(), forward ? whole : whole / 2) << i;
    repeated += forward ? 1 : 0;
  }
  EXPECT_GT(repeated, 5u);
  EXPECT_LT(repeated, times.size() / 2);
}

// Attention over parts of a sequence is several ops, as many in backward as in forward.
TEST(HostDispatch, AttentionOverPartsIsSeveralOps) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.precision = DType::bf16;
  Framework megatron = framework_by_name("megatron-lm");
  megatron.host.dispatch.op = Seconds(10e-6);
  megatron.host.dispatch.ops_per_part = 3;
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, megatron);
  const auto attention = [&](const char* strategy, const char* routine, OpKind kind) {
    const auto programs = lower({job, parse_strategy(strategy), megatron}, {}, Proof::structure);
    std::vector<std::int64_t> found;
    for (const auto& [time, kinds] :
         by_time(programs[0], routine_of(programs[0], routine), costs)) {
      found.insert(found.end(), std::size_t(std::ranges::count(kinds, kind)), time);
    }
    return found;
  };
  using Times = std::vector<std::int64_t>;
  EXPECT_EQ(attention("cp=2", "layer.forward", OpKind::flash_attention), (Times{30, 30}));
  EXPECT_EQ(attention("cp=2", "layer.backward", OpKind::flash_attention_backward), (Times{30, 30}));
  EXPECT_EQ(attention("mp=1", "layer.forward", OpKind::flash_attention), Times{10});
  EXPECT_EQ(attention("mp=1", "layer.backward", OpKind::flash_attention_backward), Times{5});
  EXPECT_EQ(attention("cp=2,context_exchange=all_gather", "layer.forward", OpKind::flash_attention),
            Times{10})
      << "one op reads all keys";
}

TEST(HostDispatch, EachGradientCostsOnceWhenItIsComplete) {
  for (const std::string merge : {"direct", "tensor"}) {
    const auto programs = lowered_by("dp=2,micro_batch=2,gradient_merge=" + merge);
    const Routine& backward = routine_of(programs[0], "layer.backward");
    Picoseconds on_top;
    for (const auto& [time, kinds] : by_time(programs[0], backward, gpu())) {
      // 12 tensors of a layer: 10 or 30 us for the op, 100 us for each gradient that it completes.
      on_top += Picoseconds(time / 100 * 100 * kMicrosecond * std::int64_t(kinds.size()));
    }
    EXPECT_EQ(on_top.count(), 12 * 100 * kMicrosecond) << merge;
  }
}

TEST(HostDispatch, GathersInTheStepCostMore) {
  const auto programs =
      lowered_by("sharding_degree=2,sharding_stage=3,micro_batch=2,gather=module");
  std::size_t gathers = 0;
  for (const Routine& routine : programs[0].routines) {
    if (routine.ops.empty() || routine.ops[0].kind != OpKind::all_gather) continue;
    ++gathers;
    EXPECT_EQ(host_dispatch(programs[0], routine, gpu())[0].count(), 1010 * kMicrosecond);
  }
  EXPECT_GT(gathers, 0u);
}

TEST(HostDispatch, AnUpdateIssuesOpsForEachTensorOfTheRank) {
  const auto begin_time = [](const std::string& strategy, double ops) {
    Framework counted = framework();
    counted.host.dispatch.ops_per_tensor = ops;
    const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, counted);
    const auto programs = lowered_by(strategy);
    const Routine& routine = routine_of(programs[0], "begin_step");
    EXPECT_EQ(routine.ops[0].kind, OpKind::begin_step);
    return host_dispatch(programs[0], routine, costs)[0].count() / kMicrosecond;
  };
  const auto programs = lowered_by("micro_batch=2");
  const auto tensors = std::int64_t(programs[0].segments.size());
  EXPECT_EQ(begin_time("micro_batch=2", 0), 10);
  EXPECT_EQ(begin_time("micro_batch=2", 2), 10 + 20 * tensors);
  // Ranks that share the state update their share.
  EXPECT_EQ(begin_time("sharding_degree=4,sharding_stage=1,micro_batch=2", 2),
            10 + 20 * ((tensors + 3) / 4));
}

/// Returns the host time of all ops of a layer's forward or backward, in microseconds.
std::int64_t of_layer(const std::string& strategy, const std::string& routine, Graphs graphs) {
  Framework captures = framework();
  captures.host.dispatch.graphs = graphs;
  captures.host.dispatch.gradient = {};
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, captures);
  const auto programs = lowered_by(strategy);
  Picoseconds sum;
  for (const Picoseconds time : host_dispatch(programs[0], routine_of(programs[0], routine), costs))
    sum += time;
  return sum.count() / kMicrosecond;
}

TEST(HostDispatch, AGraphIsOneOpOfTheHost) {
  const std::string strategy = "mp=2,micro_batch=2";
  for (const std::string routine : {"layer.forward", "layer.backward"}) {
    const std::int64_t eager = of_layer(strategy, routine, Graphs::nothing);
    EXPECT_GT(eager, 200);
    EXPECT_EQ(of_layer(strategy, routine, Graphs::layers), 10) << routine;
    EXPECT_EQ(of_layer(strategy, routine, Graphs::step), 0) << routine;
    // A layer has its attention, and its MLP as well.
    const std::int64_t part = of_layer(strategy, routine, Graphs::attention);
    EXPECT_GT(part, 100) << routine;
    EXPECT_LT(part, eager - 100) << routine;
  }
}

/// Returns the host time of each op of a layer with 128 experts on eight ranks of ep, by kind, in
/// microseconds.
std::map<OpKind, std::vector<std::int64_t>> of_experts(const Framework& framework,
                                                       const std::string& name) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/qwen3-30b-a3b.json");
  job.layers = 2;
  const CostModel costs(hand_cluster(DeviceKind::gpu, 8), std::nullopt, framework);
  const Strategy strategy = parse_strategy("sharding_degree=8,ep=8,micro_batch=1");
  const auto programs = lower({job, strategy, framework}, {}, Proof::structure);
  const Routine& routine = routine_of(programs[0], name);
  const std::vector<Picoseconds> times = host_dispatch(programs[0], routine, costs);
  std::map<OpKind, std::vector<std::int64_t>> result;
  for (std::size_t i = 0; i < times.size(); ++i)
    result[routine.ops[i].kind].push_back(times[i].count() / kMicrosecond);
  return result;
}

TEST(HostDispatch, EachMoreExpertsKernelIsIssued) {
  Framework together = framework_by_name("megatron-lm"), apart = together;
  together.kernels.products.experts_apart = false;
  apart.kernels.products.experts_apart = true;
  std::size_t products = 0;
  for (const std::string routine : {"expert_layer.forward", "expert_layer.backward"}) {
    const auto one = of_experts(together, routine);
    for (const auto& [kind, times] : of_experts(apart, routine)) {
      const bool multiplies = kind == OpKind::grouped_matmul ||
                              kind == OpKind::grouped_matmul_backward ||
                              kind == OpKind::grouped_weight_gradient;
      products += multiplies ? times.size() : 0;
      // 16 experts of a rank, 28.3 us for each but one.
      for (std::size_t i = 0; i < times.size(); ++i)
        EXPECT_EQ(times[i] - one.at(kind)[i], multiplies ? 424 : 0) << to_text(kind);
    }
  }
  EXPECT_EQ(products, 6u);
}

// The second product's bias of GPT-OSS is added by Megatron-LM for one expert after the other.
TEST(HostDispatch, EachMoreExpertsBiasIsAdded) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/models/presets/jobs/gpt-oss-120b.json");
  job.layers = 2;
  const Strategy strategy = parse_strategy("sharding_degree=8,ep=8,micro_batch=1");
  std::map<OpKind, std::int64_t> more;
  for (const bool apart : {false, true}) {
    Framework framework = framework_by_name("megatron-lm");
    framework.kernels.products.experts_apart = apart;
    const CostModel costs(hand_cluster(DeviceKind::gpu, 8), std::nullopt, framework);
    const auto programs = lower({job, strategy, framework}, {}, Proof::structure);
    for (const Routine& routine : programs[0].routines) {
      const std::vector<Picoseconds> times = host_dispatch(programs[0], routine, costs);
      for (std::size_t i = 0; i < times.size(); ++i)
        more[routine.ops[i].kind] += (apart ? 1 : -1) * times[i].count() / kMicrosecond;
    }
  }
  const std::int64_t added = more[OpKind::grouped_bias_add];
  EXPECT_GT(added, 0);
  EXPECT_EQ(added % (15 * 54), 0) << "16 experts of a rank; four ops of 13.5 us for each but one";
  EXPECT_EQ(more[OpKind::grouped_bias_backward], added / 2);
  EXPECT_EQ(more[OpKind::flash_attention], 0);
}

TEST(HostDispatch, EachExpertsWeightsAreTensorsOfTheUpdate) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.dispatch.ops_per_tensor = 1;
  const auto of_update = [&](bool apart) {
    framework.kernels.products.experts_apart = apart;
    return of_experts(framework, "begin_step").at(OpKind::begin_step).at(0);
  };
  // Two layers with two weights for 16 experts; with ep=8 no other rank has them.
  EXPECT_EQ(of_update(true) - of_update(false), 2 * 2 * 15 * 100);
}

TEST(HostDispatch, ARoutersGraphHasItsNormAndEndsWhereTokensAreSent) {
  Framework framework = framework_by_name("megatron-lm");
  const auto eager = of_experts(framework, "expert_layer.forward");
  const auto eager_backward = of_experts(framework, "expert_layer.backward");
  framework.host.dispatch.graphs = Graphs::router;
  const auto forward = of_experts(framework, "expert_layer.forward");
  for (const OpKind kind : {OpKind::route, OpKind::place_choices, OpKind::balance_experts})
    EXPECT_EQ(forward.at(kind), std::vector<std::int64_t>(1, 0)) << to_text(kind);
  for (const OpKind kind : {OpKind::dispatch_rows, OpKind::flash_attention, OpKind::exchange_rows})
    EXPECT_EQ(forward.at(kind), eager.at(kind)) << to_text(kind);
  EXPECT_EQ(forward.at(OpKind::rms_norm), eager.at(OpKind::rms_norm)) << "the last replays it";
  const auto backward = of_experts(framework, "expert_layer.backward");
  EXPECT_EQ(backward.at(OpKind::route_backward), std::vector<std::int64_t>(1, 0));
  EXPECT_EQ(backward.at(OpKind::flash_attention_backward),
            eager_backward.at(OpKind::flash_attention_backward));
  EXPECT_EQ(backward.at(OpKind::rms_norm_backward).front(), 0);
  EXPECT_EQ(backward.at(OpKind::rms_norm_backward).back(),
            eager_backward.at(OpKind::rms_norm_backward).back());
  // A dense layer has no router.
  EXPECT_EQ(of_layer("micro_batch=2", "layer.forward", Graphs::router),
            of_layer("micro_batch=2", "layer.forward", Graphs::nothing));
}

TEST(HostDispatch, ASlowerCoreTakesLongerForAllThatTheFrameworkStates) {
  Cluster cluster = hand_cluster(DeviceKind::gpu, 4);
  cluster.host = Host{.core_speed = 0.5};
  const CostModel slower(cluster, std::nullopt, framework());
  const auto program = lowered_by("sharding_degree=2,sharding_stage=3,micro_batch=2")[0];
  for (const Routine& routine : program.routines) {
    const auto times = host_dispatch(program, routine, gpu()),
               twice = host_dispatch(program, routine, slower);
    for (std::size_t i = 0; i < times.size(); ++i)
      EXPECT_EQ(twice[i].count(), times[i].count() == 1 ? 1 : 2 * times[i].count());
  }
  EXPECT_EQ(slower.on_host(Seconds(1)).value(), 2);
}

TEST(HostDispatch, WhatWasMeasuredIsAllThatCounts) {
  Calibration calibration;
  calibration.dispatch_op = {Seconds(5e-6), Seconds(0), 7, false};
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), calibration, framework());
  const auto programs = lowered_by("sharding_degree=2,sharding_stage=3,micro_batch=2");
  for (const Routine& routine : programs[0].routines) {
    for (const Picoseconds time : host_dispatch(programs[0], routine, costs)) {
      EXPECT_EQ(time.count(), 5 * kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace plimsoll
