// Sentences about a plan's job and strategy.
#include "reports/plan_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "models/framework/capabilities.h"
#include "models/presets/known_json.h"
#include "models/presets/presets.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

std::string_view device_word(const Plan& plan) {
  if (plan.device_kind == DeviceKind::gpu) return plan.devices == 1 ? "GPU" : "GPUs";
  return plan.devices == 1 ? "CPU core" : "CPU cores";
}

/// Names the modules that are computed again: "norms and expert activation".
std::string modules_phrase(const Strategy& s) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    if (!s.recomputed.modules.has(RecomputedModule(i))) continue;
    names.emplace_back(kRecomputedModules[i]);
    std::replace(names.back().begin(), names.back().end(), '_', ' ');
  }
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  const std::string last = std::move(names.back());
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

/// A choice of a layout, in words.
struct LayoutPart {
  std::string text;    ///< empty: the default, which is left out
  std::string change;  ///< as a change from another layout: "no offload"; empty: it follows
};

/// Returns a part that is left out at its default.
LayoutPart part_unless(bool is_default, std::string text, std::string without) {
  if (is_default) return {"", std::move(without)};
  return {text, text};
}

std::string in_parentheses(const std::vector<std::string>& words) {
  return words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", "));
}

/// Returns an enumerator as a word of a sentence: "all-to-all" for "all_to_all".
std::string spelt(std::string_view enumerator) {
  std::string text(enumerator);
  std::ranges::replace(text, '_', '-');
  return text;
}

LayoutPart pipeline_part(const Strategy& s) {
  constexpr std::size_t kMostCounts = 8;
  std::vector<std::string> words;
  if (s.schedule != Schedule::one_f_one_b)
    words.push_back(spelt(kSchedules[std::size_t(s.schedule)]) + " schedule");
  if (s.pipeline.virtual_stages > 1)
    words.push_back(fmt::format("{} virtual stages", s.pipeline.virtual_stages));
  if (!s.pipeline.layer_split.empty()) {
    words.push_back(s.pipeline.layer_split.size() > kMostCounts
                        ? "uneven layers"
                        : fmt::format("layers {}", fmt::join(s.pipeline.layer_split, "+")));
  }
  const std::string text = fmt::format("PP {}{}", s.pp, in_parentheses(words));
  return {text, text};
}

LayoutPart experts_part(const Job& job, const Strategy& s) {
  if (!job.experts) return {};
  std::vector<std::string> words;
  if (const std::int64_t etp = experts_tensor_parallel(s); etp > 1 && etp != s.mp)
    words.push_back(fmt::format("each split over {}", etp));
  if (s.ep > 1 && s.experts.dispatch != ExpertDispatch::all_to_all)
    words.push_back(spelt(kExpertDispatches[std::size_t(s.experts.dispatch)]) + " dispatch");
  if (s.experts.overlap_exchange) words.emplace_back("exchange overlapped");
  const std::string text = fmt::format("EP {}{}", s.ep, in_parentheses(words));
  return {text, text};
}

/// Says what is sharded over the replicas: "ZeRO-3", "ZeRO-1 over 8". Context ranks share states,
/// too, also where there is one replica.
std::string sharding_words(const Strategy& s) {
  if (s.sharding_degree == 1 && (s.cp == 1 || s.sharding_stage == 0)) return "";
  if (s.sharding_degree == 1) return fmt::format("ZeRO-{} over CP {}", s.sharding_stage, s.cp);
  return fmt::format("ZeRO-{}{}", s.sharding_stage,
                     s.dp > 1 ? fmt::format(" over {}", s.sharding_degree) : "");
}

LayoutPart replicas_part(const Strategy& s) {
  const std::string sharding = sharding_words(s);
  const std::int64_t replicas = s.dp * s.sharding_degree;
  if (sharding.empty())
    return {fmt::format("DP {}", replicas), replicas * s.cp > 1 ? "no ZeRO" : ""};
  return {fmt::format("DP {} ({})", replicas, sharding), sharding};
}

