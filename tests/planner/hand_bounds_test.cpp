// Bounds of stages that are small enough to follow by hand.
#include <gtest/gtest.h>

#include "planner/bounds/bounds.h"
#include "planner/bounds/memory_bound.h"
#include "planner/bounds/micro_batch_traffic.h"
#include "planner/bounds/time_bound.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

/// Two stages of one chunk. A forward takes 10, a backward 20, a transfer into a stage 3.
std::vector<StageSpans> two_stages() {
  std::vector<StageSpans> stages(2);
  for (std::size_t s = 0; s < 2; ++s) {
    ChunkSpans chunk;
    chunk.forward.span = chunk.forward.last = chunk.forward.sent = Picoseconds(10);
    chunk.backward.span = chunk.backward.last = chunk.backward.sent = Picoseconds(20);
    (s == 0 ? chunk.backward : chunk.forward).transfer = Picoseconds(3);
    stages[s].chunks = {chunk};
  }
  return stages;
}

std::int64_t bound_of(std::span<const StageSpans> stages, std::int64_t micro_batches,
                      const std::string& strategy = "pp=2") {
  return bottleneck_bound(parse_strategy(strategy), stages, micro_batches).count();
}

TEST(BottleneckBound, IsTheFillTheLastStagesWorkAndTheWayBack) {
  std::vector<StageSpans> stages = two_stages();
  // Stage 0 computes for 10, stage 1 for 33 with its transfer, stage 0 for 23 with the transfer.
  EXPECT_EQ(bound_of(stages, 1), 10 + 33 + 23);
  EXPECT_EQ(bound_of(stages, 4), 10 + 4 * 33 + 23);
  // Transfers run beside the actions before them, but for those of fill and drain.
  for (StageSpans& stage : stages) stage.receives_ahead = true;
  EXPECT_EQ(bound_of(stages, 4), 10 + 4 * 30 + 23);
}

TEST(BottleneckBound, FollowsWhatIsSentOnBeforeAnActionIsOver) {
  std::vector<StageSpans> stages = two_stages();
  // The first stage's border is written 4 into its last call of 6.
  ActionSpans& forward = stages[0].chunks[0].forward;
  forward.last = Picoseconds(6);
  forward.sent = Picoseconds(4);
  EXPECT_EQ(bound_of(stages, 4), 8 + 4 * 33 + 23);
  // The last stage sends the gradient on 5 before its backward is over.
  ActionSpans& backward = stages[1].chunks[0].backward;
  backward.sent = Picoseconds(15);
  EXPECT_EQ(bound_of(stages, 4), 8 + 4 * 33 - 5 + 23);
  // A gather behind each transfer into the last stage.
  stages[1].chunks[0].forward.complete = Picoseconds(2);
  EXPECT_EQ(bound_of(stages, 4), 8 + 4 * 35 - 5 + 23);
  // A stage between them sends the last gradient on 5 before its backward is over, too.
  stages = two_stages();
  stages.insert(stages.begin() + 1, stages[1]);
  stages[1].chunks[0].backward = stages[0].chunks[0].backward;
  stages[1].chunks[0].backward.sent = Picoseconds(15);
  EXPECT_EQ(bound_of(stages, 4, "pp=3"), 10 + 13 + 4 * 33 + (23 - 5) + 23);
}

TEST(BottleneckBound, LeavesOutWeightGradientsThatMayBePutOff) {
  std::vector<StageSpans> stages = two_stages();
  for (StageSpans& stage : stages) stage.chunks[0].weights.span = Picoseconds(7);
  // Without a split they are part of the work. Those of stage 0 follow its last backward.
  EXPECT_EQ(bound_of(stages, 4), 10 + 4 * 40 + 23);
  // Stage 1 puts off those of 2 micro-batches in ZB-H1 and of 3 in ZB-H2, stage 0 none.
  EXPECT_EQ(bound_of(stages, 4, "pp=2,schedule=zb_h1"), 10 + 4 * 40 - 2 * 7 + 23 + 7);
  EXPECT_EQ(bound_of(stages, 4, "pp=2,schedule=zb_h2"), 10 + 4 * 40 - 3 * 7 + 23 + 7);
  EXPECT_EQ(bound_of(stages, 1, "pp=2,schedule=zb_h2"), 10 + 40 - 7 + 23 + 7);
  // In a V the last gradient comes through other chunks, which are not followed.
  EXPECT_EQ(bound_of(stages, 4, "pp=2,virtual_stages=2,schedule=zb_v"), 10 + 4 * 40);
}

