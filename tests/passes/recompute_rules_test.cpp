// A strategy that repeats modules names modules that the job has, and each choice has one text.
#include "passes/strategy/recompute_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace plimsoll {
namespace {

Job nano_job_of(const std::string& name) {
  return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/" + name + "-nano.json");
}

std::string why_illegal(const Job& job, const std::string& strategy) {
  return legal(job, parse_strategy(strategy), 1).reason();
}

std::string repeating(const std::string& names) {
  return "recompute=modules,recompute_modules=" + names;
}

TEST(RecomputeRules, ModulesGoWithRecomputeModules) {
  const Job job = nano_job_of("llama");
  EXPECT_EQ(why_illegal(job, repeating("norms+mlp")), "");
  EXPECT_EQ(why_illegal(job, repeating("core_attention+norms")), "");
  EXPECT_EQ(why_illegal(job, "recompute=full,recompute_modules=norms"),
            "recompute is full; recompute_modules needs recompute modules");
  EXPECT_EQ(why_illegal(job, "recompute=modules"),
            "recompute is modules; recompute_modules says which, and names none");
  EXPECT_EQ(why_illegal(job, repeating("core_attention")),
            "recompute_modules is core_attention alone; that is recompute selective");
  EXPECT_EQ(why_illegal(job, repeating("norms") + ",recompute_layers=1"), "");
}

TEST(RecomputeRules, TheJobHasEachModule) {
  Job job = nano_job_of("llama");
  for (const char* module : {"experts", "expert_activation"}) {
    EXPECT_EQ(why_illegal(job, repeating(module)),
              "recompute_modules names " + std::string(module) + "; the job has no experts");
  }
  EXPECT_EQ(why_illegal(job, repeating("shared_experts")),
            "recompute_modules names shared_experts; the job has no shared experts");
  EXPECT_EQ(why_illegal(job, repeating("latent_up_projection")),
            "recompute_modules names latent_up_projection; the job has no latent attention");
  job.norm_place = NormPlace::after;
  EXPECT_EQ(why_illegal(job, repeating("norms")),
            "recompute_modules names norms; the job has norms behind its branches alone, whose "
            "results backward does not read");
  Job mixture = nano_job_of("expert");
  EXPECT_EQ(why_illegal(mixture, repeating("mlp")),
            "recompute_modules names mlp; every layer of the job has experts in place of an MLP");
  mixture.experts->dense_layers = 1;
  EXPECT_EQ(why_illegal(mixture, repeating("mlp+experts")), "");
}

TEST(RecomputeRules, PartsAreNotNamedBesideTheWhole) {
  Job job = nano_job_of("expert");
  job.experts->shared_ffn_hidden = 8;
  EXPECT_EQ(why_illegal(job, repeating("experts+expert_activation")),
            "recompute_modules names expert_activation, which is part of experts");
  EXPECT_EQ(why_illegal(job, repeating("experts+shared_experts")),
            "recompute_modules names shared_experts, which is part of experts");
  EXPECT_EQ(why_illegal(job, repeating("expert_activation+shared_experts")), "");
  const SetOf<RecomputedModule> all = {RecomputedModule::norms, RecomputedModule::experts,
                                       RecomputedModule::expert_activation};
  EXPECT_EQ(without_parts(all),
            (SetOf<RecomputedModule>{RecomputedModule::norms, RecomputedModule::experts}));
}

TEST(RecomputeRules, OutputsAreNotCastAgainByAnotherScale) {
  Job job = nano_job_of("llama");
  job.precision = DType::bf16;
  job.hidden = job.ffn_hidden = 64;
  const std::string delayed = ",fp8=delayed";
  EXPECT_EQ(why_illegal(job, repeating("norms") + delayed),
            "recompute_modules names norms; with fp8 delayed its result would be cast again, by "
            "another scale");
}

TEST(RecomputeRules, FrameworksStateTheirModules) {
  const auto refusal = [](const std::string& framework, const std::string& strategy) {
    return legal(framework_by_name(framework), parse_strategy(strategy)).reason();
  };
  EXPECT_EQ(refusal("bundled", repeating("norms+core_attention")), "");
  EXPECT_EQ(refusal("megatron-lm", repeating("norms+experts")), "");
  EXPECT_EQ(refusal("megatron-lm", repeating("norms+core_attention")),
            "recompute_modules names core_attention; megatron-lm has flash attention, which keeps "
            "no scores to drop");
  EXPECT_TRUE(refusal("torchtitan", repeating("norms")).starts_with("recompute is modules; "));
  Framework some = framework_by_name("megatron-lm");
  some.can.repeats.modules = {{RecomputedModule::norms}, "a page"};
  EXPECT_EQ(legal(some, parse_strategy(repeating("mlp"))).reason(),
            "recompute_modules names mlp; megatron-lm does not repeat it by itself (a page)");
}

TEST(RecomputeRules, TextsAndFilesNameModules) {
  const Strategy strategy = parse_strategy(repeating("mlp+norms"));
  EXPECT_EQ(field_text(strategy, "recompute_modules"), "norms+mlp");
  EXPECT_EQ(strategy_from_json_text(strategy_text(strategy), "s.json"), strategy);
  EXPECT_EQ(field_text(Strategy(), "recompute_modules"), "none");
  Strategy dropped = strategy;
  drop_recompute(dropped);
  EXPECT_EQ(dropped, Strategy());
  EXPECT_THROW(parse_strategy(repeating("norms+attention")), UsageError);
  EXPECT_THROW(strategy_from_json_text(R"({"recompute_modules": ["attention"]})", "s.json"),
               InputError);
}

TEST(RecomputeRules, ALossInChunksNeedsEqualPartsOfTheTokens) {
  Job job = nano_job_of("llama");
  EXPECT_EQ(why_illegal(job, "loss_chunks=4"), "");
  EXPECT_EQ(why_illegal(job, fmt::format("loss_chunks={}", 2 * job.sequence)),
            fmt::format("loss_chunks is {}; it must divide the {} tokens of a sequence on a rank",
                        2 * job.sequence, job.sequence));
  EXPECT_EQ(why_illegal(job, "loss_chunks=2,gradient_merge=fused"),
            "loss_chunks is 2; gradient_merge fused holds what one call of the head gives");
  const std::string split =
      legal(job, parse_strategy("loss_chunks=2,pp=2,schedule=zb_h1"), 2).reason();
  EXPECT_TRUE(split.starts_with("loss_chunks is 2; the schedule delays weight gradients")) << split;
  job.mtp = MultiToken{};
  EXPECT_EQ(why_illegal(job, "loss_chunks=2"),
            "loss_chunks is 2; with mtp a head has rows of several depths");
  job.mtp.reset();
  job.lengths = {{.tokens = 8, .share = 1}};
  EXPECT_EQ(why_illegal(job, "loss_chunks=2"),
            "loss_chunks is 2; with lengths the loss is by a row's place in its sequence");
  EXPECT_EQ(why_illegal(nano_job_of("bert"), "loss_chunks=2"),
            "loss_chunks is 2; the head of an encoder reads chosen tokens of each sequence");
}

TEST(RecomputeRules, ChunksOfALossHaveLogitsAsLargeAsHiddenStates) {
  EXPECT_EQ(usual_loss_chunks(128256, 4096, 8192), 32);
  EXPECT_EQ(usual_loss_chunks(32000, 4096, 8192), 8);
  EXPECT_EQ(usual_loss_chunks(256, 512, 8192), 1);
  EXPECT_EQ(usual_loss_chunks(128256, 4096, 6 * 1024 + 4), 4);
}

}  // namespace
}  // namespace plimsoll
