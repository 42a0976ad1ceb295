// The schedule and the memory plan: order of calls, lifetimes of sends, buckets, addresses.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "graph/op_table.h"
#include "graph/verify/verify.h"
#include "passes/layout/plan_memory.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job nano_to_schedule() {
  return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
}

std::vector<Program> scheduled(const std::string& strategy, Job job = nano_to_schedule()) {
  const Strategy parsed = parse_strategy(strategy);
  const Framework framework = bundled_framework();
  return lower({job, parsed, framework});
}

/// "F0 F1 B0 ..." of the first layer of the stage.
std::string order_of(const Program& program) {
  std::string order;
  std::optional<std::int64_t> layer;
  for (const Call& call : program.calls) {
    const std::string& name = program.at(call.routine).name;
    if (!name.starts_with("layer.")) continue;
    if (!layer) layer = call.layer;
    if (call.layer != layer) continue;
    order += (order.empty() ? "" : " ") + std::string(name == "layer.forward" ? "F" : "B") +
             std::to_string(*call.micro_batch);
  }
  return order;
}

TEST(Schedule, OneForwardOneBackwardHasWarmUpByDistanceToTheEnd) {
  const auto programs = scheduled("pp=4,micro_batch=4");  // 4 micro-batches
  EXPECT_EQ(order_of(programs[0]), "F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(order_of(programs[1]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(order_of(programs[2]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(order_of(programs[3]), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, FewerMicroBatchesThanStagesStillRun) {
  const auto programs = scheduled("pp=4,micro_batch=16");  // 1 micro-batch
  for (const Program& program : programs) EXPECT_EQ(order_of(program), "F0 B0");
}

/// PyTorch's fully_shard copies what it gathered to a tensor for each parameter, on the stream that
/// computes.
TEST(Schedule, FlatGathersAreCopiedOutBeforeTheirUse) {
  const auto copies = [](const char* framework) {
    const Strategy strategy = parse_strategy("sharding_degree=4,sharding_stage=3,micro_batch=4");
    const Program program =
        lower({nano_to_schedule(), strategy, framework_by_name(framework)}).front();
    Bytes gathered, copied;
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      if (routine.ops.size() != 1 || routine.phase == Phase::optimizer) continue;
      const Op& op = routine.ops[0];
      if (op.kind == OpKind::all_gather)
        gathered += bytes_of(routine.tensors[op.outputs[0].index()]);
      if (op.kind == OpKind::coalesce && op.stream == Stream::compute)
        copied += bytes_of(routine.tensors[op.outputs[0].index()]);
    }
    return std::pair(gathered, copied);
  };
  const auto [gathered, copied] = copies("torchtitan");
  EXPECT_GT(gathered, Bytes(0));
  EXPECT_EQ(copied, gathered);
  EXPECT_EQ(copies("pytorch-fsdp").second, Bytes(0)) << "parameters are views of what is gathered";
}

/// Most send buffers of a name that are alive in one call.
std::size_t most_alive(const Program& program, const std::string& name) {
  std::size_t most = 0;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    const auto alive =
        std::count_if(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) {
          return buffer.name == name && buffer.begin <= call && call < buffer.end;
        });
    most = std::max(most, std::size_t(alive));
  }
  return most;
}

TEST(Schedule, SendsNeverHoldMoreThanTheirSlots) {
  for (int slots : {1, 2, 3}) {
    const auto programs = scheduled("pp=4,send_slots=" + std::to_string(slots));
    EXPECT_EQ(most_alive(programs[0], "sent_activation"), std::size_t(slots));
    EXPECT_EQ(most_alive(programs[3], "sent_gradient"), std::size_t(slots));
  }
}

TEST(Schedule, RecomputeKeepsInputsOnly) {
  const auto saved = [](const Program& program) {
    return std::count_if(program.buffers.begin(), program.buffers.end(),
                         [](const Buffer& b) { return b.name == "saved"; });
  };
  const Program none = scheduled("micro_batch=16")[0],
                full = scheduled("micro_batch=16,recompute=full")[0];
  EXPECT_EQ(saved(none), 6);  // embedding, 4 layers, head
  EXPECT_EQ(saved(full), 2);  // embedding and head
  EXPECT_LT(memory_peak(full).by_role[std::size_t(TensorRole::saved)],
            memory_peak(none).by_role[std::size_t(TensorRole::saved)]);
}

