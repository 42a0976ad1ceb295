// Modules of layers are found in lowered graphs: what each drops, and what backward repeats for it.
#include "passes/recompute/layer_modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMixtureTokens = 2 * 64, kMixtureHidden = 128, kMixtureHeads = 8,
                       kMixtureFfn = 512;
constexpr std::int64_t kNope = 16, kRope = 8, kValue = 12, kExpertFfn = 96, kChosen = 2;

/// One dense layer and one with experts, with latent attention, in 16 bits.
Job latent_mixture() {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/expert-nano.json");
  job.precision = DType::bf16;
  job.sequence = 64;
  job.hidden = kMixtureHidden;
  job.heads = job.kv_heads = kMixtureHeads;
  job.ffn_hidden = kMixtureFfn;
  job.latent = Latent{48, 32, kNope, kRope, kValue};
  job.experts->ffn_hidden = kExpertFfn;
  job.experts->chosen = kChosen;
  job.experts->shared_ffn_hidden = 64;
  job.experts->dense_layers = 1;
  return job;
}

Program mixture_program(const std::string& strategy, const char* framework = "bundled",
                        const Job& job = latent_mixture()) {
  const Framework with = framework_by_name(framework);
  return lower({job, parse_strategy("micro_batch=2," + strategy), with})[0];
}

std::string with_modules(const std::string& names) {
  return "recompute=modules,recompute_modules=" + names;
}

const Routine& routine_named(const Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.routines, name, &Routine::name);
  INVARIANT(found != program.routines.end(), "the program has " + name);
  return *found;
}

std::int64_t bytes_kept_by(const Program& program, const std::string& block) {
  std::int64_t bytes = 0;
  for (const Slot& slot : routine_named(program, block + ".backward").slots) {
    if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input) bytes += slot.bytes.count();
  }
  return bytes;
}

/// Bytes that a layer keeps less with these modules.
std::int64_t dropped_by(const std::string& names, const std::string& block) {
  return bytes_kept_by(mixture_program("recompute=none"), block) -
         bytes_kept_by(mixture_program(with_modules(names)), block);
}

TEST(LayerModules, EachDropsTheBytesThatAreCountedForIt) {
  const std::int64_t rows = kMixtureTokens * kChosen;
  for (const char* block : {"layer", "expert_layer"}) {
    // Both outputs, 4 n h, and one f32 statistic for each row.
    EXPECT_EQ(dropped_by("norms", block),
              4 * kMixtureTokens * kMixtureHidden + 2 * 4 * kMixtureTokens);
    // Queries, keys and values of all heads; the turned part of keys is kept in their place.
    EXPECT_EQ(dropped_by("latent_up_projection", block),
              2 * kMixtureTokens * (kMixtureHeads * (2 * (kNope + kRope) + kValue) - kRope));
  }
  // Results of the products of gate and up, and the operand of the last product.
  EXPECT_EQ(dropped_by("mlp", "layer"), 2 * kMixtureTokens * 3 * kMixtureFfn);
  EXPECT_EQ(dropped_by("mlp", "expert_layer"), 0);
  EXPECT_EQ(dropped_by("expert_activation", "expert_layer"), 2 * rows * kExpertFfn);
  EXPECT_EQ(dropped_by("expert_activation", "layer"), 0);
  EXPECT_EQ(dropped_by("shared_experts", "expert_layer"), 2 * kMixtureTokens * 3 * 64);
  EXPECT_GT(
      dropped_by("experts", "expert_layer"),
      dropped_by("expert_activation+shared_experts", "expert_layer") + 2 * rows * kMixtureHidden);
  EXPECT_EQ(dropped_by("norms+expert_activation", "expert_layer"),
            dropped_by("norms", "expert_layer") + dropped_by("expert_activation", "expert_layer"));
}

TEST(LayerModules, AnMlpBesideExpertsIsAModuleOfItsOwn) {
  constexpr std::int64_t kDense = 40;
  Job job = latent_mixture();
  job.experts->dense_ffn_hidden = kDense;
  const auto dropped = [&](const std::string& more, const std::string& names) {
    return bytes_kept_by(mixture_program(more + "recompute=none", "bundled", job), "expert_layer") -
           bytes_kept_by(mixture_program(more + with_modules(names), "bundled", job),
                         "expert_layer");
  };
  EXPECT_EQ(dropped("", "mlp"), 2 * kMixtureTokens * 3 * kDense);
  EXPECT_EQ(dropped("", "shared_experts"), 2 * kMixtureTokens * 3 * 64);
  EXPECT_EQ(dropped("", "experts"), dropped_by("experts", "expert_layer"));
  const std::string split = "mp=2,sequence_parallel=true,";
  EXPECT_EQ(dropped(split, "mlp"), kMixtureTokens * 3 * kDense);
  const std::int64_t beside = dropped(split, "shared_experts");
  job.experts->dense_ffn_hidden = 0;
  EXPECT_EQ(dropped(split, "shared_experts"), beside);
}

