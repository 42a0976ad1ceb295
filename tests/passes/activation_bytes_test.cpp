// The values that a GPT layer keeps for backward in Megatron-LM are compared with the formulas of
// Korthikanti et al. 2022, arXiv 2205.05198, section 4: s sequence, b micro-batch, h hidden, a
// heads, t mp; 16-bit values, dropout masks of one byte.
#include <gtest/gtest.h>

#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kSequence = 128, kMicroBatch = 2, kHidden = 512, kHeads = 8;
constexpr double kTokenBytes = double(kSequence * kMicroBatch * kHidden);  // s b h
constexpr double kScores = 5.0 * kHeads * kSequence / kHidden;             // 5 a s / h

Job layer_job(double dropout) {
  Job job;
  job.name = "layers";
  job.layers = 2;
  job.hidden = kHidden;
  job.heads = job.kv_heads = kHeads;
  job.ffn_hidden = 4 * kHidden;
  job.vocab = 1024;
  job.sequence = kSequence;
  job.global_batch = kMicroBatch;
  job.precision = DType::bf16;
  job.dropout = dropout;
  return job;
}

/// Bytes of one layer between its forward and its backward: its bundle and its input.
double kept(const std::string& fields, double dropout) {
  Strategy strategy = parse_strategy(fields);
  strategy.micro_batch = kMicroBatch;
  const Framework framework = framework_by_name("megatron-lm-2022");
  const Job job = layer_job(dropout);
  const Graph graph = lower_graph({job, strategy, framework});
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, strategy));
  Bytes total;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].kind != BlockKind::layer) continue;
    for (const Slot& slot : cut.blocks[b].backward.slots) {
      if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input) total += slot.bytes;
    }
  }
  return double(total.count());
}

/// Mean and reciprocal deviation of two norms, which the paper leaves out: f32 per token.
constexpr double kStatistics = 16.0 * kSequence * kMicroBatch;

TEST(ActivationBytes, OfALayerWithoutParallelism) {  // equation 1
  EXPECT_EQ(kept("mp=1", 0.1), kTokenBytes * (34 + kScores) + kStatistics);
}

TEST(ActivationBytes, WithTensorParallelism) {  // equation 2
  for (const double t : {2, 4, 8}) {
    EXPECT_EQ(kept("mp=" + std::to_string(int(t)), 0.1),
              kTokenBytes * (10 + 24 / t + kScores / t) + kStatistics);
  }
}

TEST(ActivationBytes, WithSequenceParallelism) {  // equation 4
  for (const double t : {2, 4, 8}) {
    EXPECT_EQ(kept("sequence_parallel=true,mp=" + std::to_string(int(t)), 0.1),
              (kTokenBytes * (34 + kScores) + kStatistics) / t);
  }
}

TEST(ActivationBytes, WithSelectiveRecompute) {  // equation 6
  EXPECT_EQ(kept("recompute=selective", 0.1), kTokenBytes * 34 + kStatistics);
}

// Without dropout there is no mask (2 s b h of residual branches, a s^2 b of probabilities), and
// the product reads the probabilities that the softmax wrote.
TEST(ActivationBytes, WithoutDropout) {
  EXPECT_EQ(kept("mp=1", 0), kTokenBytes * (32 + kScores * 2 / 5) + kStatistics);
}

}  // namespace
}  // namespace plimsoll