TEST(Schedule, BucketsArePostedWhenTheirGradientsAreComplete) {
  // 16 KiB hold no layer's largest weight (64 x 256 x 4 B = 64 KiB), so buckets follow tensors.
  const Program program = scheduled("dp=2,grad_bucket_bytes=16KiB")[0];
  EXPECT_GT(program.buckets.size(), 20u);
  std::size_t last_backward = 0, first_reduction = program.calls.size(), reductions = 0;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Routine& routine = program.at(program.calls[i].routine);
    if (routine.phase == Phase::backward) last_backward = i;
    if (routine.name != "all_reduce.dp") continue;
    first_reduction = std::min(first_reduction, i);
    ++reductions;
    EXPECT_FALSE(program.calls[i].waits.empty());
  }
  EXPECT_EQ(reductions, program.buckets.size());
  EXPECT_LT(first_reduction, last_backward)
      << "the head's bucket does not wait for the embedding's backward";
}

TEST(Schedule, ZeroBubblePostsBucketsAtTheLastWeightGradients) {
  for (const Program& program : scheduled("pp=2,dp=2,schedule=zb_h1,grad_bucket_bytes=16KiB")) {
    std::size_t last_weight = 0, first_reduction = program.calls.size(), reductions = 0, update = 0;
    for (std::size_t i = 0; i < program.calls.size(); ++i) {
      const Routine& routine = program.at(program.calls[i].routine);
      if (routine.phase == Phase::backward_weight) last_weight = i;
      if (routine.name == "optimizer") update = i;
      if (routine.name != "all_reduce.dp") continue;
      first_reduction = std::min(first_reduction, i);
      ++reductions;
      // A norm's gradients are written with that of its input, the others later; both by the last
      // micro-batch.
      ASSERT_FALSE(program.calls[i].waits.empty());
      for (const Wait& wait : program.calls[i].waits) {
        const Call& awaited = program.calls[wait.call];
        EXPECT_EQ(awaited.micro_batch, program.micro_batches - 1);
        EXPECT_TRUE(wait.port);
      }
    }
    EXPECT_EQ(reductions, program.buckets.size());
    EXPECT_LT(first_reduction, last_weight);
    EXPECT_LT(last_weight, update);
  }
}

// Backward begins with a gather of tokens into its frame, which may lie where an add of the
// schedule between the two calls still reads.
TEST(Schedule, CallsThatBeginWithACommunicationWaitForAllComputationBefore) {
  const Program program =
      scheduled("mp=2,dp=2,sequence_parallel=true,grad_reduction=per_micro_batch")[0];
  std::size_t last_compute = 0, begin_elsewhere = 0, after_adds = 0;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Routine& routine = program.at(program.calls[i].routine);
    const Op& first = routine.ops[0];
    if (routine.frame_bytes > Bytes(0) && first.stream != Stream::compute) {
      ++begin_elsewhere;
      const std::string& before = program.at(program.calls[last_compute].routine).name;
      after_adds += before == "add_gradients" || before == "zero_gradients" ? 1 : 0;
      const std::vector<Wait>& waits = program.calls[i].waits;
      EXPECT_EQ(std::count(waits.begin(), waits.end(), Wait{last_compute, {}}), 1) << i;
    }
    const bool computes = std::any_of(routine.ops.begin(), routine.ops.end(),
                                      [](const Op& op) { return op.stream == Stream::compute; });
    if (computes) last_compute = i;
  }
  EXPECT_GT(begin_elsewhere, 0u);
  EXPECT_GT(after_adds, 0u);
}

TEST(Schedule, BucketsCoverEveryParameterOnceAndSplitEvenly) {
  for (const char* strategy : {"sharding_degree=4,grad_bucket_bytes=4KiB",
                               "mp=2,sharding_degree=2,dp=2,grad_bucket_bytes=64KiB"}) {
    const Program program = scheduled(strategy)[0];
    std::int64_t parameters = 0;
    for (const Segment& segment : program.segments) parameters += segment.elements;
    std::int64_t covered = 0;
    for (const Bucket& bucket : program.buckets) {
      EXPECT_EQ(bucket.elements % (16 * program.sharding_degree), 0);
      covered += bucket.elements;
    }
    EXPECT_GE(covered, parameters);
    EXPECT_LT(covered,
              parameters + std::int64_t(program.segments.size()) * 16 * program.sharding_degree);
  }
}

