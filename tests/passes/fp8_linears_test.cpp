// Linear layers in 8 bits: what a LLaMA layer then keeps, moves and computes, by formulas from its
// sizes; n tokens of a micro-batch, h hidden, f of the feed-forward layer, a heads, t mp.
#include <gtest/gtest.h>

#include <set>

#include "graph/op_table.h"
#include "graph/step_flops.h"
#include "graph/traffic.h"
#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kSequence = 64, kMicroBatch = 2, kMicroBatches = 3, kLayers = 2;
constexpr std::int64_t n = kSequence * kMicroBatch, h = 128, f = 192, a = 4;

Job llama() {
  Job job;
  job.name = "layers";
  job.family = Family::llama;
  job.layers = kLayers;
  job.hidden = h;
  job.heads = job.kv_heads = a;
  job.ffn_hidden = f;
  job.vocab = 256;
  job.sequence = kSequence;
  job.global_batch = kMicroBatch * kMicroBatches;
  job.precision = DType::bf16;
  job.tied_embeddings = false;
  return job;
}

Strategy fields(const std::string& text) {
  Strategy strategy = parse_strategy(text);
  strategy.micro_batch = kMicroBatch;
  return strategy;
}

/// Bytes of one layer between its forward and its backward: its bundle and its input.
std::int64_t kept(const std::string& text) {
  const Job job = llama();
  const Strategy strategy = fields(text);
  const Framework framework = framework_by_name("megatron-lm");
  const Graph graph = lower_graph({job, strategy, framework});
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, strategy));
  std::int64_t total = 0;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].kind != BlockKind::layer) continue;
    for (const Slot& slot : cut.blocks[b].backward.slots) {
      if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input) total += slot.bytes.count();
    }
  }
  return total;
}

Program program(const std::string& text, const Framework& framework) {
  const Job job = llama();
  const Strategy strategy = fields(text);
  return lower({job, strategy, framework}).front();
}

Program program(const std::string& text, const char* framework = "megatron-lm") {
  return program(text, framework_by_name(framework));
}

/// Both norms have f32 values per token, and attention has them per token and head.
constexpr std::int64_t kStatistics = 8 * n + 4 * n * a;

TEST(Fp8Linears, LayersKeepTheirInputsInEightBits) {
  // In 16 bits: the input, two normed ones, q, k and v, attention's output, the middle, the gates
  // and what they give.
  EXPECT_EQ(kept("mp=1"), 2 * n * (8 * h + 3 * f) + kStatistics);
  // In 8: the inputs of four products. Attention's output is read by its own backward, too.
  const std::int64_t narrow = n * (3 * h + f);
  EXPECT_EQ(kept("fp8=delayed"), 2 * n * (6 * h + 2 * f) + narrow + kStatistics);
  for (const char* recipe : {"fp8=current", "fp8=mxfp8", "fp8=blockwise"})
    EXPECT_EQ(kept(recipe), kept("fp8=delayed")) << recipe;
}

TEST(Fp8Linears, TorchaoKeepsInputsAsTheyWere) {
  EXPECT_EQ(kept("fp8=tensorwise"), kept("mp=1"));
  EXPECT_EQ(kept("fp8=rowwise"), kept("mp=1"));
}

TEST(Fp8Linears, WithSequenceParallelismARankKeepsItsPart) {
  // q, k, v, attention's output and the gates are split by columns, the rest by tokens.
  EXPECT_EQ(kept("mp=2,sequence_parallel=true,fp8=delayed"), kept("fp8=delayed") / 2);
}

Bytes buffer_bytes(const Program& of, const std::string& name) {
  Bytes total;
  for (const Buffer& buffer : of.buffers) {
    if (buffer.name == name) total += buffer.bytes;
  }
  return total;
}

TEST(Fp8Linears, WeightsHaveTwoCopiesThatAreMadeOncePerStep) {
  const Program with = program("fp8=delayed");
  EXPECT_EQ(buffer_bytes(with, "weight_copies").count(), kLayers * 2 * (4 * h * h + 3 * h * f));
  std::int64_t calls = 0;
  for (const Call& call : with.calls) {
    calls += with.at(call.routine).name == "layer.weight_copies";
  }
  EXPECT_EQ(calls, kLayers);
  EXPECT_EQ(buffer_bytes(program("fp8=tensorwise"), "weight_copies"), Bytes(0));
  EXPECT_EQ(buffer_bytes(program("fp8=delayed,sharding_degree=3,sharding_stage=3", "pytorch-fsdp"),
                         "weight_copies"),
            Bytes(0));
}

