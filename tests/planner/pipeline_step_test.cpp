// Pipeline steps: few micro-batches that repeat themselves end when all of them would.
#include "planner/bounds/pipeline_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution(low, high)(random);
}
bool one_in(Random& random, int n) { return between(random, 1, n) == 1; }

ActionSpans random_action(Random& random, bool receives, bool sends) {
  ActionSpans action;
  action.span = action.computes = Picoseconds(between(random, 5'000, 9'000));
  action.last = Picoseconds(between(random, 100, 900));
  action.first_computes = Picoseconds(between(random, 100, 900));
  action.sent = Picoseconds(action.last.count() / 2);
  action.dispatch = Picoseconds(between(random, 100, one_in(random, 3) ? 9'000 : 2'000));
  action.receives = receives;
  action.sends = sends;
  action.receive_dispatch = Picoseconds(receives ? 50 : 0);
  action.send_dispatch = Picoseconds(sends ? 50 : 0);
  if (receives) action.transfer = Picoseconds(between(random, 100, 4'000));
  if (receives && one_in(random, 2)) action.transfer_slowdown = 1.25;
  if (receives && one_in(random, 4)) action.complete = Picoseconds(300);
  if (sends) action.sending = Picoseconds(between(random, 100, 4'000));
  if (sends && one_in(random, 2)) action.sending_slowdown = 1.125;
  return action;
}

/// Lets the host wait for an op of the action, and the stream for the host.
void wait_on_host(Random& random, ActionSpans& action) {
  action.until_last = no_call();
  const auto path = [&] { return Picoseconds(between(random, 2'000, 9'000)); };
  action.last_host =
      HostPaths{path(), one_in(random, 2) ? std::optional(path()) : std::nullopt, path(), path()};
}

Strategy random_pipeline(Random& random) {
  Strategy strategy;
  strategy.pp = between(random, 1, 6);
  strategy.pipeline.send_slots = between(random, 1, 3);
  const std::int64_t kind = between(random, 0, 3);
  if (kind == 0) strategy.schedule = one_in(random, 2) ? Schedule::zb_h1 : Schedule::zb_h2;
  if (kind > 1 && strategy.pp > 1) strategy.pipeline.virtual_stages = between(random, 2, 4);
  if (one_in(random, 4)) strategy.pipeline.send_lifetime = SendLifetime::held;
  return strategy;
}

std::vector<StageSpans> random_stages(Random& random, const Strategy& strategy) {
  const bool host_posts = one_in(random, 3), ahead = one_in(random, 2);
  // Stages of alike times find their rhythm late.
  const bool alike = one_in(random, 3), waits = one_in(random, 3);
  std::vector<StageSpans> stages;
  const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages;
  for (std::int64_t s = 0; s < strategy.pp; ++s) {
    StageSpans stage;
    if (host_posts) stage.post = Picoseconds(200);
    stage.receives_ahead = ahead && strategy.pipeline.virtual_stages > 1;
    stage.gathers_ahead = one_in(random, 2);
    const std::int64_t most = one_in(random, 2) ? 50'000 : 0;  // of step traffic, chunk by chunk
    Picoseconds gathered, reduced;
    for (std::int64_t c = 0; c < strategy.pipeline.virtual_stages; ++c) {
      const std::int64_t part = part_of(strategy.schedule, strategy.pp, s, c);
      ChunkSpans chunk;
      chunk.forward = random_action(random, part > 0, part + 1 < parts);
      chunk.backward = random_action(random, part + 1 < parts, part > 0);
      if (splits_backward(strategy.schedule)) chunk.weights = random_action(random, false, false);
      if (waits) {
        for (ActionSpans* action : {&chunk.forward, &chunk.backward, &chunk.weights})
          wait_on_host(random, *action);
      }
      chunk.gathered = gathered += Picoseconds(between(random, 0, most));
      chunk.reduced = reduced += Picoseconds(between(random, 0, most));
      if (alike && !stages.empty()) {
        chunk.forward.span = stages[0].chunks[0].forward.span;
        chunk.backward.span = stages[0].chunks[0].backward.span;
      }
      stage.chunks.push_back(chunk);
    }
    stages.push_back(stage);
  }
  return stages;
}

TEST(PipelineStep, FewMicroBatchesEndWhenAllOfThemWould) {
  Random random(1);
  int left_out = 0;
  for (int i = 0; i < 2'000; ++i) {
    const Strategy strategy = random_pipeline(random);
    const std::vector<StageSpans> stages = random_stages(random, strategy);
    const std::int64_t m = strategy.pp * between(random, 20, 80);
    PipelineStep few(strategy, stages, m), all(strategy, stages, m, PipelineStep::Cycles::run_all);
    std::vector<Picoseconds> starts(stages.size());
    for (int step = 0; step < 2; ++step) {
      const std::vector<Picoseconds> ends = all.run(starts);
      ASSERT_EQ(few.run(starts), ends)
          << i << " step " << step << ": " << strategy_summary(strategy) << ", " << m;
      starts = ends;
    }
    left_out += few.left_cycles_out();
  }
  fmt::print("{} of 2000 left cycles out\n", left_out);
  EXPECT_GT(left_out, 500);
}

// A stage receives what an action works on even if the slot for its own send is still in use. Else
// stages with one slot and several chunks would wait for each other for ever.
TEST(PipelineStep, OneSendSlotHoldsUpTheLastCallOnly) {
  Strategy strategy;
  strategy.pp = 4;
  strategy.pipeline.virtual_stages = 3;
  strategy.pipeline.send_slots = 1;
  const Picoseconds transfer(5'000);
  std::vector<StageSpans> stages(4);
  for (std::int64_t s = 0; s < strategy.pp; ++s) {
    for (std::int64_t c = 0; c < strategy.pipeline.virtual_stages; ++c) {
      const bool first = s + c == 0, last = s == 3 && c == 2;
      ActionSpans forward;
      forward.span = forward.computes = Picoseconds(2'000);
      forward.last = forward.sent = Picoseconds(1'000);
      forward.receives = !first;
      forward.sends = !last;
      forward.transfer = first ? Picoseconds() : transfer;
      ActionSpans backward = forward;
      backward.receives = !last;
      backward.sends = !first;
      backward.transfer = last ? Picoseconds() : transfer;
      stages[std::size_t(s)].chunks.push_back({forward, backward, {}, {}, {}});
    }
  }
  for (const std::int64_t m : {8, 400}) {
    PipelineStep step(strategy, stages, m);
    // Activations for three chunks come to a stage on one stream.
    EXPECT_GE(step.bound(), Picoseconds(3 * m * transfer.count())) << m;
  }
}

// A transfer of 400 is posted ahead of a backward of 100 and slows its kernels by half. The forward
// that waits for the transfer loses nothing.
TEST(PipelineStep, ATransferSlowsKernelsUntilItIsWaitedFor) {
  Strategy strategy;
  strategy.pp = 2;
  const auto action = [](std::int64_t time) {
    ActionSpans spans;
    spans.span = spans.last = spans.sent = spans.computes = Picoseconds(time);
    return spans;
  };
  std::vector<StageSpans> stages(2);
  stages[0].chunks = {{action(10), action(10), {}, {}, {}}};
  stages[1].chunks = {{action(1'000), action(100), {}, {}, {}}};
  stages[1].receives_ahead = true;
  stages[0].chunks[0].forward.sends = stages[1].chunks[0].backward.sends = true;
  stages[0].chunks[0].backward.receives = stages[1].chunks[0].forward.receives = true;
  stages[1].chunks[0].forward.transfer = Picoseconds(400);
  stages[1].chunks[0].forward.transfer_slowdown = 1.5;
  for (const std::int64_t m : {1, 4, 5}) {
    PipelineStep step(strategy, stages, m);
    EXPECT_EQ(step.run(std::vector<Picoseconds>(2))[1], Picoseconds(10 + m * 1'400 + 100)) << m;
  }
}

}  // namespace
}  // namespace plimsoll
