// How many ops the update takes in each of its forms (seeds 3.5 and 7.G): counted in Programs and
// in what ran, and what that costs where every op costs host time.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "passes/cut/cut_blocks.h"
#include "passes/layout/plan_memory.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"
#include "simulator/simulate.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

/// A framework without a kernel for the squared norm, as the published list has it.
Framework framework() {
  Framework made = bundled_framework();
  made.kernels.squared_norm = false;
  return made;
}

/// All parameters alike: biases and norms decay as little as the rest.
Job alike(Job job) {
  job.optimizer.weight_decay = 0;
  return job;
}

Strategy strategy_of(const std::string& flatten, const Job& job) {
  Strategy strategy = parse_strategy("flatten=" + flatten);
  strategy.micro_batch = job.global_batch;
  return strategy;
}

/// A gpt of one rank with exactly `tensors` parameters: those that its layers leave to it are
/// vectors that nothing reads.
Program program_with(std::int64_t tensors, const Job& job, const std::string& flatten) {
  const Strategy strategy = strategy_of(flatten, job);
  const Framework runs_on = framework();
  const PassContext context{job, strategy, runs_on};
  Graph graph = build_forward(job, strategy.micro_batch);
  apply_parameter_groups(graph, job);
  std::int64_t present = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::parameter && !tensor.tied_to)
      present += graph.at(*tensor.block).count;
  }
  for (; present < tensors; ++present) {
    Tensor vector;
    vector.name = "head.vector" + std::to_string(present);
    vector.role = TensorRole::parameter;
    vector.shape = {4};
    vector.block = BlockId(graph.blocks.size() - 1);
    graph.add(std::move(vector));
  }
  for (const GraphPass& pass : graph_passes()) pass.run(graph, context);
  const std::int64_t alignment = arena_alignment(job, strategy);
  const StageLayout stages = stage_layout(job, strategy, block_shapes(graph));
  Program program = schedule_stage(graph, cut_blocks(graph, alignment), context, stages, 0).front();
  plan_memory(program);
  return program;
}

/// Ops of the optimizer phase after scalars and gradients are zeroed.
std::int64_t update_ops(const Program& program) {
  std::int64_t count = 0;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (routine.phase == Phase::optimizer && routine.name != "begin_step")
      count += std::int64_t(routine.ops.size());
  }
  return count;
}

Job wide_gpt() {
  Job job = alike(nano_job());
  job.layers = 24;
  job.hidden = 8;
  job.heads = job.kv_heads = 2;
  job.ffn_hidden = 16;
  job.sequence = 4;
  job.global_batch = 1;
  job.tied_embeddings = true;  // 12 tensors in each layer and 4 around them
  return job;
}

TEST(SeedsG, G_ThreeHundredTensorsTake1205OpsOr11) {
  EXPECT_EQ(update_ops(program_with(300, wide_gpt(), "none")), 4 * 300 + 5);
  EXPECT_EQ(update_ops(program_with(300, wide_gpt(), "coalesced")), 11);
  EXPECT_EQ(update_ops(program_with(300, wide_gpt(), "fused")), 3);
}

TEST(SeedsG, G_WithTheDispatchOfThePublishedDeviceThePhaseFalls121Point8ms) {
  Cluster cluster;  // so fast that only the host takes time
  cluster.name = "host-bound";
  cluster.nodes = cluster.devices_per_node = 1;
  cluster.device = {"npu",
                    DeviceKind::gpu,
                    Bytes(std::int64_t{32} << 30),
                    BytesPerSecond(1e15),
                    FlopsPerSecond(1e18),
                    std::nullopt,
                    std::nullopt};
  cluster.levels = {{"memory", 0, BytesPerSecond(1e15), Seconds(1e-9)}};
  cluster.source = "chosen for tests, not measured";
  Framework dispatches = framework();
  dispatches.host.dispatch.op = Seconds(102e-6);
  const CostModel costs(cluster, std::nullopt, dispatches);
  const auto step_time = [&](const char* flatten) {
    return simulate(std::vector<Program>{program_with(300, wide_gpt(), flatten)}, costs)
        .step_time.value();
  };
  EXPECT_NEAR(step_time("none") - step_time("coalesced"), 0.1218, 0.0001);
}