std::int64_t count(const Program& of, OpKind kind) {
  std::int64_t ops = 0;
  for (const Routine& routine : of.routines) {
    for (const Op& op : routine.ops) ops += op.kind == kind;
  }
  return ops;
}

// With one scale for a tensor, a device that multiplies operands as they lie needs one copy of
// each.
TEST(Fp8Linears, OperandsThatAreReadAsTheyLieAreNotTransposed) {
  Framework blackwell = framework_by_name("megatron-lm");
  blackwell.kernels.products.untransposed_fp8 = true;
  const std::int64_t weights = kLayers * (4 * h * h + 3 * h * f);
  for (const char* recipe :
       {"fp8=delayed", "fp8=current", "mp=2,sequence_parallel=true,fp8=delayed"}) {
    const Program lies = program(recipe, blackwell), hopper = program(recipe);
    EXPECT_EQ(count(lies, OpKind::transpose), 0) << recipe;
    EXPECT_EQ(count(lies, OpKind::matmul), count(hopper, OpKind::matmul)) << recipe;
    // Current scaling also has an aligned maximum for each weight.
    EXPECT_NEAR(double(buffer_bytes(lies, "weight_copies").count()),
                double(buffer_bytes(hopper, "weight_copies").count()) / 2, 1024)
        << recipe;
    for (const Routine& routine : lies.routines) {
      for (const Op& op : routine.ops)
        EXPECT_TRUE(op.kind != OpKind::quantize || op.outputs.size() == 1) << recipe;
    }
  }
  EXPECT_EQ(buffer_bytes(program("fp8=delayed,fp8_parameters=true", blackwell), "weight_copies"),
            Bytes(0));
  EXPECT_EQ(buffer_bytes(program("fp8=delayed", blackwell), "weight_copies"), Bytes(weights));
  // Blocks have other scales in the other direction, and torchao transposes on all devices.
  for (const char* recipe : {"fp8=mxfp8", "fp8=blockwise"})
    EXPECT_EQ(program(recipe, blackwell).routines, program(recipe).routines) << recipe;
  Framework torchao = framework_by_name("torchtitan");
  torchao.kernels.products.untransposed_fp8 = true;
  EXPECT_EQ(program("fp8=tensorwise", torchao).routines,
            program("fp8=tensorwise", "torchtitan").routines);
}

/// Rows and columns of blocks are two casts of the same values, by a kernel that reads them once.
TEST(Fp8Linears, BlocksAreCastFromSixteenBitsBothWays) {
  const auto types = [](const Program& of) {
    std::set<DType> found;
    for (const Routine& routine : of.routines) {
      for (const Op& op : routine.ops) {
        if (op.kind == OpKind::quantize) found.insert(routine.tensors[op.outputs[0].index()].dtype);
      }
    }
    return found;
  };
  for (const char* recipe : {"fp8=mxfp8", "fp8=blockwise"}) {
    const Program blocks = program(recipe), delayed = program("fp8=delayed");
    EXPECT_EQ(types(blocks), std::set<DType>{DType::e4m3});
    EXPECT_EQ(types(delayed), (std::set<DType>{DType::e4m3, DType::e5m2}));
    EXPECT_EQ(count(blocks, OpKind::absolute_maximum), 0);
    EXPECT_EQ(count(blocks, OpKind::transpose), 0);
    // A norm writes 8 bits with delayed scales alone: two inputs of a layer are transposed there.
    EXPECT_EQ(count(blocks, OpKind::quantize),
              count(delayed, OpKind::quantize) + count(delayed, OpKind::transpose));
    EXPECT_EQ(buffer_bytes(blocks, "weight_copies"), buffer_bytes(delayed, "weight_copies"));
  }
  // torchao keeps inputs as they were, and casts rows and columns by two kernels.
  const Program torchao = program("fp8=mxfp8", "torchtitan");
  EXPECT_EQ(buffer_bytes(torchao, "weight_copies"), Bytes(0));
  EXPECT_EQ(types(torchao), std::set<DType>{DType::e4m3});
}

