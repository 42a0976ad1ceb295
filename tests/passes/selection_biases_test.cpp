// Selection biases of routers in Programs: their bytes, the sum of loads, and what moves them.
#include "passes/schedule/selection_biases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job biased_job() {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/expert-nano.json");
  job.experts->selection_bias = 0.25;
  return job;
}

std::vector<Program> lowered_biases(const std::string& strategy, const Job& job = biased_job()) {
  const Strategy parsed = parse_strategy(strategy);
  return lower({job, parsed, bundled_framework()});
}

/// The group over which loads are summed, if they are.
std::optional<Group> load_group(const Program& program) {
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (routine.name == "all_reduce.expert_load")
      return std::get<CollectiveParams>(routine.ops[0].params).group;
  }
  return std::nullopt;
}

std::int64_t count_of(const Program& program, OpKind kind, std::optional<Phase> phase = {}) {
  std::int64_t count = 0;
  for (const Call& call : program.calls) {
    for (const Op& op : program.at(call.routine).ops)
      count += op.kind == kind && (!phase || op.phase == *phase);
  }
  return count;
}

TEST(SelectionBiases, RanksWithOtherTokensSumTheirLoads) {
  EXPECT_EQ(load_group(lowered_biases("mp=1")[0]), std::nullopt);
  EXPECT_EQ(load_group(lowered_biases("mp=2")[0]), std::nullopt);  // all have all tokens
  EXPECT_EQ(load_group(lowered_biases("dp=2")[0]), (Group{{Axis::dp}}));
  EXPECT_EQ(load_group(lowered_biases("mp=2,sequence_parallel=true")[0]), (Group{{Axis::mp}}));
  EXPECT_EQ(load_group(lowered_biases("mp=2,sharding_degree=2,dp=2,sequence_parallel=true,"
                                      "sharding_stage=1,ep=2")[0]),
            (Group{{Axis::mp, Axis::sharding, Axis::dp}}));
}

TEST(SelectionBiases, AStageKeepsTwoNumbersForEachExpertAndMovesThemOnce) {
  for (const Program& program : lowered_biases("pp=2,micro_batch=2,recompute=full")) {
    for (const char* name : {"selection_biases", "expert_loads"}) {
      const auto found = std::ranges::find(program.buffers, name, &Buffer::name);
      ASSERT_NE(found, program.buffers.end());
      EXPECT_EQ(found->bytes, Bytes(4 * 4));  // 1 layer, 4 experts
      EXPECT_TRUE(found->persistent);
    }
    EXPECT_EQ(count_of(program, OpKind::move_selection_bias), 1);
    // Recompute repeats the router and counts no choice twice.
    EXPECT_EQ(count_of(program, OpKind::count_choices), program.micro_batches);
    EXPECT_EQ(count_of(program, OpKind::route, Phase::recompute), program.micro_batches);
  }
  Job without = biased_job();
  without.experts->selection_bias = 0;
  const Program program = lowered_biases("mp=1", without)[0];
  EXPECT_EQ(std::ranges::find(program.buffers, "expert_loads", &Buffer::name),
            program.buffers.end());
}

/// Returns where calls of a phase have the choices of all layers, by micro-batch.
std::vector<std::set<std::int64_t>> layer_choices(const Program& program, Phase phase) {
  std::vector<std::set<std::int64_t>> places(std::size_t(program.micro_batches));
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (std::size_t i = 0; call.micro_batch && i < routine.slots.size(); ++i) {
      if (routine.slots[i].kind != SlotKind::layer_choices || routine.phase != phase) continue;
      EXPECT_EQ(program.at(call.bindings[i].buffer).name, "layer_choices");
      places[std::size_t(*call.micro_batch)].insert(call.bindings[i].offset.count());
    }
  }
  return places;
}

TEST(SelectionBiases, LayersOfAMicroBatchShareTheSumOfTheirChoices) {
  Job job = biased_job();
  job.experts->balance_loss = 0.1;
  job.experts->balance_layers = true;
  job.experts->balance_sequences = 2;
  for (const char* fields : {"micro_batch=2,recompute=full", "micro_batch=2,schedule=gpipe"}) {
    const Program program = lowered_biases(fields, job)[0];
    const auto buffer = std::ranges::find(program.buffers, "layer_choices", &Buffer::name);
    ASSERT_NE(buffer, program.buffers.end());
    EXPECT_EQ(buffer->bytes, Bytes(program.micro_batches * 4 * job.experts->count));
    const auto written = layer_choices(program, Phase::forward);
    EXPECT_EQ(written, layer_choices(program, Phase::backward));
    ASSERT_GT(written.size(), 1u);
    for (std::size_t i = 0; i < written.size(); ++i)
      EXPECT_EQ(written[i], std::set{std::int64_t(i) * 4 * job.experts->count});
    const auto zeroes = std::ranges::count_if(program.calls, [&](const Call& call) {
      return program.at(call.routine).name == "zero_layer_choices";
    });
    EXPECT_EQ(zeroes, 1);
    // Recompute repeats routers and adds no choices again.
    std::int64_t sums = 0;
    for (const Call& call : program.calls) {
      for (const Op& op : program.at(call.routine).ops)
        sums += op.kind == OpKind::bias_gradient && op.phase != Phase::backward;
    }
    EXPECT_EQ(sums, count_of(program, OpKind::route, Phase::forward));
  }
}

TEST(SelectionBiases, MoveAgainstTheMeanOfTheGlobalBatch) {
  const Program program = lowered_biases("dp=2,micro_batch=2")[0];
  for (const Call& call : program.calls) {
    for (const Op& op : program.at(call.routine).ops) {
      if (op.kind != OpKind::move_selection_bias) continue;
      // 8 sequences of 4 tokens choose 2 of 4 experts.
      EXPECT_EQ(std::get<SelectionParams>(op.params), (SelectionParams{.step = 0.25, .even = 16}));
    }
  }
}

}  // namespace
}  // namespace plimsoll
