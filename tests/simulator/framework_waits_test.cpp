// Frameworks make the host and the compute stream wait, here on a hand-made pipeline.
#include "simulator/ranks/framework_waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "hand_programs.h"
#include "passes/pipeline.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<std::uint32_t>;

/// The first of two stages with one layer each and two micro-batches, in issue order: forward (0
/// and its all-reduce 1), send 2; forward 3 4, send 5, receive 6; backward 7 8 9, receive 10;
/// backward 11 12 13; gradients 14, norm 15 16.
std::vector<TimedOp> first_stage(const Framework& framework, DeviceKind kind = DeviceKind::gpu) {
  const std::vector<Program> programs = hand_pipeline({{{1, 1, 1, 1, 2}}, {1, 1}, 2});
  const CostModel costs(hand_cluster(kind, 4), std::nullopt, framework);
  return unroll(expand(programs, costs)[0]);
}

std::vector<std::pair<std::uint32_t, Numbers>> host_waits(const std::vector<TimedOp>& ops) {
  std::vector<std::pair<std::uint32_t, Numbers>> result;
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].host_waits.empty()) result.emplace_back(i, ops[i].host_waits);
  }
  return result;
}

TEST(FrameworkWaits, TheHostWaitsOnceForAllThatItsDeviceDoes) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.waits.transfers_hold = TransfersHold::host;
  framework.host.waits.time = Seconds(7e-6);
  const std::vector<TimedOp> ops = first_stage(framework);
  ASSERT_EQ(ops.size(), 17u);
  EXPECT_EQ(host_waits(ops), (std::vector<std::pair<std::uint32_t, Numbers>>{
                                 {3, {0, 1, 2}}, {7, {3, 4, 5, 6}}, {11, {9, 8, 5, 10}}}));
  EXPECT_EQ(ops[3].host_wait, to_picoseconds(Seconds(7e-6)));
}

TEST(FrameworkWaits, TheHostReadsEachBatchBehindAllThatWasComputed) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.waits.for_batch = true;
  // Only forwards, and not the first: nothing was computed before.
  using Waits = std::vector<std::pair<std::uint32_t, Numbers>>;
  EXPECT_EQ(host_waits(first_stage(framework)), (Waits{{3, {0}}}));
  // Where it waits for the exchange before, that is all there is.
  framework.host.waits.transfers_hold = TransfersHold::host;
  EXPECT_EQ(host_waits(first_stage(framework)),
            (Waits{{3, {0, 1, 2}}, {7, {3, 4, 5, 6}}, {11, {9, 8, 5, 10}}}));
}

TEST(FrameworkWaits, ComputeWaitsForTransfersThatWereIssuedBefore) {
  Framework framework = framework_by_name("megatron-lm");
  const std::vector<TimedOp> before = first_stage(framework);
  framework.host.waits.transfers_hold = TransfersHold::compute;
  const std::vector<TimedOp> ops = first_stage(framework);
  EXPECT_TRUE(host_waits(ops).empty());
  const auto sorted = [](Numbers numbers) {
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  };
  const auto added = [&](std::size_t i) {
    const Numbers now = sorted(ops[i].waits), then = sorted(before[i].waits);
    Numbers result;
    std::set_difference(now.begin(), now.end(), then.begin(), then.end(),
                        std::back_inserter(result));
    return result;
  };
  for (std::size_t i = 0; i < ops.size(); ++i) {
    // First ops of the forward after a send, and of the backwards after exchanges.
    if (i == 3 || i == 4) {
      EXPECT_EQ(added(i), (Numbers{2}));
    } else if (i == 7 || i == 8) {
      EXPECT_EQ(added(i), (Numbers{5, 6}));
    } else if (i == 11 || i == 12) {
      EXPECT_EQ(added(i), (Numbers{10}));
    } else {
      EXPECT_EQ(ops[i].waits, before[i].waits) << i;
    }
  }
}

