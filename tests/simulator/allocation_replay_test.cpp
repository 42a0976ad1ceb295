// Replays of Programs through allocators: what lives when, by hand and against the Program.
#include "simulator/memory/allocation_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "passes/pipeline.h"
#include "simulator/memory/alike_cycles.h"
#include "simulator/memory/routine_events.h"

namespace plimsoll {
namespace {

constexpr Bytes kNoLimit{std::int64_t{1} << 60};

Job nano() { return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json"); }

/// One routine of f32 tensors of 2 MiB in the frame: a -> b -> c, and c + a.
Program chain() {
  Program program;
  program.micro_batches = 1;
  Routine routine;
  routine.name = "chain";
  for (const char* name : {"a", "b", "c", "d"}) {
    Tensor tensor;
    tensor.name = name;
    tensor.shape = {std::int64_t{1} << 19};
    routine.tensors.push_back(tensor);
    routine.places.emplace_back();
  }
  const auto op = [&](OpKind kind, std::vector<TensorId> in, TensorId out) {
    Op made;
    made.kind = kind;
    made.inputs = std::move(in);
    made.outputs = {out};
    routine.ops.push_back(std::move(made));
  };
  op(OpKind::fill, {}, TensorId(0));
  routine.ops.back().params = FillParams{};
  op(OpKind::gelu, {TensorId(0)}, TensorId(1));
  op(OpKind::gelu, {TensorId(1)}, TensorId(2));
  op(OpKind::add, {TensorId(2), TensorId(0)}, TensorId(3));
  routine.frame_bytes = Bytes(8 << 20);
  program.routines = {routine};
  Buffer frame;
  frame.name = "frame";
  frame.bytes = routine.frame_bytes;
  frame.end = 1;
  program.buffers = {frame};
  Call call;
  call.routine = RoutineId(0);
  call.frame = BufferId(0);
  program.calls = {call};
  return program;
}

TEST(AllocationReplay, TemporariesLiveFromTheirFirstToTheirLastOp) {
  const AllocatorUse use =
      replay_allocations(chain(), framework_by_name("megatron-lm"), kNoLimit, AliveAtPeak::list);
  // a, b and c together; d comes when b has gone.
  EXPECT_EQ(use.allocated, Bytes(6 << 20));
  EXPECT_EQ(use.reserved, Bytes(20 << 20));
  ASSERT_EQ(use.alive.size(), 3u);
  EXPECT_EQ(use.alive[0], (AliveTensors{"a", TensorRole::activation, 1, Bytes(2 << 20)}));
  EXPECT_EQ(use.alive[2].name, "c");
  EXPECT_EQ(use.by_role[std::size_t(TensorRole::activation)], Bytes(6 << 20));
}

TEST(AllocationReplay, OutOfMemoryIsSaid) {
  const Framework framework = framework_by_name("megatron-lm");
  EXPECT_TRUE(replay_allocations(chain(), framework, Bytes(19 << 20)).out_of_memory);
  EXPECT_FALSE(replay_allocations(chain(), framework, Bytes(20 << 20)).out_of_memory);
}

/// Everything by itself: never less than what the Program keeps between calls, never more than its
/// buffers rounded up tensor by tensor.
TEST(AllocationReplay, StaysBesideTheProgramsPeak) {
  for (const char* text : {"pp=2,micro_batch=2", "pp=2,virtual_stages=2,recompute=full",
                           "mp=2,sequence_parallel=true", "sharding_degree=2,sharding_stage=1"}) {
    for (const char* name : {"megatron-lm", "megatron-deepspeed", "megatron-core-deterministic"}) {
      Framework framework = framework_by_name(name);
      const Strategy strategy = parse_strategy(text);
      if (!legal(framework, strategy)) continue;
      const Job job = nano();
      for (const Program& program : lower({job, strategy, framework})) {
        const AllocatorUse use =
            replay_allocations(program, framework, kNoLimit, AliveAtPeak::list);
        EXPECT_LE(use.allocated, use.reserved);
        EXPECT_FALSE(use.out_of_memory);
        Bytes alive, roles;
        for (const AliveTensors& one : use.alive) alive += one.bytes;
        for (const Bytes role : use.by_role) roles += role;
        EXPECT_EQ(alive, use.allocated) << text;
        EXPECT_EQ(roles, use.allocated) << text;
        std::int64_t tensors = 0;
        Bytes beside;  // that no Program shows
        for (const AliveTensors& one : use.alive) {
          tensors += one.count;
          if (one.name.starts_with("in_place_of_gradient") || one.name.ends_with(".new"))
            beside += one.bytes;
        }
        // Besides rounding: gradients as computed have other types, and are there in parts only.
        if (framework.memory.gradients <= GradientMemory::by_layer) {
          EXPECT_LE(use.allocated, memory_peak(program).peak + beside + Bytes(1024 * tensors))
              << text;
        }
      }
    }
  }
}

double far_apart(Bytes a, Bytes b) {
  return std::abs(double(a.count() - b.count())) / double(b.count());
}

TEST(AllocationReplay, LeavingOutAlikeMicroBatchesChangesNothingButHowBlocksLie) {
  Job job = nano();
  job.global_batch = 48;
  for (const char* text :
       {"pp=2,micro_batch=1", "pp=4,micro_batch=1,recompute=full", "pp=2,virtual_stages=2",
        "micro_batch=1", "pp=2,send_lifetime=held", "pp=2,schedule=gpipe", "pp=2,schedule=zb_h1",
        "sharding_degree=2,sharding_stage=3", "pp=2,sharding_degree=2,sharding_stage=2",
        "pp=2,sharding_degree=2,sharding_stage=1"}) {
    const Framework bundled = bundled_framework();
    for (Framework framework :
         {framework_by_name("pytorch-fsdp"), framework_by_name("torchtitan"), bundled}) {
      const Strategy strategy = parse_strategy(text);
      const auto programs = lower({job, strategy, bundled}, {}, Proof::none);
      for (const Allocator& rule : {pytorch_allocator(), paddle_allocator()}) {
        framework.memory.allocator = rule;
        for (const Program& program : programs) {
          const auto use = [&](AlikeMicroBatches alike) {
            return replay_allocations(program, framework, kNoLimit, AliveAtPeak::list, alike);
          };
          const AllocatorUse left_out = use(AlikeMicroBatches::leave_out);
          const AllocatorUse all = use(AlikeMicroBatches::replay);
          EXPECT_EQ(left_out.allocated, all.allocated) << text;
          EXPECT_LE(far_apart(left_out.reserved, all.reserved), 0.005) << text;
          EXPECT_TRUE(left_out.alive == all.alive) << text << framework.name << int(rule.kind);
          // Short of memory, so that what is kept is given back.
          const Bytes less(all.allocated.count() + (all.reserved - all.allocated).count() / 2);
          const auto pressed = [&](AlikeMicroBatches alike) {
            return replay_allocations(program, framework, less, AliveAtPeak::leave_out, alike);
          };
          const AllocatorUse few = pressed(AlikeMicroBatches::leave_out);
          const AllocatorUse every = pressed(AlikeMicroBatches::replay);
          EXPECT_LE(far_apart(few.reserved, every.reserved), 0.005) << text;
          EXPECT_EQ(few.out_of_memory, every.out_of_memory) << text;
          EXPECT_EQ(few.retries > 0, every.retries > 0) << text;
        }
      }
    }
  }
}

TEST(AlikeCycles, OfOneForwardOneBackwardAreThoseOfTheSteadyState) {
  Job job = nano();
  job.global_batch = 48;
  const auto found = [&](const char* text) {
    return alike_cycles(
        lower({job, parse_strategy(text), bundled_framework()}, {}, Proof::none)[0]);
  };
  const auto steady = found("pp=2,micro_batch=1");
  ASSERT_TRUE(steady.has_value());
  EXPECT_EQ(steady->begins.size(), 48u);
  EXPECT_GT(steady->last - steady->first, 40u);
  EXPECT_GT(steady->buffers, 0);
  EXPECT_FALSE(found("pp=2,micro_batch=16").has_value()) << "three micro-batches";
}

TEST(AllocationReplay, TheLossOverwritesItsLogits) {
  Job job = nano();
  job.precision = DType::bf16;
  job.vocab = 1 << 16;
  Framework framework = framework_by_name("megatron-lm");
  const auto peak = [&] {
    const auto programs = lower({job, Strategy(), framework});
    return replay_allocations(programs[0], framework, kNoLimit).allocated;
  };
  const std::int64_t logits = job.sequence * job.vocab;
  const Bytes fused = peak();
  framework.memory.loss = LossMemory::in_place;
  const Bytes in_place = peak();
  constexpr double kTokens = 4096;  // vectors of a few numbers for each token come and go, too
  EXPECT_NEAR(double((fused - in_place).count()), 2.0 * double(logits), kTokens)
      << "a second f32 copy instead of bf16 logits";
  framework.memory.loss = LossMemory::new_gradient;
  EXPECT_NEAR(double((peak() - in_place).count()), 2.0 * double(logits), kTokens)
      << "backward's f32 gradient instead of forward's bf16 logits, beside f32 logits";
}

TEST(AllocationReplay, ALossInTheTypeOfItsLogitsHasNoF32) {
  Job job = nano();
  job.precision = DType::bf16;
  job.vocab = 1 << 16;
  Framework framework = framework_by_name("pytorch-fsdp");
  const auto peak = [&] {
    const auto programs = lower({job, Strategy(), framework});
    return replay_allocations(programs[0], framework, kNoLimit).allocated;
  };
  const std::int64_t logits = job.sequence * job.vocab;
  const Bytes own = peak();
  framework.memory.loss = LossMemory::new_gradient;
  // Logits and their gradient in f32 instead of 16 bits.
  EXPECT_NEAR(double((peak() - own).count()), 4.0 * double(logits), 4096);
}

TEST(AllocationReplay, GatheredLogitsAreWholeOnEachRank) {
  Job job = nano();
  job.precision = DType::bf16;
  job.vocab = 1 << 16;
  job.sequence = 1024;  // so that the peak is at the loss, not at the update
  Framework framework = framework_by_name("aleph-alpha-scaling");
  const auto peak = [&](const char* strategy) {
    const auto programs = lower({job, parse_strategy(strategy), framework});
    return replay_allocations(programs[0], framework, kNoLimit).allocated;
  };
  const double logits = double(job.sequence * job.vocab);
  const Bytes whole = peak("mp=1"), parts = peak("mp=2");
  EXPECT_GT(double(parts.count()), double(whole.count()) - 2.0 * logits)
      << "two ranks halve no more than the head's own output";
  framework.memory.loss = LossMemory::by_op;
  EXPECT_LT(double(peak("mp=2").count()), double(parts.count()) - 4.0 * logits)
      << "f32 logits of half of the vocabulary, and none of the micro-batch before";
}

// The other buffer of a stage contains the logits of the micro-batch before, if there was one.
TEST(AllocationReplay, LogitsOfTheMicroBatchBeforeStay) {
  Job job = nano();
  job.precision = DType::bf16;
  job.vocab = 1 << 16;
  job.sequence = 1024;
  const Framework framework = framework_by_name("aleph-alpha-scaling");
  const auto peak = [&](std::int64_t micro_batches) {
    job.global_batch = micro_batches;
    const auto programs = lower({job, parse_strategy("mp=1"), framework});
    return replay_allocations(programs[0], framework, kNoLimit).allocated;
  };
  const double logits = 2.0 * double(job.sequence * job.vocab);
  EXPECT_NEAR(double((peak(2) - peak(1)).count()), logits, 0.02 * logits);
  EXPECT_EQ(peak(4), peak(2));
}

// Query, key and value copy the input that they share, and so do gate and up.
TEST(AllocationReplay, SplitLayersCopyTheirInput) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/llama-nano.json");
  job.precision = DType::bf16;
  Framework framework = framework_by_name("paddlenlp");
  const auto peak = [&](const char* strategy) {
    const auto programs = lower({job, parse_strategy(strategy), framework});
    return replay_allocations(programs[0], framework, kNoLimit).allocated;
  };
  const Bytes alone = peak("micro_batch=2"), split = peak("mp=2,micro_batch=2");
  framework.memory.copies.split_inputs = false;
  EXPECT_EQ(peak("micro_batch=2"), alone);
  const double value = 2.0 * double(2 * job.sequence * job.hidden * job.layers);
  EXPECT_NEAR(double((split - peak("mp=2,micro_batch=2")).count()), 3.0 * value, 0.01 * value)
      << "two copies more of a value of 16 bits in attention, one more in the MLP";
}

TEST(AllocationReplay, FormulasOfSeveralOpsKeepTheirOperands) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/llama-nano.json");
  job.precision = DType::bf16;
  Framework framework = framework_by_name("pytorch-fsdp");
  const auto peak = [&] {
    const auto programs = lower({job, parse_strategy("micro_batch=2"), framework});
    return replay_allocations(programs[0], framework, kNoLimit).allocated;
  };
  const Bytes fused = peak();
  framework.kernels.elementwise.by_op = true;
  const Bytes by_op = peak();
  framework.kernels.elementwise.fused_norms = true;
  const Bytes with_norms = peak();
  const double tokens = double(2 * job.sequence * job.layers), hidden = double(job.hidden);
  EXPECT_NEAR(double((by_op - with_norms).count()), 8.0 * tokens * hidden,
              5.0 * tokens * hidden / double(job.layers))
      << "two norms of a layer keep four bytes more each, and the last norm its own";
  EXPECT_GT(with_norms, fused) << "SwiGLU keeps the value of SiLU";
}

// One stand-in for each shape of a layer's weights stays, whatever the number of layers; the head's
// goes with its hook.
TEST(AllocationReplay, TensorsStandInForGradientsThatMatmulsAdd) {
  Job job = nano();
  job.precision = DType::bf16;
  Framework framework = framework_by_name("megatron-lm");
  const auto at_end = [&](std::int64_t layers, bool stands_in) {
    job.layers = layers;
    framework.memory.copies.gradient_placeholders = stands_in;
    const auto programs = lower({job, Strategy(), framework});
    return replay_allocations(programs[0], framework, kNoLimit, AliveAtPeak::list);
  };
  std::map<std::string, std::int64_t> counts;
  for (const AliveTensors& alive : at_end(4, true).alive) {
    if (alive.name.starts_with("in_place_of_gradient")) counts[alive.name] += alive.count;
  }
  EXPECT_EQ(counts.size(), 4u)
      << "query, key and value; projection; both of the feed-forward layer";
  for (const auto& [name, count] : counts) EXPECT_EQ(count, 1) << name;
  const Bytes more = at_end(4, true).allocated - at_end(4, false).allocated;
  EXPECT_GE(more, at_end(2, true).allocated - at_end(2, false).allocated - Bytes(4096));
  const std::int64_t weights = 12 * job.hidden * job.hidden;  // of one GPT layer
  EXPECT_NEAR(double(more.count()), 2.0 * double(weights), 0.6 * double(weights));
  framework.kernels.products.add_gradients = false;
  EXPECT_EQ(at_end(4, true).allocated, at_end(4, false).allocated) << "no matmul adds a gradient";
}

TEST(AllocationReplay, GradientsOfTheirOwnTypeAreCopiedByTheUpdate) {
  Job job = nano();
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  const Framework framework = framework_by_name("megatron-deepspeed");
  const auto programs = lower({job, Strategy(), framework});
  const AllocatorUse use = replay_allocations(programs[0], framework, kNoLimit, AliveAtPeak::list);
  std::int64_t elements = 0;
  for (const Segment& segment : programs[0].segments) elements += segment.elements;
  // At the update: gradients of two bytes, flat copies of two and of four.
  EXPECT_NEAR(double(use.by_role[std::size_t(TensorRole::gradient)].count()),
              8.0 * double(elements), 512.0 * double(programs[0].segments.size() + 2));
}

// DeepSpeed's BF16_Optimizer: gradients of two bytes, and sums of four bytes of all parameters. The
// update reads the sums in place.
TEST(AllocationReplay, GradientsOfBf16AreAlsoSummedInF32) {
  Job job = nano();
  job.precision = DType::bf16;
  const Framework framework = framework_by_name("megatron-deepspeed");
  for (const char* text : {"dp=1", "sharding_degree=2,sharding_stage=1"}) {
    SCOPED_TRACE(text);
    const auto programs = lower({job, parse_strategy(text), framework});
    const AllocatorUse use =
        replay_allocations(programs[0], framework, kNoLimit, AliveAtPeak::list);
    std::int64_t elements = 0;
    for (const Segment& segment : programs[0].segments) elements += segment.elements;
    EXPECT_NEAR(double(use.by_role[std::size_t(TensorRole::gradient)].count()),
                6.0 * double(elements), 512.0 * double(programs[0].segments.size() + 2));
    if (programs[0].sharding_degree == 1) continue;  // the rank owns all of them
    Framework narrow = framework;
    narrow.memory.gradients = GradientMemory::as_computed;
    EXPECT_LT(replay_allocations(programs[0], narrow, kNoLimit)
                  .by_role[std::size_t(TensorRole::gradient)],
              Bytes(elements * 6))
        << "no f32 sums of what the rank does not own";
  }
}

// The update copies f32 gradients once, into the flat tensor that ranks reduce.
TEST(AllocationReplay, GradientsInF32AreCopiedOnce) {
  const Framework framework = framework_by_name("megatron-deepspeed");
  for (const char* text : {"dp=1", "dp=2"}) {
    const auto programs = lower({nano(), parse_strategy(text), framework});
    std::int64_t elements = 0;
    for (const Segment& segment : programs[0].segments) elements += segment.elements;
    const AllocatorUse use =
        replay_allocations(programs[0], framework, kNoLimit, AliveAtPeak::list);
    EXPECT_NEAR(double(use.by_role[std::size_t(TensorRole::gradient)].count()),
                8.0 * double(elements), 512.0 * double(programs[0].segments.size() + 1))
        << text;
  }
}

// A loss that is several ops keeps logits in the model's type, whatever that is.
TEST(AllocationReplay, KeptLogitsHaveTheTypeOfTheModel) {
  Framework framework = framework_by_name("megatron-deepspeed");
  framework.memory.loss = LossMemory::gathered_by_op;
  for (const DType type : {DType::f32, DType::bf16}) {
    Job job = nano();
    job.precision = type;
    const auto programs = lower({job, parse_strategy("dp=1"), framework});
    const Bytes logits = job.sequence * job.vocab * bytes_of(type);
    std::vector<Bytes> kept;
    for (const Routine& routine : programs[0].routines) {
      TensorNames names;
      for (const TensorStorage& storage : read_events(routine, framework, names).storages) {
        if (names[storage.name].ends_with(".of_last")) kept.push_back(storage.bytes);
      }
    }
    EXPECT_EQ(kept, std::vector{logits}) << to_text(type);
  }
}

// As DeepSpeed's ZeRO-2 and 3 have it: shards of two bytes for good, and four in the update.
TEST(AllocationReplay, ScatteredGradientsStayAsShards) {
  Job job = nano();
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  Framework framework = framework_by_name("megatron-deepspeed");
  for (const char* text :
       {"sharding_degree=2,sharding_stage=2", "sharding_degree=2,sharding_stage=3"}) {
    SCOPED_TRACE(text);
    const auto programs = lower({job, parse_strategy(text), framework});
    const auto use = [&] { return replay_allocations(programs[0], framework, kNoLimit); };
    const auto bytes = [&](TensorRole role) { return use().by_role[std::size_t(role)]; };
    const double owned = double(owned_elements(programs[0]));
    const double gradients = double(bytes(TensorRole::gradient).count());
    EXPECT_GE(gradients, 6 * owned);
    EXPECT_LT(gradients, 7 * owned) << "a layer's, too, but no f32 shards";
    const Bytes whole = use().allocated;
    const auto offloaded = lower(
        {job, parse_strategy(std::string(text) + ",offload_optimizer_percent=100"), framework});
    const auto rest = [&] { return replay_allocations(offloaded[0], framework, kNoLimit); };
    const auto rest_of = [&](TensorRole role) { return rest().by_role[std::size_t(role)]; };
    EXPECT_EQ(rest_of(TensorRole::master_parameter), Bytes());
    EXPECT_EQ(rest_of(TensorRole::optimizer_state), Bytes());
    EXPECT_GT(rest_of(TensorRole::parameter), Bytes());
    EXPECT_LT(rest().allocated, whole - Bytes(std::int64_t(8 * owned)));
    Strategy strategy = parse_strategy(std::string(text) + ",offload_optimizer_percent=100");
    if (strategy.sharding_stage < 3) continue;
    strategy.gathers.offload = true;
    const auto on_host = lower({job, strategy, framework});
    EXPECT_EQ(replay_allocations(on_host[0], framework, kNoLimit)
                  .by_role[std::size_t(TensorRole::parameter)],
              Bytes());
  }
}

TEST(AllocationReplay, CheckpointsAreSplitOrOnTheHost) {
  Job job = nano();
  job.layers = 16;
  job.sequence = 512;
  job.global_batch = 16;
  job.precision = DType::f16;
  Framework framework = framework_by_name("megatron-deepspeed");
  const auto programs =
      lower({job, parse_strategy("mp=2,micro_batch=8,recompute=full"), framework});
  const auto saved = [&] {
    const AllocatorUse use = replay_allocations(programs[0], framework, kNoLimit);
    return use.by_role[std::size_t(TensorRole::saved)];
  };
  const Bytes border(8 * job.sequence * job.hidden * 2);
  const Bytes whole = saved();
  EXPECT_GE(whole, job.layers * border);
  framework.memory.checkpoints = CheckpointMemory::split;
  EXPECT_EQ(saved(), whole - (job.layers - 2) * Bytes(border.count() / 2))
      << "one layer's is whole again, beside its part";
  framework.memory.checkpoints = CheckpointMemory::on_host;
  EXPECT_EQ(saved(), whole - (job.layers - 1) * border);
}

TEST(AllocationReplay, ZeroesAndSumsInPlaceTakeNothing) {
  Job job = nano();
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  const Framework framework = framework_by_name("megatron-lm-2021");
  ASSERT_FALSE(framework.kernels.products.add_gradients);
  const auto programs = lower({job, parse_strategy("sharding_degree=2,sharding_stage=3"),
                               framework_by_name("megatron-deepspeed")});
  TensorNames names;
  int fresh = 0;
  for (const Routine& routine : programs[0].routines) {
    const RoutineEvents events = read_events(routine, framework, names);
    const bool computes = std::any_of(routine.ops.begin(), routine.ops.end(), [](const Op& op) {
      return op.kind == OpKind::matmul || op.kind == OpKind::embedding_backward ||
             op.kind == OpKind::position_add_backward;
    });
    for (const TensorStorage& storage : events.storages) {
      if (!names[storage.name].ends_with(".new")) continue;
      EXPECT_TRUE(computes) << routine.name << ": " << names[storage.name];
      ++fresh;
    }
  }
  EXPECT_GT(fresh, 0);
}

}  // namespace
}  // namespace plimsoll