TEST(BottleneckBound, IsAtLeastTheTimeOfTheHostAndOfEachLink) {
  std::vector<StageSpans> stages = two_stages();
  stages[0].chunks[0].forward.dispatch = Picoseconds(100);
  stages[0].chunks[0].backward.dispatch = Picoseconds(50);
  stages[0].chunks[0].weights.dispatch = Picoseconds(25);
  EXPECT_EQ(bound_of(stages, 4), 4 * 175);
  stages = two_stages();
  for (StageSpans& stage : stages) stage.receives_ahead = true;
  stages[1].chunks[0].forward.transfer = Picoseconds(200);
  EXPECT_EQ(bound_of(stages, 4), 4 * 200);
  stages = two_stages();
  stages[1].sends.at_level[1] = Picoseconds(90);
  stages[1].traffic.links.at_level[1] = Picoseconds(5);
  stages[1].traffic.links.at_level[0] = Picoseconds(300);
  EXPECT_EQ(bound_of(stages, 4), 4 * 90 + 5);
}

TEST(StepTrafficBound, AddsTheWorkThatCannotRunBesideTheCollectives) {
  const StageTraffic traffic{Picoseconds(7), Picoseconds(5), {}};
  const auto bound = [&](const std::string& strategy, std::int64_t micro_batches, std::int64_t work,
                         std::int64_t on_last) {
    return step_traffic_bound(parse_strategy(strategy), micro_batches, traffic, Picoseconds(work),
                              Picoseconds(on_last))
        .count();
  };
  // The last micro-batch of one stage may run beside them.
  EXPECT_EQ(bound("pp=1", 1, 10, 10), 12);
  EXPECT_EQ(bound("pp=1", 4, 10, 10), 12 + 3 * 10);
  // So may one on the last chunk, and pp on the chunk before it.
  EXPECT_EQ(bound("pp=2,virtual_stages=2", 4, 10, 4), 12 + 4 * 10 - (4 + 2 * 6));
  // Weight gradients of 2 pp micro-batches may be put off, or two micro-batches run in turns.
  EXPECT_EQ(bound("pp=2,schedule=zb_h1", 20, 10, 10), 12 + 20 * 10 - 10 - 5 * 10);
  EXPECT_EQ(bound("pp=1,overlap_expert_exchange=true", 4, 10, 10), 12 + 4 * 10 - 10 - 2 * 10);
  EXPECT_EQ(bound("pp=2,virtual_stages=2,schedule=zb_v", 20, 10, 5), 12);
}

TEST(MicroBatchTraffic, AStepHasAFirstALastAndOthersBetween) {
  const MicroBatchTraffic traffic{Picoseconds(3), Picoseconds(5), Picoseconds(7), Picoseconds(2)};
  EXPECT_EQ(traffic.step(1).count(), 7 + 2);
  EXPECT_EQ(traffic.step(2).count(), 3 + 7 + 2);
  EXPECT_EQ(traffic.step(5).count(), 3 + 3 * 5 + 7 + 2);
}

/// A block that keeps 100 bytes of a micro-batch, with borders of 10 and frames of 5 and 7.
MicroBatchFacts one_block() {
  BlockFacts block;
  block.saved = block.kept = Bytes(100);
  block.input = block.output = block.input_gradient = block.output_gradient = Bytes(10);
  block.forward.frame = Bytes(5);
  block.backward.frame = Bytes(7);
  return {{block}};
}

MemoryBound held_by(const std::string& strategy, const MicroBatchFacts& facts,
                    const std::vector<StageKind>& kinds,
                    const Framework& runs = bundled_framework()) {
  Job job = nano_job();
  job.global_batch = 8;
  const Strategy parsed = parse_strategy(strategy);
  const std::vector<LastingBytes> persistent(std::size_t(parsed.pp), {Bytes(1000), Bytes(900)});
  return memory_bound({job, parsed, runs}, facts, kinds, persistent);
}

TEST(HandMemoryBound, OneStageHoldsOneMicroBatch) {
  const MicroBatchFacts facts = one_block();
  const std::vector<StageKind> two_layers = {{0, 0, {{{0, 2}}}}};
  const MemoryBound bound = held_by("micro_batch=1", facts, two_layers);
  // The backward of the second block: what both keep, the borders of its gradients, its frame.
  EXPECT_EQ(bound.peak, Bytes(1000 + 2 * 100 + 2 * 10 + 7));
  EXPECT_EQ(bound.arena, bound.peak);
  EXPECT_EQ(bound.reserved, Bytes(900 + 2 * 100 + 2 * 10 + 7));
  // Another allocator has at least what is alive between two calls.
  EXPECT_EQ(held_by("micro_batch=1", facts, two_layers, framework_by_name("megatron-lm")).reserved,
            Bytes(900 + 2 * 100));
}