TEST(LayerModules, ExpertsRepeatTheProductThatNarrowsTheirInput) {
  Job job = latent_mixture();
  job.experts->latent_hidden = 24;
  const auto linears = [&](const std::string& names) {
    const Program program = mixture_program(with_modules(names), "bundled", job);
    const std::vector<Op>& ops = routine_named(program, "expert_layer.backward").ops;
    return std::ranges::count_if(ops, [&](const Op& op) {
      return op.kind == OpKind::matmul && op.phase == Phase::recompute;
    });
  };
  // The router's product, that in front of experts, and the shared experts' first.
  EXPECT_EQ(linears("experts"), 3);
  EXPECT_EQ(linears("expert_activation"), 0);
}

std::int64_t times_repeated(const Program& program, const std::string& block, OpKind kind) {
  const std::vector<Op>& ops = routine_named(program, block + ".backward").ops;
  return std::ranges::count_if(
      ops, [&](const Op& op) { return op.kind == kind && op.phase == Phase::recompute; });
}

TEST(LayerModules, ExpertsRepeatTheirExchanges) {
  const std::string split = "ep=2,dp=2,";
  const auto exchanges = [&](const std::string& names, const char* framework) {
    const Program program = mixture_program(split + with_modules(names), framework);
    return std::pair(times_repeated(program, "expert_layer", OpKind::exchange_rows),
                     times_repeated(program, "expert_layer", OpKind::return_rows));
  };
  // Rows and their weights travel again. What comes back is not read, but a checkpoint repeats it.
  EXPECT_EQ(exchanges("experts", "bundled"), std::pair(std::int64_t{2}, std::int64_t{0}));
  EXPECT_EQ(exchanges("experts", "megatron-lm"), std::pair(std::int64_t{2}, std::int64_t{1}));
  EXPECT_EQ(exchanges("norms+expert_activation+shared_experts", "megatron-lm"),
            std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST(LayerModules, CheckpointsRepeatTheirLastProductAndDiscardedOutputsDoNot) {
  const auto products = [&](const std::string& names, const char* framework) {
    return times_repeated(mixture_program(with_modules(names), framework), "layer", OpKind::matmul);
  };
  EXPECT_EQ(products("mlp", "bundled"), 1);
  EXPECT_EQ(products("mlp", "megatron-lm"), 2);
  EXPECT_EQ(products("norms", "megatron-lm"), 0);
  EXPECT_EQ(products("latent_up_projection", "megatron-lm"), 2);
}

TEST(LayerModules, CastsToEightBitsAreRepeatedWithTheirNorm) {
  Job job = latent_mixture();
  job.latent.reset();
  const std::string current = ",fp8=current";
  const std::int64_t none =
      bytes_kept_by(mixture_program("recompute=none" + current, "megatron-lm", job), "layer");
  const std::int64_t norms =
      bytes_kept_by(mixture_program(with_modules("norms") + current, "megatron-lm", job), "layer");
  // Transposed copies in 8 bits are what was kept of both outputs.
  EXPECT_EQ(none - norms, 2 * kMixtureTokens * kMixtureHidden + 2 * 4 * kMixtureTokens);
}

TEST(LayerModules, CoreAttentionIsWhatSelectiveRepeats) {
  Job job = latent_mixture();
  job.latent.reset();
  const Program program = mixture_program(with_modules("core_attention+norms"), "bundled", job);
  const Program selective = mixture_program("recompute=selective", "bundled", job);
  for (const OpKind kind : {OpKind::softmax, OpKind::matmul}) {
    EXPECT_EQ(times_repeated(program, "layer", kind), times_repeated(selective, "layer", kind));
    EXPECT_EQ(times_repeated(selective, "layer", kind), 1);
  }
  EXPECT_EQ(times_repeated(program, "layer", OpKind::rms_norm), 2);
}

TEST(LayerModules, OnlySomeLayersRepeatTheirModules) {
  Job job = latent_mixture();
  job.layers = 3;
  const Program program =
      mixture_program(with_modules("norms") + ",recompute_list=1", "bundled", job);
  EXPECT_EQ(times_repeated(program, "expert_layer.recomputing", OpKind::rms_norm), 2);
  EXPECT_EQ(times_repeated(program, "expert_layer", OpKind::rms_norm), 0);
}

}  // namespace
}  // namespace plimsoll
