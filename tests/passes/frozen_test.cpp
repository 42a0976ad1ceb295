// Frozen parameters: no gradients, no states, their own arena, and gathers in sharding stage 3.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "graph/step_flops.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

using enum AdapterTarget;

Job small_llama() {
  Job job;
  job.name = "small";
  job.family = Family::llama;
  job.layers = 4;
  job.hidden = 64;
  job.heads = job.kv_heads = 4;
  job.ffn_hidden = 128;
  job.vocab = 256;
  job.sequence = 32;
  job.global_batch = 8;
  job.tied_embeddings = false;
  job.precision = DType::bf16;
  job.adapters = Adapters{.rank = 4, .targets = {query, key, value, out, gate, up, down}};
  return job;
}

/// Elements of a layer: four products of attention, three of the MLP, two norms.
constexpr std::int64_t kProducts = 4 * 64 * 64 + 3 * 64 * 128, kNorms = 2 * 64;
/// Elements outside of layers: two tables and a norm.
constexpr std::int64_t kEnds = 2 * 256 * 64 + 64;

Program small_program(const Job& job, const std::string& fields) {
  const Strategy strategy = parse_strategy(fields);
  const Grid grid = grid_of(strategy);
  const Verdict verdict = legal(job, strategy, grid.world_size());
  EXPECT_TRUE(verdict) << verdict.reason();
  return lower({job, strategy, bundled_framework()}).front();
}

std::map<TensorRole, std::int64_t> bytes_by_role(const Program& program) {
  std::map<TensorRole, std::int64_t> bytes;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.persistent) bytes[buffer.role] += buffer.bytes.count();
  }
  return bytes;
}

TEST(Frozen, ParametersHaveTheirOwnBytesAlone) {
  const auto bytes = bytes_by_role(small_program(small_llama(), "dp=1"));
  const std::int64_t adapters = 4 * 4 * (4 * (64 + 64) + 3 * (64 + 128));
  EXPECT_EQ(bytes.at(TensorRole::frozen_parameter), 2 * (4 * (kProducts + kNorms) + kEnds));
  EXPECT_EQ(bytes.at(TensorRole::parameter), 2 * adapters);
  EXPECT_EQ(bytes.at(TensorRole::master_parameter), 4 * adapters);
  EXPECT_EQ(bytes.at(TensorRole::gradient), 4 * adapters);
  EXPECT_EQ(bytes.at(TensorRole::optimizer_state), 8 * adapters);
}

TEST(Frozen, ProductsInFourBitsTakeAnEighthOfFp32AndTheirScales) {
  Job job = small_llama();
  job.frozen_weights = FrozenWeights::nf4;
  const auto bytes = bytes_by_role(small_program(job, "dp=1"));
  const std::int64_t packed = kProducts / 2 + kProducts / 64 * 4;
  EXPECT_EQ(bytes.at(TensorRole::frozen_parameter), 4 * (packed + 2 * kNorms) + 2 * kEnds);
}

// Stages 1 and 2 shard what is trained; stage 3 shards all.
TEST(Frozen, OnlyStageThreeShardsThem) {
  const auto frozen = [](const std::string& fields) {
    return bytes_by_role(small_program(small_llama(), fields)).at(TensorRole::frozen_parameter);
  };
  const std::int64_t whole = frozen("dp=1");
  const std::int64_t padding = 6 * 4 * 64 * 4;  // of each instance
  for (const char* stage : {"1", "2"}) {
    const std::string fields = std::string("sharding_degree=4,sharding_stage=") + stage;
    EXPECT_NEAR(double(frozen(fields)), double(whole), double(padding));
  }
  EXPECT_NEAR(double(frozen("sharding_degree=4,sharding_stage=3")), double(whole) / 4,
              double(padding) / 4);
}

