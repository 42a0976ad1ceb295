// Memory of PyTorch's fully_shard and of its pipelines, call by call.
#include "simulator/memory/shard_copies.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/pipeline.h"
#include "simulator/memory/allocation_replay.h"
#include "simulator/memory/stage_buffers.h"

namespace plimsoll {
namespace {

constexpr Bytes kAnyRoom{std::int64_t{1} << 60};

Job nano() {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.precision = DType::bf16;
  job.tied_embeddings = false;
  return job;
}

/// A Program whose calls only take what ShardCopies has for them.
struct Shards {
  explicit Shards(Program of, Framework by = framework_by_name("torchtitan"))
      : program(std::move(of)),
        framework(std::move(by)),
        blocks(framework.memory.allocator, kAnyRoom) {
    for (const Routine& routine : program.routines) {
      routines.push_back(read_events(routine, framework, names));
    }
    shards.emplace(program, framework, routines, names, blocks);
    shards->begin();
  }

  const Routine& routine(std::size_t call) const { return program.at(program.calls[call].routine); }

  void run(std::size_t index) {
    const Call& call = program.calls[index];
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      if (program.buffers[b].end == index && !program.buffers[b].persistent) shards->release(b);
    }
    shards->before_call(index);
    for (const StorageEvent& event : routines[call.routine.index()].events) {
      const TensorStorage& storage = routines[call.routine.index()].storages[event.storage];
      if (!storage.slot || event.kind != StorageEvent::Kind::write) continue;
      if (shards->has(call.bindings[*storage.slot].buffer.index()))
        shards->write_gradient(index, storage);
    }
    shards->after_call(index);
  }

  AliveTensors alive(const std::string& name) const {
    for (const AliveTensors& one : blocks.alive(names)) {
      if (one.name == name) return one;
    }
    return {};
  }
  Bytes alive(TensorRole role) const {
    Bytes sum;
    for (const AliveTensors& one : blocks.alive(names)) {
      if (one.role == role) sum += one.bytes;
    }
    return sum;
  }