std::string recompute_words(const Strategy& s) {
  switch (s.recompute) {
    case Recompute::none:
      return "no recompute";
    case Recompute::selective:
      return "attention recomputed";
    case Recompute::per_op:
      return "partial recompute";
    case Recompute::modules:
      return modules_phrase(s) + " recomputed";
    case Recompute::full:
      break;
  }
  if (!s.recomputed.list.empty())
    return fmt::format("full recompute of {} layers", s.recomputed.list.size());
  if (s.recomputed.layers == 0) return "full recompute";
  const std::string_view per = s.pipeline.virtual_stages > 1 ? " per virtual stage"
                               : s.pp > 1                    ? " per stage"
                                                             : "";
  return fmt::format("full recompute of {} layer{}{}", s.recomputed.layers,
                     s.recomputed.layers == 1 ? "" : "s", per);
}

LayoutPart types_part(const Job& job, const Framework& framework, const Strategy& s) {
  std::vector<std::string> words;
  if (s.precision.gradients != usual_gradient_type(framework, job)) {
    const bool computed = s.precision.gradients == GradientType::computed;
    words.push_back(fmt::format("gradients in {}", computed ? to_text(job.precision) : "f32"));
  }
  if (s.precision.main_parameters == MasterType::remainder)
    words.emplace_back("no f32 copy of weights");
  if (s.precision.main_parameters == MasterType::none) words.emplace_back("no main weights");
  if (s.precision.stochastic_rounding) words.emplace_back("stochastic rounding");
  if (s.precision.main_parameters == MasterType::f16) words.emplace_back("main weights in f16");
  if (s.precision.moments != MomentType::f32)
    words.push_back(fmt::format("moments in {}", kMomentTypes[std::size_t(s.precision.moments)]));
  return part_unless(words.empty(), fmt::format("{}", fmt::join(words, ", ")), "usual types");
}

std::string offloaded_words(const Strategy& s) {
  const auto& [percent, layers] = s.offloaded;
  const std::string share = percent == 100 ? "" : fmt::format("{} % of ", percent);
  const std::string of =
      layers == 0 ? "" : fmt::format(" of {} layer{}", layers, layers == 1 ? "" : "s");
  return fmt::format("{}activations{} on the host", share, of);
}

/// Returns the parts in one order for every strategy, so that two of them can be compared.
std::vector<LayoutPart> layout_parts(const Job& job, const Framework& framework,
                                     const Strategy& s) {
  const std::string tensor =
      fmt::format("TP {}{}", s.mp, s.tokens.sequence_parallel ? " (sequence parallel)" : "");
  const std::string context = fmt::format(
      "CP {}{}", s.cp,
      s.tokens.context_exchange == ContextExchange::ring
          ? ""
          : fmt::format(" ({})", spelt(kContextExchanges[std::size_t(s.tokens.context_exchange)])));
  const std::string micro_batch = fmt::format("micro-batch {}", s.micro_batch);
  const std::string recompute = recompute_words(s);
  return {{tensor, tensor},
          pipeline_part(s),
          part_unless(s.cp == 1, context, "no CP"),
          experts_part(job, s),
          replicas_part(s),
          {fmt::format("{} x {}", micro_batch, micro_batches(job, s)), micro_batch},
          {recompute, recompute},
          part_unless(s.loss_chunks == 1, fmt::format("loss in {} chunks", s.loss_chunks),
                      "loss at once"),
          part_unless(!s.gradients.release, "gradients freed in backward", "all gradients kept"),
          part_unless(s.optimizer.offload_percent == 0,
                      fmt::format("{} % of the optimizer on the host", s.optimizer.offload_percent),
                      "no offload"),
          part_unless(!s.optimizer.paged, "moments paged to the host", "moments on the device"),
          part_unless(!s.gathers.offload, "parameters on the host", "no parameters on the host"),
          part_unless(s.offloaded.percent == 0, offloaded_words(s), "no activations on the host"),
          part_unless(s.precision.fp8 == Fp8::none,
                      fmt::format("FP8 with {} scaling", kFp8s[std::size_t(s.precision.fp8)]),
                      "no FP8"),
          types_part(job, framework, s)};
}

