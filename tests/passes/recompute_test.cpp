// Layers keep and repeat as much as the published count of activation bytes says (Korthikanti et
// al. 2022, arXiv 2205.05198, section 4), and repeat their forward work.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kLength = 64, kSequences = 2, kWidth = 128, kHeadCount = 8;

/// A layer of the paper: ffn 4h, 16 bits.
Job paper_job() {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.precision = DType::bf16;
  job.sequence = kLength;
  job.hidden = kWidth;
  job.heads = job.kv_heads = kHeadCount;
  job.ffn_hidden = 4 * kWidth;
  return job;
}

Program lowered(const char* framework_name, const std::string& strategy, double dropout = 0) {
  Job job = paper_job();
  job.dropout = dropout;
  const Framework framework = framework_by_name(framework_name);
  const Strategy parsed =
      parse_strategy("micro_batch=" + std::to_string(kSequences) + "," + strategy);
  return lower({job, parsed, framework})[0];
}

/// Returns the bytes that a layer keeps from forward to backward: its saved bundle and its input.
std::int64_t kept_bytes(const Program& program) {
  const auto layer =
      std::find_if(program.routines.begin(), program.routines.end(),
                   [](const Routine& routine) { return routine.name == "layer.backward"; });
  std::int64_t bytes = 0;
  for (const Slot& slot : layer->slots) {
    if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input) bytes += slot.bytes.count();
  }
  return bytes;
}

TEST(Recompute, LayersKeepTheBytesOfThePaper) {
  // Table 2's sbh (10 + 24/t + 5 as/(ht)) without what dropout keeps: masks of sbh after both
  // halves and of as^2 b in attention, and 2 as^2 b of its output. Norm statistics, four f32 per
  // token, are not in the paper.
  const std::int64_t sbh = kLength * kSequences * kWidth;
  const std::int64_t scores = kHeadCount * kLength * kLength * kSequences;
  const std::int64_t statistics = 4 * 4 * kLength * kSequences;
  for (const std::int64_t t : {1, 2, 4}) {
    const std::string mp = "mp=" + std::to_string(t);
    const std::int64_t rest = 8 * sbh + 24 * sbh / t + statistics;
    EXPECT_EQ(kept_bytes(lowered("megatron-lm-2021", mp)), rest + 2 * scores / t) << t;
    EXPECT_EQ(kept_bytes(lowered("megatron-lm-2022", mp + ",recompute=selective")), rest) << t;
    // Flash attention keeps one f32 per row of scores.
    EXPECT_EQ(kept_bytes(lowered("megatron-lm", mp)),
              rest + 4 * kHeadCount * kLength * kSequences / t)
        << t;
    if (t > 1) {  // split by tokens between the split layers too: all of it by t, sections 4.2.2, 5
      const std::string tokens = mp + ",sequence_parallel=true";
      const std::int64_t split = (32 * sbh + statistics) / t;
      EXPECT_EQ(kept_bytes(lowered("megatron-lm-2022", tokens)), split + 2 * scores / t) << t;
      EXPECT_EQ(kept_bytes(lowered("megatron-lm-2022", tokens + ",recompute=selective")), split)
          << t;
      EXPECT_EQ(kept_bytes(lowered("megatron-lm-2022", tokens + ",recompute=full")), 2 * sbh / t)
          << t;
    }
    // Full recompute: the layer's input, 2 sbh.
    EXPECT_EQ(kept_bytes(lowered("megatron-lm-2021", mp + ",recompute=full")), 2 * sbh) << t;
  }
}

TEST(Recompute, WithDropoutLayersKeepAllThatThePaperCounts) {
  const std::int64_t sbh = kLength * kSequences * kWidth;
  const std::int64_t scores = kHeadCount * kLength * kLength * kSequences;  // as^2 b
  const std::int64_t statistics = 4 * 4 * kLength * kSequences;  // of norms: not counted there
  const auto kept = [](const std::string& strategy) {
    return kept_bytes(lowered("megatron-lm-2022", strategy, 0.1));
  };
  // Equation 1: sbh (34 + 5 as/h).
  EXPECT_EQ(kept("mp=1"), 34 * sbh + 5 * scores + statistics);
  for (const std::int64_t t : {2, 4, 8}) {
    const std::string mp = "mp=" + std::to_string(t), tokens = mp + ",sequence_parallel=true";
    // Equation 2, tensor parallel: sbh (10 + 24/t + 5 as/(ht)).
    EXPECT_EQ(kept(mp), 10 * sbh + (24 * sbh + 5 * scores) / t + statistics) << t;
    // Table 2: with sequence parallelism all of it by t; selective recompute drops the scores; full
    // recompute keeps the input, here the rank's part of it.
    EXPECT_EQ(kept(tokens), (34 * sbh + 5 * scores + statistics) / t) << t;
    EXPECT_EQ(kept(mp + ",recompute=selective"), 10 * sbh + 24 * sbh / t + statistics) << t;
    EXPECT_EQ(kept(tokens + ",recompute=selective"), (34 * sbh + statistics) / t) << t;
    EXPECT_EQ(kept(mp + ",recompute=full"), 2 * sbh) << t;
    EXPECT_EQ(kept(tokens + ",recompute=full"), 2 * sbh / t) << t;
  }
}