TEST(Schedule, ShardedStatesShrinkByTheDegree) {
  const auto states = [](const Program& program) {
    return memory_peak(program).by_role[std::size_t(TensorRole::optimizer_state)].count();
  };
  const std::int64_t whole = states(scheduled("dp=4")[0]);
  const std::int64_t part = states(scheduled("sharding_degree=4")[0]);
  EXPECT_NEAR(double(part), double(whole) / 4, double(whole) * 0.02);  // padding
}

TEST(Schedule, ReplicatedParametersCountOnceInTheNorm) {
  const auto programs = scheduled("mp=2");
  for (const Segment& segment : programs[0].segments) {
    EXPECT_EQ(segment.norm_weight, segment.split ? 1.0 : 0.5) << segment.parameter;
  }
}

TEST(Schedule, TiedEmbeddingsAreSummedOverTheEndsAndCountedOnce) {
  Job job = nano_to_schedule();
  job.tied_embeddings = true;
  const auto programs = scheduled("pp=4,dp=2", job);
  double weight = 0;
  for (const Program& program : programs) {
    const auto tied = std::count_if(
        program.calls.begin(), program.calls.end(),
        [&](const Call& call) { return program.at(call.routine).name == "all_reduce.pp:ends"; });
    EXPECT_EQ(tied, program.stage == 0 || program.stage == 3 ? 1 : 0);
    for (const Segment& segment : program.segments) {
      if (segment.parameter == "embedding.word") weight += segment.norm_weight;
    }
  }
  EXPECT_EQ(weight, 1.0);
}

TEST(PlanMemory, LaysOutWithoutOverlapAndCloseToThePeak) {
  const auto close = [](const std::vector<Program>& programs, double most,
                        const std::string& name) {
    for (const Program& program : programs) {
      const double peak = double(memory_peak(program).peak.count()),
                   arena = double(program.arena_bytes.count());
      EXPECT_GE(arena, peak) << name;
      EXPECT_LE(arena, peak * most) << name;
    }
  };
  for (const char* strategy : {"mp=1", "pp=4", "pp=2,recompute=full", "mp=2,pp=2,micro_batch=2"}) {
    close(scheduled(strategy), 1.10, strategy);
  }
  // Large frames beside small saved inputs, over many micro-batches.
  const Job large =
      read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/jobs/gpt3-1.3b.json");
  close(scheduled("pp=8,recompute=full", large), 1.10, "gpt3-1.3b");
}

TEST(PlanMemory, GuardsMoveAddressesOnly) {
  Program program = scheduled("pp=2")[0];
  const MemoryPeak before = memory_peak(program);
  plan_memory(program, Bytes(64));
  EXPECT_EQ(memory_peak(program).peak, before.peak);
  EXPECT_TRUE(verify(program)) << verify(program).reason();
  for (Buffer& buffer : program.buffers) buffer.bytes += Bytes(64);
  EXPECT_EQ(verify(program).reason().find("overlap"), std::string::npos)
      << "64 B behind every buffer are free";
}

RC_GTEST_PROP(PlanMemory, RandomLifetimesNeverOverlap, ()) {
  Program program;
  program.routines.resize(1);
  program.calls.resize(*rc::gen::inRange<std::size_t>(1, 30));
  const std::size_t buffers = *rc::gen::inRange<std::size_t>(1, 60);
  for (std::size_t i = 0; i < buffers; ++i) {
    Buffer buffer;
    buffer.bytes = Bytes(*rc::gen::inRange<std::int64_t>(1, 5000));
    buffer.begin = *rc::gen::inRange<std::size_t>(0, program.calls.size());
    buffer.end = *rc::gen::inRange<std::size_t>(buffer.begin + 1, program.calls.size() + 1);
    program.buffers.push_back(buffer);
  }
  plan_memory(program);
  for (std::size_t i = 0; i < buffers; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Buffer &a = program.buffers[i], &b = program.buffers[j];
      if (a.end <= b.begin || b.end <= a.begin) continue;
      RC_ASSERT(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
    }
  }
  RC_ASSERT(program.arena_bytes >= memory_peak(program).peak);
}

}  // namespace
}  // namespace plimsoll