struct ScheduleMeaning {
  Schedule schedule;
  std::string_view words;
};

constexpr ScheduleMeaning kScheduleMeanings[] = {
    {Schedule::one_f_one_b, "one forward and one backward in turn"},
    {Schedule::gpipe, "all forwards, then all backwards"},
    {Schedule::zb_h1, "as 1f1b, with gradients of weights computed later, at the same memory"},
    {Schedule::zb_h2, "as 1f1b, with gradients of weights computed later and more micro-batches"},
    {Schedule::zb_v, "two chunks on each stage, placed as a V, with late gradients of weights"},
    {Schedule::v_half, "chunks placed as a V, at half of the activation memory of 1f1b"},
    {Schedule::v_min, "chunks placed as a V, at a third of the activation memory of 1f1b"},
    {Schedule::dualpipe_v, "two chunks on each stage, placed as a V; forwards hide exchanges"},
    {Schedule::dualpipe,
     "two chunks on each stage, placed as a V, whose halves of the data ranks swap micro-batches "
     "where the V turns"},
};

}  // namespace

std::string layout_text(const Job& job, const Framework& framework, const Strategy& strategy) {
  std::vector<std::string> texts;
  for (LayoutPart& part : layout_parts(job, framework, strategy)) {
    if (!part.text.empty()) texts.push_back(std::move(part.text));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string layout_change(const Job& job, const Framework& framework, const Strategy& strategy,
                          const Strategy& from) {
  const std::vector<LayoutPart> before = layout_parts(job, framework, from);
  std::vector<LayoutPart> after = layout_parts(job, framework, strategy);
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (!after[i].change.empty() && after[i].change != before[i].change)
      changes.push_back(std::move(after[i].change));
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

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

std::string loss_words(const RunnerUp& loser) {
  if (loser.term == LossTerm::unusual_choice) return words_of(loser.unusual);
  if (loser.term == LossTerm::memory) return fmt::format("+{} live", to_text(loser.term_bytes));
  if (loser.term == LossTerm::tie) return "as good; comes later in the space";
  return fmt::format("+{} {}", to_text(loser.term_time), to_text(loser.term));
}

std::string host_bound_text(const Prediction& prediction, const Job& job,
                            const Framework& framework, const Strategy& strategy) {
  constexpr double kLimits = 0.1;  // of the step
  if (prediction.breakdown.dispatch < kLimits * prediction.step_time) return "";
  std::vector<std::string> helps;
  if (micro_batches(job, strategy) > 1) helps.emplace_back("larger micro-batches");
  if (strategy.mp > 1) helps.emplace_back("less tensor parallelism");
  if (framework.host.dispatch.graphs != Graphs::layers &&
      framework.host.dispatch.graphs != Graphs::step)
    helps.emplace_back("CUDA graphs");
  const std::string limits = framework.host.waits.for_launches
                                 ? "each launch waits for its kernel"
                                 : "kernels take less time than their launches";
  if (helps.empty()) return limits;
  const std::string last = helps.back();
  helps.pop_back();
  return fmt::format("{}; {}{}{} would help", limits, fmt::join(helps, ", "),
                     helps.empty() ? "" : " or ", last);
}

std::string meaning_of(std::string_view strategy_key, std::string_view value) {
  if (strategy_key != "schedule") return meaning_of(strategy_key);
  const auto chosen = std::ranges::find_if(kScheduleMeanings, [&](const ScheduleMeaning& one) {
    return kSchedules[std::size_t(one.schedule)] == value;
  });
  return std::string(chosen == std::end(kScheduleMeanings) ? "" : chosen->words);
}

std::string meaning_of(std::string_view strategy_key) {
  static const Json keys = known_json(schema_presets(), "strategy").at("properties");
  const auto found = keys.find(std::string(strategy_key));
  return found == keys.end() ? "" : found->at("description").get<std::string>();
}

}  // namespace plimsoll