TEST(Fp8Parameters, AWeightIsItsEightBitsAndTheirTranspose) {
  const std::int64_t weights = kLayers * (4 * h * h + 3 * h * f);
  for (const char* recipe : {"fp8=delayed", "fp8=current"}) {
    const Program plain = program(recipe);
    const Program with = program(std::string(recipe) + ",fp8_parameters=true");
    EXPECT_EQ(buffer_bytes(plain, "parameters") - buffer_bytes(with, "parameters"), Bytes(weights));
    EXPECT_EQ(buffer_bytes(with, "weight_copies"), Bytes(weights));
    EXPECT_EQ(buffer_bytes(with, "master_parameters"), buffer_bytes(plain, "master_parameters"));
    for (const Routine& routine : with.routines) {
      for (const Op& op : routine.ops) {
        const bool of_weights = routine.name == "layer.weight_copies";
        EXPECT_TRUE(!of_weights || op.kind == OpKind::transpose) << to_text(op.kind);
      }
    }
  }
}

/// Bytes that gathers of parameters bring to a rank in a step.
std::int64_t parameter_bytes(const Program& of) {
  std::int64_t total = 0;
  for (const Traffic& traffic : step_traffic(of, 0)) {
    if (traffic.kind == OpKind::all_gather) total += traffic.sent.count();
  }
  return total;
}

TEST(Fp8Parameters, AreGatheredInOneByte) {
  const std::string text = "sharding_degree=3,sharding_stage=1,grad_bucket_bytes=64KiB,fp8=delayed";
  const std::int64_t weights = kLayers * (4 * h * h + 3 * h * f);
  const std::int64_t saved =
      parameter_bytes(program(text)) - parameter_bytes(program(text + ",fp8_parameters=true"));
  EXPECT_NEAR(double(saved), double(weights) / 3 * 2, 64 * 3)
      << "two thirds come from the others, at one byte less";
  const Program whole = program(text), with = program(text + ",fp8_parameters=true");
  EXPECT_EQ(std::count_if(whole.routines.begin(), whole.routines.end(),
                          [](const Routine& r) { return r.name.starts_with("reduce_scatter"); }),
            std::count_if(with.routines.begin(), with.routines.end(),
                          [](const Routine& r) { return r.name.starts_with("reduce_scatter"); }))
      << "gradients have the same buckets";
}

std::int64_t gathered_bytes(const Program& of) {
  std::int64_t total = 0;
  for (const Traffic& traffic : step_traffic(of, 0)) {
    if (traffic.kind == OpKind::all_gather && traffic.group == Group{{Axis::mp}})
      total += traffic.sent.count();
  }
  return total;
}

TEST(Fp8Linears, TokensTravelInEightBits) {
  // Per layer two gathers forward, two of the same and two of gradients backward: t - 1 of t parts.
  constexpr std::int64_t kLess = kLayers * kMicroBatches * 6 * (n - n / 2) * h;
  const std::int64_t wide = gathered_bytes(program("mp=2,sequence_parallel=true"));
  for (const char* recipe : {"delayed", "current", "tensorwise"}) {
    EXPECT_EQ(gathered_bytes(program(std::string("mp=2,sequence_parallel=true,fp8=") + recipe)),
              wide - kLess)
        << recipe;
  }
  EXPECT_EQ(gathered_bytes(program("mp=2,sequence_parallel=true,fp8=rowwise")), wide);
}

TEST(Fp8Linears, ProductsOfLayersAndNoOthersAreOfEightBits) {
  for (const char* recipe : {"delayed", "current", "tensorwise", "rowwise"}) {
    const Program with = program(std::string("recompute=full,fp8=") + recipe);
    const bool by_rows = std::string(recipe) == "rowwise";
    std::int64_t narrow = 0, wide = 0;
    for (const Routine& routine : with.routines) {
      for (const Op& op : routine.ops) {
        if (op.kind != OpKind::matmul) continue;
        const bool in_fp8 = is_fp8(compute_dtype(op, routine.tensors));
        (in_fp8 ? narrow : wide) += 1;
        EXPECT_EQ(std::get<MatmulParams>(op.params).scaled_by_rows, in_fp8 && by_rows);
      }
    }
    EXPECT_EQ(narrow, 4 + 4 + 8) << recipe << ": forward, repeated, backward";
    EXPECT_EQ(wide, 3) << recipe << ": logits";
    const PhaseFlops flops = step_flops(with), same = step_flops(program("recompute=full"));
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      EXPECT_EQ(flops[phase].value(), same[phase].value()) << recipe << " " << phase;
    }
  }
}

