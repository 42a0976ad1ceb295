// Sentences about a plan's job and strategy.
#include "reports/plan_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "reports/numbers.h"

namespace plimsoll {
namespace {

std::string_view device_word(const Plan& plan) {
  if (plan.device_kind == DeviceKind::gpu) return plan.devices == 1 ? "GPU" : "GPUs";
  return plan.devices == 1 ? "CPU core" : "CPU cores";
}

/// Empty for a job without experts, else with a space before it.
std::string experts_sentence(const Plan& plan) {
  const Strategy& s = plan.strategy;
  if (!plan.job.experts) return "";
  const std::int64_t count = plan.job.experts->count, etp = experts_tensor_parallel(s);
  std::string text = fmt::format(" A rank has {} of a layer's {} experts", count / s.ep, count);
  if (etp > 1) text += fmt::format(", each split over {} ranks", etp);
  return text + ".";
}

/// Names the modules that are computed again: "norms and expert activation".
std::string modules_phrase(const Strategy& s) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    if (!s.recompute_modules.has(RecomputedModule(i))) continue;
    names.emplace_back(kRecomputedModules[i]);
    std::replace(names.back().begin(), names.back().end(), '_', ' ');
  }
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  const std::string last = std::move(names.back());
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

std::string kept_phrase(const Strategy& s) {
  switch (s.recompute) {
    case Recompute::none:
      return "kept for backward";
    case Recompute::selective:
      return "kept for backward, attention scores computed again";
    case Recompute::per_op:
      return "kept for backward in part, the rest computed again";
    case Recompute::full:
      return "computed again in backward";
    case Recompute::modules:
      return fmt::format("kept for backward, {} computed again", modules_phrase(s));
  }
  return "";
}

/// Names the layers of which that is so; all of the others is kept.
std::string layers_phrase(const Strategy& s) {
  if (s.recompute == Recompute::none) return "";
  if (!s.recompute_list.empty())
    return fmt::format(" in {} of the layers, and kept in the others", s.recompute_list.size());
  if (s.recompute_layers == 0) return "";
  const std::string layers =
      s.recompute_layers == 1 ? "layer" : fmt::format("{} layers", s.recompute_layers);
  return fmt::format(" in the first {} of each part of the model, and kept in the others", layers);
}

}  // namespace

std::string job_sentence(const Plan& plan) {
  const Job& job = plan.job;
  return fmt::format(
      "{} has {} layers of hidden size {}, {} heads, a vocabulary of {} and {} parameters. A step "
      "trains on {} sequences of {} tokens, in {}, on {} {}.",
      job.name, total_layers(job), grouped(job.hidden), job.heads,
      grouped(plan.stated_vocabulary > 0 ? plan.stated_vocabulary : job.vocab),
      grouped(parameter_count(plan)), job.global_batch, job.sequence, to_text(job.precision),
      plan.devices, device_word(plan));
}

std::string split_sentences(const Plan& plan) {
  const Strategy& s = plan.strategy;
  std::vector<std::string> parts;
  if (s.pp > 1) {
    std::string stages = fmt::format("the layers run in {} pipeline stages (layers: {})", s.pp,
                                     counts_text(layers_per_stage(plan.job, s)));
    if (s.virtual_stages > 1) stages += fmt::format(" of {} chunks each", s.virtual_stages);
    parts.push_back(std::move(stages));
  }
  if (s.mp > 1) parts.push_back(fmt::format("every layer is split over {} ranks", s.mp));
  if (s.cp > 1) parts.push_back(fmt::format("each sequence is shared by {} ranks", s.cp));
  if (s.dp * s.sharding_degree > 1) {
    parts.push_back(fmt::format("the batch is shared by {} replicas", s.dp * s.sharding_degree));
  }
  if (s.sharding_degree > 1) {
    const std::string_view too = s.sharding_stage >= 3   ? ", gradients and parameters are"
                                 : s.sharding_stage == 2 ? " and gradients are"
                                                         : " is";
    parts.push_back(fmt::format("the optimizer state{} sharded over {}", too, s.sharding_degree));
  }
  if (parts.empty()) return "Nothing is split: one device does it all." + experts_sentence(plan);
  std::string sentence = fmt::format("{}.", fmt::join(parts, ", "));
  sentence[0] =
      static_cast<char>(sentence[0] - 'a' + 'A');  // every part starts with a small letter
  return sentence + experts_sentence(plan);
}

std::string micro_batch_sentence(const Plan& plan) {
  const Strategy& s = plan.strategy;
  const std::int64_t count = micro_batches(plan.job, s);
  return fmt::format(
      "Each replica takes its share in {} micro-batch{} of {} sequence{}; activations are {}{}.",
      count, count == 1 ? "" : "es", s.micro_batch, s.micro_batch == 1 ? "" : "s", kept_phrase(s),
      layers_phrase(s));
}

}  // namespace plimsoll