TEST(HandMemoryBound, TheLargestFrameHasAPlaceOfItsOwn) {
  MicroBatchFacts facts = one_block();
  facts.blocks.push_back(facts.blocks[0]);
  facts.blocks[0].forward.frame = Bytes(50);  // while little is alive
  const MemoryBound bound = held_by("micro_batch=1", facts, {{0, 0, {{{0, 1}, {1, 1}}}}});
  EXPECT_EQ(bound.peak, Bytes(1000 + 2 * 100 + 2 * 10 + 7));
  EXPECT_EQ(bound.arena, Bytes(1000 + 2 * 100 + 2 * 10 + 50));
}

TEST(HandMemoryBound, EarlierStagesHoldMoreMicroBatches) {
  const MicroBatchFacts facts = one_block();
  const StageChunks chunks = {{{0, 1}}};
  const std::vector<StageKind> first = {{0, 0, chunks}}, last = {{1, 1, chunks}};
  // Stage 0 has two micro-batches when the gradient of the first arrives, and two sent borders.
  EXPECT_EQ(held_by("pp=2,micro_batch=1", facts, first).peak,
            Bytes(1000 + 2 * 100 + 2 * 10 + 2 * 10 + 7));
  EXPECT_EQ(held_by("pp=2,micro_batch=1,send_slots=1", facts, first).peak,
            Bytes(1000 + 2 * 100 + 10 + 2 * 10 + 7));
  // Sends that are held or published count while they are written: the second forward's.
  EXPECT_EQ(held_by("pp=2,micro_batch=1,send_lifetime=held", facts, first).peak,
            Bytes(1000 + 2 * 100 + 2 * 10 + 7));
  // The call that writes the second border to be sent may have the largest frame.
  MicroBatchFacts framed = facts;
  framed.blocks[0].forward.frame = Bytes(50);
  EXPECT_EQ(held_by("pp=2,micro_batch=1", framed, first).peak,
            Bytes(1000 + 2 * 100 + 2 * 10 + 10 + 50));
  // Stage 1 has one, and while it runs the next forward two gradients that it sent.
  EXPECT_EQ(held_by("pp=2,micro_batch=1", facts, last).peak,
            Bytes(1000 + 100 + 2 * 10 + 2 * 10 + 5));
  // GPipe holds all eight, and both borders that were sent last.
  EXPECT_EQ(held_by("pp=2,micro_batch=1,schedule=gpipe", facts, first).peak,
            Bytes(1000 + 8 * 100 + 2 * 10 + 2 * 10 + 7));
  EXPECT_EQ(held_by("pp=2,micro_batch=1", facts, first, framework_by_name("megatron-lm")).reserved,
            Bytes(900 + 2 * 100 + 2 * 10));
}

TEST(HandMemoryBound, ShardedGradientsCountUntilTheyAreReduced) {
  MicroBatchFacts facts = one_block();
  facts.blocks[0].saved = facts.blocks[0].kept = Bytes(20);
  facts.blocks[0].gradients = Bytes(60);
  facts.blocks[0].backward_parameters = facts.blocks[0].forward_parameters = Bytes(80);
  const std::vector<StageKind> two_layers = {{0, 0, {{{0, 2}}}}};
  const auto peak = [&](const std::string& strategy) {
    return held_by("micro_batch=1,sharding_degree=2," + strategy, facts, two_layers).peak.count();
  };
  const std::int64_t backward = 1000 + 2 * 20 + 2 * 10 + 7;  // of the second block
  EXPECT_EQ(peak("sharding_stage=1"), backward);
  EXPECT_EQ(peak("sharding_stage=2,overlap_grad_reduce=false"), backward + 60);
  // Gradients of the second block are still being reduced while the first block's are written.
  EXPECT_EQ(peak("sharding_stage=2,overlap_grad_reduce=true"), backward - 20 + 2 * 60);
  // A call gathers its parameters, and those of the next one when it looks ahead.
  EXPECT_EQ(peak("sharding_stage=3,prefetch_depth=0,overlap_grad_reduce=false"),
            backward + 60 + 80);
  EXPECT_EQ(peak("sharding_stage=3,prefetch_depth=1,overlap_grad_reduce=false"),
            backward + 60 + 2 * 80);
}