TEST(FrameworkWaits, AHostThatRunsItsOwnOpsWaitsForNothingElse) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.waits.transfers_hold = TransfersHold::host;
  EXPECT_TRUE(host_waits(first_stage(framework, DeviceKind::cpu_core)).empty());
}

TEST(FrameworkWaits, LaunchesThatWaitLeaveNothingToOverlap) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.waits.for_launches = true;
  const std::vector<TimedOp> ops = first_stage(framework);
  for (std::uint32_t i = 1; i < ops.size(); ++i) {
    // A transfer waits with its exchange: the op after it waits for all that was issued.
    const bool after_transfer = i == 3 || i == 6 || i == 7 || i == 11;
    if (after_transfer) continue;
    EXPECT_EQ(ops[i].host_waits, Numbers{i - 1}) << i;
  }
  EXPECT_EQ(ops[3].host_waits, (Numbers{0, 1, 2}));
  EXPECT_TRUE(ops[6].host_waits.empty());
}

TEST(FrameworkWaits, AStepOfLaunchesThatWaitIsTheSumOfItsParts) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  Framework framework = framework_by_name("megatron-lm");
  const Strategy strategy = parse_strategy("dp=2,pp=2,micro_batch=1");
  const std::vector<Program> programs = lower({job, strategy, framework}, {}, Proof::none);
  const auto step = [&] {
    const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, framework);
    const Seconds folded = simulate(programs, costs, Folding::folded, Detail::none).step_time;
    EXPECT_EQ(simulate(programs, costs, Folding::unfolded, Detail::none).step_time, folded);
    return folded;
  };
  framework.host.dispatch.op = Seconds(20e-6);
  const Seconds free = step();
  framework.host.waits.for_launches = true;
  EXPECT_GT(step(), free);
  EXPECT_TRUE(legal(framework, job, strategy));
  const Verdict chunks = legal(framework, job, parse_strategy("dp=2,pp=2,virtual_stages=2"));
  ASSERT_FALSE(chunks);
  EXPECT_NE(chunks.reason().find("CUDA_LAUNCH_BLOCKING"), std::string::npos) << chunks.reason();
}

TEST(FrameworkWaits, ChunksThatReceiveAheadAreNotHeld) {
  Framework framework = framework_by_name("megatron-lm");
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  const auto step = [&](const std::string& strategy, TransfersHold hold) {
    framework.host.waits.transfers_hold = hold;
    const std::vector<Program> programs =
        lower({job, parse_strategy(strategy), framework}, {}, Proof::none);
    const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, framework);
    return simulate(programs, costs, Folding::folded, Detail::none).step_time;
  };
  const std::string plain = "pp=2,dp=2,micro_batch=1", chunks = plain + ",virtual_stages=2";
  EXPECT_GT(step(plain, TransfersHold::host), step(plain, TransfersHold::nothing));
  EXPECT_EQ(step(chunks, TransfersHold::host), step(chunks, TransfersHold::nothing));
}

// Two neighbours that merge gradients between the send and the receive of an exchange would wait
// for each other if that ended it.
TEST(FrameworkWaits, WhatPreparesGradientsDoesNotEndAnExchange) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  for (const std::string choice :
       {"gradient_merge=fused", "gradient_merge=tensor", "grad_reduction=per_micro_batch"}) {
    const Strategy strategy = parse_strategy("pp=2,dp=2,micro_batch=1," + choice);
    Framework framework = framework_by_name("megatron-lm-2021");
    framework.host.waits.transfers_hold = TransfersHold::nothing;
    const std::vector<Program> programs = lower({job, strategy, framework}, {}, Proof::none);
    const auto step = [&](TransfersHold hold) {
      framework.host.waits.transfers_hold = hold;
      const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, framework);
      return simulate(programs, costs, Folding::folded, Detail::none).step_time;
    };
    const Seconds free = step(TransfersHold::nothing);
    EXPECT_GE(step(TransfersHold::compute), free) << choice;
    EXPECT_GE(step(TransfersHold::host), free) << choice;
  }
}

}  // namespace
}  // namespace plimsoll