  Program program;
  Framework framework;
  TensorNames names;
  std::vector<RoutineEvents> routines;
  TensorBlocks blocks;
  std::optional<ShardCopies> shards;
};

std::int64_t elements_of(const Program& program) {
  std::int64_t elements = 0;
  for (const Segment& segment : program.segments) elements += segment.elements;
  return elements;
}

bool is_layer(const Routine& routine) {
  return std::any_of(routine.ops.begin(), routine.ops.end(), [](const Op& op) {
    return op.kind == OpKind::flash_attention || op.kind == OpKind::flash_attention_backward;
  });
}

/// Blocks are whole multiples of 512 bytes; nano's tensors are small.
constexpr double kRoundOff = 64 * 512;

TEST(ShardCopies, GathersAreFlatThenTensors) {
  const Framework framework = framework_by_name("torchtitan");
  Shards run(lower({nano(), parse_strategy("sharding_degree=2,sharding_stage=3"), framework})[0]);
  EXPECT_EQ(run.blocks.use().allocated, Bytes()) << "the optimizer's copies are the shards";
  const double parameters = 2.0 * double(elements_of(run.program));
  std::int64_t forwards = 0, backwards = 0;
  for (std::size_t i = 0; i < run.program.calls.size(); ++i) {
    run.run(i);
    const Routine& routine = run.routine(i);
    if (!run.program.calls[i].layer || !is_layer(routine)) continue;
    const AliveTensors flat = run.alive("flat_parameters");
    if (routine.phase == Phase::forward) {
      ++forwards;
      EXPECT_EQ(flat.count, 1) << "its own, until the next group is copied out";
    } else {
      ++backwards;
      EXPECT_LE(flat.count, 1) << "the next group's, gathered ahead";
      EXPECT_EQ(run.alive("flat_gradients").count, 1) << "its own; the last one's has gone";
    }
    // Tables and head stay whole beside one layer.
    EXPECT_LT(double(run.alive(TensorRole::communication).count()), 2 * parameters);
    EXPECT_GT(run.alive(TensorRole::communication), flat.bytes);
  }
  EXPECT_GT(forwards, 1);
  EXPECT_EQ(forwards, backwards);
  EXPECT_NEAR(double(run.alive("gradient_shards").bytes.count()), parameters, kRoundOff)
      << "f32, a half";
  run.shards->end_step();
  EXPECT_TRUE(run.blocks.alive(run.names).empty());
}

// Backward of tables and head posts a gather, too, but they are whole since forward.
TEST(ShardCopies, OfTheRootGroupNothingIsGatheredAhead) {
  const Framework framework = framework_by_name("torchtitan");
  Job job = nano();
  job.global_batch = 8;
  Shards run(lower(
      {job, parse_strategy("sharding_degree=2,sharding_stage=3,schedule=gpipe"), framework})[0]);
  std::int64_t backwards = 0;
  for (std::size_t i = 0; i < run.program.calls.size(); ++i) {
    run.run(i);
    const Routine& routine = run.routine(i);
    if (!run.program.calls[i].layer || routine.phase != Phase::backward) continue;
    ++backwards;
    EXPECT_LE(run.alive("flat_parameters").count, 1) << routine.name;
  }
  EXPECT_GT(backwards, 8);
}

TEST(ShardCopies, GradientsOfAPipelineAreSummedWholeUntilItsLastBackward) {
  const Framework framework = framework_by_name("torchtitan");
  Job job = nano();
  job.global_batch = 8;
  Shards run(lower({job, parse_strategy("pp=2,sharding_degree=2,sharding_stage=1"), framework})[1]);
  const double elements = double(elements_of(run.program));
  Bytes sums, whole;
  std::int64_t backwards = 0;
  for (std::size_t i = 0; i < run.program.calls.size(); ++i) {
    const Call& call = run.program.calls[i];
    const bool backward = call.layer && run.routine(i).phase == Phase::backward;
    run.run(i);
    if (backward && *call.micro_batch == 0 && is_layer(run.routine(i))) {
      ++backwards;
      sums = run.alive("flat_gradients").bytes;
      whole = run.alive(TensorRole::communication);
      EXPECT_EQ(run.alive("gradient_shards").count, 0);
    }
  }
  EXPECT_GT(backwards, 0);
  EXPECT_NEAR(double(sums.count()), 4 * elements, kRoundOff);
  EXPECT_NEAR(double(whole.count()), 2 * elements, kRoundOff);
  EXPECT_EQ(run.alive("flat_gradients").count, 0) << "the optimizer has shards";
  EXPECT_NEAR(double(run.alive("gradient_shards").bytes.count()), 2 * elements, kRoundOff);
  EXPECT_EQ(run.alive(TensorRole::communication), Bytes());
}

TEST(ShardCopies, WithoutShardsNothingChanges) {
  Framework copies = framework_by_name("pytorch-fsdp");
  const auto programs = lower({nano(), parse_strategy("dp=2"), copies});
  const Bytes plain = replay_allocations(programs[0], copies, kAnyRoom).reserved;
  copies.memory.shards = ShardMemory::flat_copies;
  EXPECT_EQ(replay_allocations(programs[0], copies, kAnyRoom).reserved, plain);
}

TEST(StageBuffers, EachMicroBatchHasItsOwn) {
  const Framework framework = framework_by_name("torchtitan");
  Job job = nano();
  job.global_batch = 8;
  const Strategy strategy = parse_strategy("pp=2,micro_batch=2");
  const auto programs = lower({job, strategy, framework});
  const std::int64_t border = 2 * job.sequence * job.hidden * 2;  // bf16
  for (const Program& program : programs) {
    TensorNames names;
    TensorBlocks blocks(framework.memory.allocator, kAnyRoom);
    StageBuffers stage(program, framework, names, blocks);
    stage.begin();
    EXPECT_EQ(blocks.use().allocated, Bytes(4 * border))
        << "one direction each, four micro-batches";
    std::int64_t kept = 0;
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      if (stage.has(b)) continue;
      const TensorBlocks::Block block = blocks.take(Bytes(512), 0, TensorRole::activation, 0);
      if (stage.keeps(b, block)) {
        ++kept;
      } else {
        blocks.give(block);
      }
    }
    EXPECT_EQ(kept, program.stage == 0 ? 4 : 0) << "activations that were sent";
    stage.end_step();
    const TensorBlocks::Block all = blocks.take(Bytes(4 * border), 0, TensorRole::activation, 0);
    EXPECT_EQ(blocks.use().allocated, Bytes(8 * border));
    blocks.give(all);
  }
}

TEST(StageBuffers, OutputsOfTheModelStayToTheEndOfTheStep) {
  Framework framework = framework_by_name("torchtitan");
  Job job = nano();
  job.vocab = 1 << 14;
  job.global_batch = 8;
  const auto programs = lower({job, parse_strategy("pp=2"), framework});
  const auto peak = [&] { return replay_allocations(programs[1], framework, kAnyRoom).allocated; };
  const Bytes kept = peak();
  framework.memory.borders = BorderMemory::by_use;
  const double logits = 2.0 * double(job.sequence * job.vocab);
  EXPECT_GT(double((kept - peak()).count()), 6 * logits) << "of the seven micro-batches before";
}

/// A gather whose result autograd keeps is not gathered again.
TEST(GathersTokensAgain, OrIsKept) {
  Framework framework = framework_by_name("torchtitan");
  const auto gathers = [&] {
    std::int64_t count = 0;
    const auto programs = lower({nano(), parse_strategy("mp=2,sequence_parallel=true"), framework});
    for (const Routine& routine : programs[0].routines) {
      for (const Op& op : routine.ops) {
        const bool over_mp = op.kind == OpKind::all_gather && op.stream == Stream::mp;
        if (over_mp && op.phase == Phase::backward) ++count;
      }
    }
    return count;
  };
  const std::int64_t kept = gathers();
  framework.parallelism.gathers_tokens_again = true;
  // The operands of query, key and value and of the first linear layer are kept for each layer, and
  // one for the head.
  EXPECT_EQ(gathers() - kept, 3);
}

}  // namespace
}  // namespace plimsoll