TEST(HandMemoryBound, LaterStagesPutWeightGradientsOff) {
  MicroBatchFacts facts = one_block();
  BlockFacts& block = facts.blocks[0];
  block.saved = block.kept = Bytes(20);
  block.remains = Bytes(100);
  const std::vector<StageKind> both = {{0, 1, {{{0, 2}}}}};
  // Stage 1 writes the second gradient to be sent. Two blocks of the micro-batch before remain, and
  // the second block of this one.
  EXPECT_EQ(held_by("pp=2,micro_batch=1,schedule=zb_h1", facts, both).peak,
            Bytes(1000 + 3 * 100 + 20 + 10 + 2 * 10 + 7));
  // Then come the weight gradients of the micro-batch before.
  block.has_weights = true;
  block.weights.frame = Bytes(11);
  EXPECT_EQ(held_by("pp=2,micro_batch=1,schedule=zb_h1", facts, both).peak,
            Bytes(1000 + 2 * 2 * 100 + 2 * 10 + 11));
}

TEST(HandMemoryBound, BordersAndLogitsOfEachMicroBatchAreKept) {
  MicroBatchFacts facts = one_block();
  facts.blocks[0].saved = facts.blocks[0].kept = Bytes(20);
  facts.blocks[0].given_to_loss = Bytes(30);
  const StageChunks chunks = {{{0, 1}}};
  Framework keeps = framework_by_name("megatron-lm");
  keeps.memory.borders = BorderMemory::for_each;
  const auto reserved = [&](std::int64_t stage, LossMemory loss) {
    keeps.memory.loss = loss;
    return held_by("pp=2,micro_batch=1", facts, {{stage, stage, chunks}}, keeps).reserved.count();
  };
  // Stage 0 keeps what it sends and what it receives; stage 1 what it receives, and logits twice.
  EXPECT_EQ(reserved(0, LossMemory::by_op), 900 + 8 * (10 + 10));
  EXPECT_EQ(reserved(1, LossMemory::new_gradient), 900 + 8 * 10);
  EXPECT_EQ(reserved(1, LossMemory::by_op), 900 + 8 * (10 + 2 * 30));
}

TEST(HandMemoryBound, ShardsThatAreCopiedDoNotLast) {
  const Job job = nano_job();
  Framework copies = bundled_framework();
  copies.memory.shards = ShardMemory::flat_copies;
  const auto lasting = [&](const std::string& text) {
    const Strategy strategy = parse_strategy(text);
    return persistent_bytes({job, strategy, copies}).front();
  };
  const LastingBytes whole = lasting("dp=2");
  EXPECT_EQ(whole.framework, whole.program);
  const LastingBytes sharded = lasting("sharding_degree=2,sharding_stage=1");
  EXPECT_LT(sharded.framework, sharded.program);
}

TEST(BlockFacts, OnlyASplitBackwardLeavesWeightGradients) {
  const Bounds bounds(nano_target(2));
  const auto have_weights = [&](const char* strategy) {
    const auto facts = bounds.facts(parse_strategy(strategy));
    return std::ranges::count_if(facts->blocks, &BlockFacts::has_weights);
  };
  EXPECT_GT(have_weights("pp=2,schedule=zb_h1"), 0);
  EXPECT_EQ(have_weights("pp=2"), 0);
}

// In a V it is open what runs beside a transfer.
TEST(StageSpans, KernelsLoseTimeBesideTransfersButInAV) {
  const Target target(
      nano_job(), CostModel(preset_cluster("dgx-h100-80gb"), {}, framework_by_name("torchtitan")),
      2);
  const ShapeCosts costs(target);
  const FactsCache cache(target, costs);
  const auto slowdown = [&](const char* text) {
    const Strategy strategy = parse_strategy(text);
    const auto facts = cache.of(strategy);
    const auto chunks = stage_chunks(target.job, strategy, *facts);
    const auto spans = stage_spans(strategy, *facts, chunks, costs.of(strategy));
    return spans[1].chunks[0].forward.transfer_slowdown;
  };
  EXPECT_GT(slowdown("pp=2,micro_batch=1"), 1);
  EXPECT_EQ(slowdown("pp=2,micro_batch=1,virtual_stages=2,schedule=zb_v"), 1);
}

}  // namespace
}  // namespace plimsoll