TEST(Recompute, PerOpKeepsAttentionAndEverySecondLinearLayer) {
  // LLaMA with one key and value head for two query heads, as torchtitan has it: products of 1, 2
  // (k, v), 1, 2 (gate, up) and 1 linear layers; kept are the 1st, 3rd, 5th and 7th.
  Job job = paper_job();
  job.family = Family::llama;
  job.tied_embeddings = false;
  job.kv_heads = kHeadCount / 2;
  job.layers = 2;
  const Framework compiled = framework_by_name("torchtitan-compiled");
  const Framework eager = framework_by_name("torchtitan");
  const Strategy strategy =
      parse_strategy("micro_batch=" + std::to_string(kSequences) + ",recompute=per_op");
  ASSERT_TRUE(bool(legal(job, strategy, 1)) && bool(legal(eager, strategy)));
  EXPECT_FALSE(legal(bundled_framework(), strategy));
  const std::int64_t sbh = kLength * kSequences * kWidth;
  const std::int64_t sums = 4 * kHeadCount * kLength * kSequences;
  const auto kept = [&](const Framework& framework, const std::string& block) {
    const Program program = lower({job, strategy, framework})[0];
    const auto layer =
        std::find_if(program.routines.begin(), program.routines.end(),
                     [&](const Routine& routine) { return routine.name == block + ".backward"; });
    std::int64_t bytes = 0;
    for (const Slot& slot : layer->slots) {
      if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input) bytes += slot.bytes.count();
    }
    return bytes;
  };
  // The input, q and attention's output; of k and v and of gate and up each layer would keep half:
  // one keeps both, the next none.
  const std::int64_t always = 3 * 2 * sbh + sums, halves = 2 * sbh + 2 * 8 * sbh;
  EXPECT_EQ(kept(compiled, "layer"), always + halves);
  EXPECT_EQ(kept(compiled, "layer.recomputing"), always);
  // The output of the last product is kept, though no op reads it again.
  EXPECT_EQ(kept(eager, "layer"), always + halves + 2 * sbh);
}

/// "name layer" of each backward call of a layer in a step of one micro-batch.
std::vector<std::string> layer_backwards(const std::string& strategy, std::size_t stage) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.global_batch = 1;
  const Framework framework = bundled_framework();
  const Strategy parsed = parse_strategy(strategy);
  const Program program = lower({job, parsed, framework})[stage];
  std::vector<std::string> calls;
  for (const Call& call : program.calls) {
    const std::string& name = program.at(call.routine).name;
    if (!name.starts_with("layer") || !name.ends_with(".backward")) continue;
    calls.push_back(name + " " + std::to_string(*call.layer));
  }
  return calls;
}

TEST(Recompute, TheFirstLayersOfEachStageOrThoseOfAList) {
  using Calls = std::vector<std::string>;
  const std::string first = "pp=2,recompute=full,recompute_layers=1";
  EXPECT_EQ(layer_backwards(first, 0), (Calls{"layer.backward 1", "layer.recomputing.backward 0"}));
  EXPECT_EQ(layer_backwards(first, 1), (Calls{"layer.backward 3", "layer.recomputing.backward 2"}));
  EXPECT_EQ(layer_backwards("recompute=selective,recompute_list=1+2", 0),
            (Calls{"layer.backward 3", "layer.recomputing.backward 2",
                   "layer.recomputing.backward 1", "layer.backward 0"}));
}

TEST(Recompute, EveryLayerMoreKeepsLess) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  const Framework framework = bundled_framework();
  const auto peak = [&](const std::string& strategy) {
    const Strategy parsed = parse_strategy("micro_batch=4," + strategy);
    return memory_peak(lower({job, parsed, framework})[0]).peak;
  };
  const Bytes none = peak("recompute=none"), full = peak("recompute=full");
  Bytes before = none;
  for (int layers = 1; layers <= 4; ++layers) {
    const Bytes now = peak("recompute=full,recompute_layers=" + std::to_string(layers));
    EXPECT_LT(now, before) << layers;
    before = now;
  }
  EXPECT_EQ(before, full);
}

double flops_of(const Program& program, Phase phase) {
  double total = 0;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (!routine.name.starts_with("layer.")) continue;
    for (const Op& op : routine.ops) {
      if (op.phase == phase) total += flops(op, routine.tensors).value();
    }
  }
  return total;
}

TEST(Recompute, CheckpointsRepeatAllOfForwardAndTheBundledRuntimeLess) {
  const Program whole = lowered("megatron-lm-2021", "recompute=full");
  EXPECT_EQ(flops_of(whole, Phase::recompute), flops_of(whole, Phase::forward));
  // The last matmul, 8 bsh^2 of 24 bsh^2 + 4 bs^2 h, gives nothing that backward reads.
  const Program needed = lowered("bundled", "recompute=full");
  const double s = kLength, h = kWidth;
  EXPECT_DOUBLE_EQ(flops_of(needed, Phase::recompute),
                   flops_of(needed, Phase::forward) * (16 * h + 4 * s) / (24 * h + 4 * s));
  // Reentrant checkpoints repeat all, the others stop early.
  const auto left_out = [](const Program& program) {
    return flops_of(program, Phase::forward) - flops_of(program, Phase::recompute);
  };
  EXPECT_EQ(left_out(lowered("megatron-lm", "recompute=full")), 0);
  EXPECT_DOUBLE_EQ(left_out(lowered("pytorch-fsdp", "recompute=full")), left_out(needed));
}

}  // namespace
}  // namespace plimsoll