/// Bytes that all-gathers of parameters bring to a rank in a step.
std::int64_t frozen_gathered(const Program& program) {
  std::int64_t bytes = 0;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    const bool gathers = routine.ops.size() == 1 && routine.ops[0].kind == OpKind::all_gather &&
                         routine.slots[0].kind == SlotKind::frozen_parameters;
    if (gathers) bytes += bytes_moved(routine.ops[0], routine.tensors).count();
  }
  return bytes;
}

// Forward and backward read each layer once in a micro-batch, the embedding in forward alone.
TEST(Frozen, ParametersAreGatheredWhereTheyAreRead) {
  const Program program = small_program(
      small_llama(), "sharding_degree=2,sharding_stage=3,micro_batch=4,prefetch_depth=0");
  const std::int64_t layers = 2 * 4 * (kProducts + kNorms), head = 2 * (256 * 64 + 64),
                     table = 2 * 256 * 64;
  const std::int64_t padding = 11 * 2 * 64 * 4;
  EXPECT_NEAR(double(frozen_gathered(program)), double(2 * layers + head + table), double(padding));
}

// Backward multiplies for the gradients of values, and of adapters: 2 of 3 products remain.
TEST(Frozen, BackwardHasNoProductsForTheirGradients) {
  const Job job = small_llama();
  Flops all;
  for (const Flops& phase : step_flops(small_program(job, "micro_batch=8"))) all += phase;
  const double model = training_matmul_flops_per_sequence(job).value() * 8;
  EXPECT_NEAR(all.value() / model, 1, 1e-9);
}

// Weights are unpacked before each product that reads them, and never kept for backward.
TEST(Frozen, PackedWeightsAreNotKept) {
  Job job = small_llama();
  job.frozen_weights = FrozenWeights::nf4;
  const Program program = small_program(job, "micro_batch=8");
  std::map<Phase, int> unpacked;
  for (const Routine& routine : program.routines) {
    for (const Op& op : routine.ops) {
      if (op.kind != OpKind::unpack_weight) continue;
      ++unpacked[op.phase];
      EXPECT_FALSE(routine.places[op.outputs[0].index()].slot) << routine.name;
    }
  }
  EXPECT_EQ(unpacked[Phase::forward], 7);
  EXPECT_EQ(unpacked[Phase::backward], 7);
}

// The layers' seven products are cast, and the fourteen of adapters are not.
TEST(Frozen, AdaptersMultiplyInTheJobsTypeBesideEightBits) {
  const Strategy strategy = parse_strategy("micro_batch=8,fp8=delayed");
  const Program program =
      lower({small_llama(), strategy, framework_by_name("megatron-lm")}).front();
  std::map<DType, int> products, backward;
  for (const Routine& routine : program.routines) {
    for (const Op& op : routine.ops) {
      if (routine.name == "layer.backward" && op.kind == OpKind::matmul)
        ++backward[routine.tensors[op.inputs[0].index()].dtype];
    }
    if (routine.name != "layer.forward") continue;
    for (const Op& op : routine.ops) {
      if (op.kind == OpKind::matmul) ++products[routine.tensors[op.inputs[0].index()].dtype];
    }
  }
  EXPECT_EQ(products[DType::e4m3], 7);
  EXPECT_EQ(products[DType::bf16], 14);
  EXPECT_EQ(backward[DType::e5m2] + backward[DType::e4m3], 7);  // of inputs
  EXPECT_EQ(backward[DType::bf16], 28);
}

TEST(Frozen, TheirRules) {
  Job job = small_llama();
  const auto reason = [&](const std::string& fields, std::int64_t devices) {
    return legal(job, parse_strategy(fields), devices).reason();
  };
  EXPECT_EQ(reason("mp=2", 2), "");
  EXPECT_NE(reason("sharding_degree=2,sharding_owner=prefix", 2), "");
  EXPECT_NE(reason("pp=2,layer_split=4+0", 2), "");
  job.frozen_weights = FrozenWeights::nf4;
  EXPECT_NE(reason("mp=2", 2), "");
  EXPECT_EQ(reason("cp=2", 2), "");
}

}  // namespace
}  // namespace plimsoll
