// Rules of recompute_modules and loss_chunks.
#include "passes/strategy/recompute_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

namespace {

bool has_layers(const Job& job, bool experts) {
  for (std::int64_t layer = 0; layer < job.layers; ++layer) {
    if (has_experts(job, layer) == experts) return true;
  }
  return false;
}

std::string_view why_missing(RecomputedModule module) {
  switch (module) {
    case RecomputedModule::core_attention:
      break;
    case RecomputedModule::norms:
      return "the job has norms behind its branches alone, whose results backward does not read";
    case RecomputedModule::latent_up_projection:
      return "the job has no latent attention";
    case RecomputedModule::mlp:
      return "every layer of the job has experts in place of an MLP";
    case RecomputedModule::experts:
    case RecomputedModule::expert_activation:
      return "the job has no experts";
    case RecomputedModule::shared_experts:
      return "the job has no shared experts";
  }
  return "";
}

/// Modules that are part of another module.
struct Part {
  RecomputedModule part, whole;
};
constexpr std::array<Part, 2> kParts = {
    {{RecomputedModule::expert_activation, RecomputedModule::experts},
     {RecomputedModule::shared_experts, RecomputedModule::experts}}};

std::string_view word(RecomputedModule module) { return kRecomputedModules[std::size_t(module)]; }

/// Transformer Engine's delayed scaling records the maximum of each operand once per step.
Verdict scales_are_legal(const Strategy& strategy) {
  if (strategy.precision.fp8 != Fp8::delayed) return Verdict::yes();
  for (const RecomputedModule module :
       {RecomputedModule::norms, RecomputedModule::expert_activation}) {
    if (!strategy.recomputed.modules.has(module)) continue;
    return Verdict::no(
        fmt::format("recompute_modules names {}; with fp8 delayed its result would be cast again, "
                    "by another scale",
                    word(module)));
  }
  return Verdict::yes();
}

}  // namespace

bool has_module(const Job& job, RecomputedModule module) {
  // With norms behind branches, an MLP beside experts reads what the router and a shared MLP read.
  // Its ops can then not be told from theirs.
  const bool alike =
      job.experts && job.experts->dense_ffn_hidden > 0 && job.norm_place == NormPlace::after;
  switch (module) {
    case RecomputedModule::core_attention:
      return true;
    case RecomputedModule::norms:
      return job.norm_place != NormPlace::after;
    case RecomputedModule::latent_up_projection:
      return job.latent.has_value();
    case RecomputedModule::mlp:
      if (alike) return false;
      return has_layers(job, false) || job.branch || job.experts->dense_ffn_hidden > 0;
    case RecomputedModule::experts:
      return has_layers(job, true) && !alike;
    case RecomputedModule::expert_activation:
      return has_layers(job, true);
    case RecomputedModule::shared_experts:
      return has_layers(job, true) && job.experts->shared_ffn_hidden > 0 && !alike;
  }
  return false;
}

SetOf<RecomputedModule> without_parts(SetOf<RecomputedModule> modules) {
  SetOf<RecomputedModule> whole;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    const auto module = RecomputedModule(i);
    const bool is_part = std::ranges::any_of(
        kParts, [&](const Part& one) { return one.part == module && modules.has(one.whole); });
    if (modules.has(module) && !is_part) whole.add(module);
  }
  return whole;
}

std::int64_t usual_loss_chunks(std::int64_t vocabulary, std::int64_t hidden, std::int64_t tokens) {
  std::int64_t chunks = 1;
  const std::int64_t most = (vocabulary + hidden - 1) / hidden;
  while (2 * chunks <= most && tokens % (2 * chunks) == 0) chunks *= 2;
  return chunks;
}

Verdict loss_chunks_are_legal(const Job& job, const Strategy& strategy) {
  if (strategy.loss_chunks == 1) return Verdict::yes();
  const auto no = [&](std::string_view why) {
    return Verdict::no(fmt::format("loss_chunks is {}; {}", strategy.loss_chunks, why));
  };
  if (job.family == Family::bert || job.family == Family::ernie)
    return no("the head of an encoder reads chosen tokens of each sequence");
  if (job.mtp) return no("with mtp a head has rows of several depths");
  if (!job.lengths.empty()) return no("with lengths the loss is by a row's place in its sequence");
  if (splits_backward(strategy.schedule))
    return no("the schedule delays weight gradients, for which all chunks would be kept");
  if (strategy.gradients.merge == GradientMerge::fused)
    return no("gradient_merge fused holds what one call of the head gives");
  const std::int64_t tokens = job.sequence / strategy.cp,
                     ranks = strategy.tokens.sequence_parallel ? strategy.mp : 1;
  if (tokens % (strategy.loss_chunks * ranks) == 0) return Verdict::yes();
  return no(fmt::format("it must divide the {} tokens of a sequence on a rank", tokens / ranks));
}

Verdict modules_are_legal(const Job& job, const Strategy& strategy) {
  const auto& modules = strategy.recomputed.modules;
  if (strategy.recompute != Recompute::modules) {
    return modules.empty() ? Verdict::yes()
                           : Verdict::no(fmt::format(
                                 "recompute is {}; recompute_modules needs recompute modules",
                                 to_text(strategy.recompute)));
  }
  if (modules.empty())
    return Verdict::no("recompute is modules; recompute_modules says which, and names none");
  if (modules == SetOf<RecomputedModule>{RecomputedModule::core_attention})
    return Verdict::no("recompute_modules is core_attention alone; that is recompute selective");
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    const auto module = RecomputedModule(i);
    if (modules.has(module) && !has_module(job, module)) {
      return Verdict::no(
          fmt::format("recompute_modules names {}; {}", word(module), why_missing(module)));
    }
  }
  for (const auto& [part, whole] : kParts) {
    if (modules.has(part) && modules.has(whole)) {
      return Verdict::no(
          fmt::format("recompute_modules names {}, which is part of {}", word(part), word(whole)));
    }
  }
  if (modules.has(RecomputedModule::shared_experts) && strategy.experts.overlap_shared) {
    return Verdict::no(
        "recompute_modules names shared_experts; with overlap_shared_experts they are computed "
        "next to exchanges, and are not repeated by themselves");
  }
  return scales_are_legal(strategy);
}

}  // namespace plimsoll
