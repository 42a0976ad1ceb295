// When a framework reduces gradients and gathers parameters: during backward and forward, or
// beside.
#include "passes/schedule/step_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/verify/verify.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

Job nano(bool tied) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.precision = DType::bf16;
  job.tied_embeddings = tied;
  return job;
}

std::vector<Program> lowered(const Framework& framework, const std::string& strategy,
                             bool tied = false) {
  const Job job = nano(tied);
  const Strategy parsed = parse_strategy(strategy);
  return lower({job, parsed, framework});
}

/// Calls whose only op is of this kind on the data stream, without the loss.
std::vector<std::size_t> calls_of(const Program& program, OpKind kind) {
  std::vector<std::size_t> calls;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Op& op = program.at(program.calls[i].routine).ops[0];
    const bool loss = program.at(program.calls[i].routine).name == "all_reduce.loss";
    if (op.kind == kind && op.stream == Stream::data && !loss) calls.push_back(i);
  }
  return calls;
}

std::vector<std::size_t> calls_in(const Program& program, Phase phase, const std::string& name) {
  std::vector<std::size_t> calls;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Routine& routine = program.at(program.calls[i].routine);
    if (routine.phase == phase && routine.name.find(name) != std::string::npos) calls.push_back(i);
  }
  return calls;
}

TEST(StepCollectives, WithoutOverlapOneReductionFollowsBackward) {
  const Framework framework = framework_by_name("megatron-lm-2021");
  const Program program = lowered(framework, "dp=2,grad_bucket_bytes=16KiB")[0];
  EXPECT_EQ(program.buckets.size(), 1u);
  const auto reductions = calls_of(program, OpKind::all_reduce);
  ASSERT_EQ(reductions.size(), 1u);
  EXPECT_GT(reductions[0], calls_in(program, Phase::backward, "backward").back());
}

TEST(StepCollectives, WithoutOverlapATiedParameterIsReducedOnItsOwn) {
  const Framework framework = framework_by_name("megatron-lm-2021");
  for (const Program& program : lowered(framework, "pp=4,dp=2", true)) {
    const bool end = program.stage == 0 || program.stage == 3;
    const auto reductions = calls_of(program, OpKind::all_reduce);
    EXPECT_EQ(reductions.size(), end ? 2u : 1u);
    EXPECT_GT(reductions[0], calls_in(program, Phase::backward, "backward").back());
  }
}

TEST(StepCollectives, GathersThatDoNotOverlapEndTheStep) {
  const Framework framework = framework_by_name("megatron-lm-2022");
  const Program program = lowered(framework, "sharding_degree=2")[0];
  EXPECT_EQ(calls_of(program, OpKind::all_gather).back() + 1, program.calls.size());
}

TEST(StepCollectives, GathersThatOverlapBeginTheStepInForwardOrder) {
  const Framework framework = framework_by_name("megatron-lm");
  const Program program =
      lowered(framework, "sharding_degree=2,micro_batch=4,grad_bucket_bytes=64KiB")[0];
  const auto gathers = calls_of(program, OpKind::all_gather);
  ASSERT_EQ(gathers.size(), program.buckets.size());
  ASSERT_GT(gathers.size(), 4u);
  Bytes before = program.calls[gathers.front()].bindings[0].offset + Bytes(1);
  for (std::size_t call : gathers) {
    EXPECT_LT(program.calls[call].bindings[0].offset, before);  // the embedding lies last
    before = program.calls[call].bindings[0].offset;
  }
  const auto forwards = calls_in(program, Phase::forward, "forward");
  EXPECT_LT(gathers.back(), forwards.front());
  // Each of the first micro-batch's forwards waits for the gather that covers the lowest byte it
  // reads; the later micro-batches' for none.
  const auto waits_for_gather = [&](std::size_t call) {
    return std::any_of(program.calls[call].waits.begin(), program.calls[call].waits.end(),
                       [&](const Wait& wait) {
                         return wait.call >= gathers.front() && wait.call <= gathers.back();
                       });
  };
  const std::size_t per_micro_batch = 6;  // embedding, 4 layers, head
  for (std::size_t i = 0; i < forwards.size(); ++i) {
    EXPECT_EQ(waits_for_gather(forwards[i]), i < per_micro_batch) << i;
  }
}

// BERT's head without a pooler has no parameters but the embedding's.
TEST(StepCollectives, AHeadWithNothingButTheTiedParameterWaitsForItsGather) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/bert-nano.json");
  job.tied_embeddings = true;
  job.pooler = false;
  const Strategy strategy = parse_strategy("pp=2,sharding_degree=2");
  const Framework framework = bundled_framework();
  const Program program = lower({job, strategy, framework})[1];
  const auto gathers = calls_of(program, OpKind::all_gather);
  const auto heads = calls_in(program, Phase::forward, "head");
  ASSERT_FALSE(gathers.empty());
  ASSERT_FALSE(heads.empty());
  const auto& waits = program.calls[heads[0]].waits;
  EXPECT_TRUE(std::any_of(waits.begin(), waits.end(), [&](const Wait& wait) {
    return std::find(gathers.begin(), gathers.end(), wait.call) != gathers.end();
  }));
}

/// Calls of the routine of this name.
std::int64_t calls_named(const Program& program, const std::string& name) {
  return std::count_if(program.calls.begin(), program.calls.end(),
                       [&](const Call& call) { return program.at(call.routine).name == name; });
}