TEST(SeedsG, G_WhatIsNotClippedSplitsGroupsInsteadOfDisablingThem) {
  Job job = wide_gpt();
  job.optimizer.groups = {{"bias", {}, false, {}}};
  // Each group has 2 coalesce ops and its update. The clipped group also has square, sum and
  // scaling. There are the sum over groups and 4 scalar ops. The unflattened update has 4 n + 5
  // ops.
  EXPECT_EQ(update_ops(program_with(292, job, "coalesced")), 2 * 3 + 3 + 5);
  // Without flattening only clipped tensors have norms and scaling: 4 of the 12 in each layer are
  // biases of linear layers.
  EXPECT_EQ(update_ops(program_with(292, job, "none")), 4 * 292 + 5 - 3 * 4 * 24);
  job.optimizer.groups.push_back({"norm", {}, {}, 0.5});
  EXPECT_EQ(update_ops(program_with(292, job, "coalesced")), 2 * 6 + 3 + 5);
}

/// Kinds of the update's ops in order, runs of one kind written as KIND xN, collectives with their
/// group.
std::vector<std::string> update_list(const Program& program) {
  std::vector<std::pair<std::string, int>> runs;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (routine.phase != Phase::optimizer || routine.name == "begin_step") continue;
    for (const Op& op : routine.ops) {
      std::string kind(to_text(op.kind));
      if (const auto* collective = std::get_if<CollectiveParams>(&op.params))
        kind +=
            "." + std::string(to_text(collective->reduction)) + "." + to_text(collective->group);
      if (runs.empty() || runs.back().first != kind) runs.push_back({kind, 0});
      ++runs.back().second;
    }
  }
  std::vector<std::string> list;
  for (const auto& [kind, count] : runs)
    list.push_back(count == 1 ? kind : kind + " x" + std::to_string(count));
  return list;
}

// The published order of seeds A4, here for all tensors of a stage: nothing is owned by others.
TEST(UpdateList, OfTheUnfusedFormWithLossScalingAndClippingIsThePublishedOne) {
  Job job = nano_job();
  job.loss_scale = LossScale{};
  const Strategy strategy = nano_strategy("mp=2,pp=2,flatten=none", 2, Recompute::none);
  const auto programs = nano_programs(strategy, job);
  const std::string first = " x26", last = " x27";  // two tables or a norm and a table, 2 layers
  for (const std::string& n : {first, last}) {
    const std::vector<std::string> expected = {
        "check_finite",      "cast",        "all_reduce.max.mp",
        "all_reduce.max.pp", "cast",        "update_loss_scale",
        "squared_norm" + n,  "reduce_sum",  "all_reduce.sum.mp",
        "all_reduce.sum.pp", "square_root", "fill",
        "maximum",           "divide",      "scale" + n,
        "adamw" + n};
    EXPECT_EQ(update_list(programs[n == first ? 0 : 1]), expected);
  }
  Strategy fused = strategy;
  fused.optimizer.flatten = Flatten::fused;
  const std::vector<std::string> few = {"squared_norm", "all_reduce.sum.mp,pp", "clip_factor",
                                        "adamw"};
  EXPECT_EQ(update_list(nano_programs(fused, job)[0]), few);
}

/// Returns the number of ops that a traced step ran, without begin_step and the zeroing of
/// gradients.
std::int64_t executed_ops(const std::string& flatten, const Job& job) {
  const Framework runs_on = framework();
  const Strategy strategy = strategy_of(flatten, job);
  const std::vector<Program> programs = lower({job, strategy, runs_on});
  TrainOptions options;
  options.steps = 2;
  options.warm_up_steps = 0;
  const Measured measured = train_nano(programs, options, job).measured;
  const auto& intervals = measured.timeline.intervals;
  return std::count_if(intervals.begin(), intervals.end(), [](const Interval& interval) {
    return interval.phase == Phase::optimizer && interval.routine != "begin_step";
  });
}

TEST(SeedsG, G_ExecutedOpsFollowTheClosedForm) {
  const Job job = alike(nano_job());
  const std::int64_t n = 12 * job.layers + 5;
  EXPECT_EQ(executed_ops("none", job), 4 * n + 5);
  EXPECT_EQ(executed_ops("coalesced", job), 11);
  EXPECT_EQ(executed_ops("fused", job), 3);
}

}  // namespace
}  // namespace plimsoll