TEST(Fp8Linears, PipelinesAndVariantsAreProvenToo) {
  const Job job = llama();
  for (const char* text :
       {"pp=2,fp8=delayed", "pp=2,schedule=zb_h1,fp8=delayed", "fp8=delayed,recompute=full",
        "recompute=full,recompute_layers=1,fp8=current", "sharding_degree=3,fp8=delayed",
        "sharding_degree=3,sharding_stage=3,fp8=tensorwise", "cast_placement=every_use,fp8=delayed",
        "mp=2,fp8=current", "gradient_merge=fused,fp8=delayed"}) {
    const Strategy strategy = fields(text);
    EXPECT_NO_FATAL_FAILURE(lower({job, strategy, framework_by_name("pytorch-fsdp")})) << text;
  }
}

TEST(Fp8Linears, OnlyFrameworksThatHaveThemAndJobsThatFit) {
  Job job = llama();
  const Strategy strategy = fields("fp8=delayed");
  EXPECT_TRUE(legal(job, strategy, 1));
  EXPECT_TRUE(legal(framework_by_name("megatron-lm"), strategy));
  EXPECT_TRUE(states(legal(bundled_framework(), strategy).reason(), {"fp8 is delayed", "bundled"}));
  job.ffn_hidden = 200;
  EXPECT_TRUE(states(legal(job, strategy, 1).reason(), {"fp8", "16", "200"}));
  job = llama();
  job.precision = DType::f32;
  EXPECT_TRUE(states(legal(job, strategy, 1).reason(), {"fp8", "bf16", "fp16", "fp32"}));
}

/// Queries and keys of heads with a size of their own are other products than those of hidden.
TEST(Fp8Linears, ProductsOfHeadsAreMultiplesToo) {
  Job job = llama();
  EXPECT_TRUE(bool(legal(job, fields("fp8=delayed"), 1)));
  job.head_size = 24;
  job.kv_heads = 1;
  EXPECT_NE(legal(job, fields("fp8=delayed"), 1).reason().find("one of 24"), std::string::npos);
  job.head_size = 48;
  EXPECT_TRUE(bool(legal(job, fields("fp8=delayed"), 1)));
}

/// Counts the ops of a kind in layers whose first operands both are of 8 bits, and all of them.
std::pair<int, int> narrow_ones(const Graph& graph, OpKind kind) {
  std::pair<int, int> found;
  for (const Op& op : graph.ops) {
    if (op.kind != kind || !op.block || graph.at(*op.block).kind != BlockKind::layer) continue;
    ++found.second;
    found.first += is_fp8(graph.at(op.inputs[0]).dtype) && is_fp8(graph.at(op.inputs[1]).dtype);
  }
  return found;
}

TEST(Fp8Linears, ExpertsComputeInEightBitsAndTheirRouterDoesNot) {
  Job job = llama();
  job.experts = Experts{.count = 4, .chosen = 2, .ffn_hidden = f};
  for (const char* text : {"fp8=delayed", "fp8=current",
                           "sharding_degree=2,sharding_stage=1,ep=2,"
                           "fp8=delayed,fp8_parameters=true"}) {
    SCOPED_TRACE(text);
    const Graph graph = lower_graph({job, fields(text), framework_by_name("megatron-lm")});
    using Counts = std::pair<int, int>;
    EXPECT_EQ(narrow_ones(graph, OpKind::grouped_matmul), Counts(2, 2));
    EXPECT_EQ(narrow_ones(graph, OpKind::grouped_matmul_backward), Counts(2, 2));
    EXPECT_EQ(narrow_ones(graph, OpKind::grouped_weight_gradient), Counts(2, 2));
    // There are three products of query, key and value together, of what is behind attention, and
    // of the router.
    EXPECT_EQ(narrow_ones(graph, OpKind::matmul), Counts(6, 9));
  }
}

}  // namespace
}  // namespace plimsoll