// The partial gradients are those of norms, and of biases behind row-parallel layers, in 4 layers
// and the head.
TEST(GradientReductions, PartialGradientsAreSummedOnceWhereAllOfThemIsKept) {
  const std::string fields = "mp=2,sequence_parallel=true,micro_batch=2,";
  const Framework framework = bundled_framework();
  const Program kept = lowered(framework, fields + "dp=2,grad_reduction=per_micro_batch")[0];
  ASSERT_EQ(kept.micro_batches, 4);
  EXPECT_EQ(calls_named(kept, "all_reduce.kept.mp"), 5);
  EXPECT_EQ(calls_named(kept, "all_reduce.mp"), 0);
  EXPECT_EQ(calls_named(kept, "all_reduce.dp"), 4 * std::int64_t(kept.buckets.size()));
  // Parts of a bucket begin elsewhere on every rank.
  const Program parts = lowered(framework, fields + "sharding_degree=2,sharding_stage=2")[0];
  EXPECT_EQ(calls_named(parts, "all_reduce.kept.mp"), 0);
  EXPECT_EQ(calls_named(parts, "all_reduce.mp"), 4 * 5);
}

Bytes sent_in(const Program& program, OpKind kind) {
  Bytes bytes;
  for (const std::size_t call : calls_of(program, kind)) {
    const Routine& routine = program.at(program.calls[call].routine);
    bytes += bytes_of(routine.tensors[routine.ops[0].inputs[0].index()]);
  }
  return bytes;
}

// Half the bytes; the update begins with one cast, which waits for all reductions.
TEST(StepCollectives, GradientsOfTheJobsTypeAreCastOnce) {
  for (const char* name : {"bundled", "megatron-lm-2021"}) {
    const Framework framework = framework_by_name(name);
    for (const std::string fields :
         {"dp=2,micro_batch=2", "pp=2,dp=2", "dp=2,flatten=none,gradient_merge=tensor",
          "dp=2,flatten=coalesced,gradient_merge=fused"}) {
      const auto wide = lowered(framework, fields, true);
      const auto narrow = lowered(framework, fields + ",gradient_type=computed", true);
      for (std::size_t stage = 0; stage < wide.size(); ++stage) {
        EXPECT_EQ(2 * sent_in(narrow[stage], OpKind::all_reduce),
                  sent_in(wide[stage], OpKind::all_reduce))
            << name << ": " << fields;
        std::vector<std::size_t> casts;
        for (std::size_t c = 0; c < narrow[stage].calls.size(); ++c) {
          const Routine& routine = narrow[stage].at(narrow[stage].calls[c].routine);
          if (routine.phase != Phase::optimizer || routine.ops[0].kind != OpKind::cast) continue;
          casts.push_back(c);
          EXPECT_EQ(routine.tensors[routine.ops[0].inputs[0].index()].dtype, DType::bf16);
          EXPECT_EQ(routine.tensors[routine.ops[0].outputs[0].index()].dtype, DType::f32);
        }
        ASSERT_EQ(casts.size(), 1u) << name << ": " << fields;
        const auto& waits = narrow[stage].calls[casts[0]].waits;
        for (const std::size_t reduction : calls_of(narrow[stage], OpKind::all_reduce)) {
          EXPECT_TRUE(std::any_of(waits.begin(), waits.end(),
                                  [&](const Wait& wait) { return wait.call == reduction; }));
        }
      }
    }
  }
}

// DeepSpeed's optimizer for bf16: an all-reduce of all gradients, and a gather of parameters.
TEST(StepCollectives, ShardsOfF32SumsOfBf16GradientsGetTheWholeSum) {
  const Framework framework = framework_by_name("megatron-deepspeed");
  const auto whole = lowered(framework, "pp=2,sharding_degree=4");
  const auto plain = lowered(framework, "pp=2,dp=4");
  const auto narrow = lowered(framework, "pp=2,sharding_degree=4,gradient_type=computed");
  for (std::size_t stage = 0; stage < whole.size(); ++stage) {
    const Bytes sums = sent_in(plain[stage], OpKind::all_reduce);  // without padding to 4 parts
    EXPECT_GE(sent_in(whole[stage], OpKind::all_reduce), sums);
    EXPECT_LT(100 * sent_in(whole[stage], OpKind::all_reduce), 101 * sums);
    EXPECT_TRUE(calls_of(whole[stage], OpKind::reduce_scatter).empty());
    EXPECT_FALSE(calls_of(whole[stage], OpKind::all_gather).empty());
    EXPECT_FALSE(calls_of(narrow[stage], OpKind::reduce_scatter).empty());
  }
}

TEST(StepCollectives, OverlapsMoveNoBytes) {
  Framework framework = framework_by_name("megatron-lm");
  const auto peaks = [&] {
    std::vector<Bytes> result;
    for (const Program& p : lowered(framework, "pp=2,sharding_degree=2", true)) {
      result.push_back(memory_peak(p).peak);
    }
    return result;
  };
  const std::vector<Bytes> overlapped = peaks();
  framework.parallelism.overlap.param_gather = false;
  EXPECT_EQ(peaks(), overlapped);
}

// lower() proves the order of calls and of accesses to memory, for a device whose streams run by
// themselves.
TEST(StepCollectives, EveryFrameworkLowersEveryKindOfStrategy) {
  for (const Framework& framework : all_frameworks()) {
    for (const char* strategy :
         {"mp=2", "mp=2,pp=2,dp=2", "pp=4,sharding_degree=2,micro_batch=2",
          "mp=2,pp=2,dp=2,sharding_degree=2,recompute=full", "dp=2,recompute=selective",
          "pp=2,grad_bucket_bytes=4KiB,dp=2", "mp=2,pp=2,dp=2,gradient_type=computed",
          "sharding_degree=2,gradient_type=computed"}) {
      if (!legal(framework, parse_strategy(strategy))) continue;
      for (bool tied : {false, true}) {
        for (const Program& program : lowered(framework, strategy, tied)) {
          EXPECT_TRUE(verify(program)) << framework.name << ": " << strategy;
        }
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
