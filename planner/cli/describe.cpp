// Describe: plans, predictions and spaces as terminal text.
#include "planner/cli/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <vector>

#include "interop/flags/framework_flags.h"
#include "passes/strategy/expert_rows.h"
#include "passes/strategy/strategy_fields.h"
#include "plan/filling.h"
#include "planner/space/expert_splits.h"
#include "planner/space/space.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

using Out = std::back_insert_iterator<std::string>;

/// Returns the beginning and the date of a source, as far as a line of a terminal goes: "NVIDIA
/// A100 bf16, Title of the Document, ... 2020-05-14".
std::string in_one_line(const std::string& source) {
  constexpr std::size_t kMost = 100, kBeginning = 80;
  if (source.size() <= kMost) return source;
  const std::size_t end = source.rfind(", ", kBeginning), date = source.rfind(", ");
  if (end == std::string::npos || date <= end || source.size() - date > kMost - kBeginning) {
    return source;
  }
  return fmt::format("{}, ...{} (whole with --json)", source.substr(0, end),
                     source.substr(date + 1));
}

/// The least share that has a line. Smaller ones are 0.0 %.
constexpr double kLeastShown = 0.0005;

void describe_rates(Out out, const Prediction& p, bool makes_timing_claim) {
  fmt::format_to(out, "  step time   {}{}\n", to_text(p.step_time),
                 makes_timing_claim
                     ? fmt::format(" (90 % interval {} to {})", to_text(p.step_time_low),
                                   to_text(p.step_time_high))
                     : " (oversubscribed: no timing claim)");
  fmt::format_to(out, "  throughput  {:.0f} tokens/s\n", p.tokens_per_second);
  fmt::format_to(out,
                 "  MFU         {:.1f} % (HFU {:.1f} %) of {} per device; causal attention "
                 "counts in full\n",
                 100 * p.mfu, 100 * p.hfu, to_text(p.peak_flops));
  fmt::format_to(out, "  that peak   {}\n", in_one_line(p.peak_source));
  fmt::format_to(out, "  costs      ");
  for (std::size_t i = 0; i < p.share_by_provenance.size(); ++i) {
    if (p.share_by_provenance[i] < kLeastShown) continue;
    fmt::format_to(out, " {} {:.1f} %", to_text(Provenance(i)), 100 * p.share_by_provenance[i]);
  }
  fmt::format_to(out, " of op time; weakest: {}\n", to_text(p.worst));
  const auto shown = std::size_t(  // the largest come first
      std::count_if(p.extrapolated.begin(), p.extrapolated.end(),
                    [](const OutsideRange& ops) { return ops.share >= kLeastShown; }));
  if (shown == 0) return;
  fmt::format_to(out, "  extrapolated beyond what was measured or fitted, of the step\n");
  constexpr std::size_t kMost = 6;
  for (std::size_t i = 0; i < std::min(shown, kMost); ++i) {
    fmt::format_to(out, "    {:5.1f} %  {}\n", 100 * p.extrapolated[i].share,
                   p.extrapolated[i].what);
  }
  if (shown > kMost) {
    fmt::format_to(out, "    and {} more (all with --json)\n", shown - kMost);
  }
}

void describe_breakdown(Out out, const Prediction& p) {
  const Breakdown& b = p.breakdown;
  const std::array<std::pair<std::string_view, Seconds>, 7> terms = {
      {{"forward", b.forward},
       {"recompute", b.recompute},
       {"backward", b.backward},
       {"optimizer", b.optimizer},
       {"exposed communication", b.exposed_communication},
       {"bubble", b.bubble},
       {"dispatch", b.dispatch}}};
  fmt::format_to(out, "  where the critical rank's step goes\n");
  for (const auto& [name, time] : terms) {
    if (time < kLeastShown * p.step_time) continue;
    fmt::format_to(out, "    {:<22}{:>10}  {:5.1f} %\n", name, to_text(time),
                   100 * (time / p.step_time));
  }
}

/// Returns lines on the memory of stages. Stages that are alike are one line, with the fullest one.
void describe_memory(Out out, const Plan& plan) {
  constexpr std::size_t kMostLines = 8;
  const auto& stages = plan.prediction.stages;
  const bool arena = plan.framework.memory.allocator.kind == AllocatorKind::arena;
  const std::vector<Filling> fillings = fillings_of(plan);
  fmt::format_to(out, "  memory per device: {} + context, of its capacity, and {}\n",
                 arena ? "arena" : "reserved", arena ? "live bytes at the peak" : "allocated");
  for (const AlikeStages& alike : alike_stages(fillings, kMostLines)) {
    const Filling& filling = fillings[alike.fullest];
    const StagePrediction& stage = stages[alike.fullest];
    fmt::format_to(out, "    {:<15} {} + {} = {}; {} ({} bytes)\n", name_of(alike, stages),
                   to_text(filling.reserved), to_text(filling.outside), taken_text(filling),
                   to_text(stage.allocated), stage.allocated.count());
  }
  const Bytes host = largest(stages, &StagePrediction::host);
  if (host > Bytes())
    fmt::format_to(out, "  host memory for a rank: {} ({} bytes) at most\n", to_text(host),
                   host.count());
}

/// Returns the fields in which `strategy` differs from `chosen`: "pp=2 micro_batch=4".
std::string differences(const Strategy& strategy, const Strategy& chosen) {
  return fields_text(differing_fields(strategy, chosen));
}

/// Says how much longer a step is than the chosen plan's: "+1.2 %".
std::string longer(Seconds step, const Plan& plan) {
  return fmt::format("{:+.1f} %", 100 * (step / plan.prediction.step_time - 1));
}

/// Says which plan is predicted to be faster, and why it is not recommended.
void describe_fastest(Out out, const Plan& plan) {
  if (!plan.fastest) return;
  fmt::format_to(out, "  fastest     {} ({}), not recommended for {}: {}\n",
                 to_text(plan.fastest->step_time), longer(plan.fastest->step_time, plan),
                 words_of(plan.fastest->unusual),
                 differences(plan.fastest->strategy, plan.strategy));
}

/// Returns a step time and its interval beside the chosen plan's: "28.3 s   +0.1 % ( -7.7 to
/// +8.5 %) tied  ".
std::string beside(Seconds step, const StepRatio& ratio, const Plan& plan, bool chosen = false) {
  if (chosen) return fmt::format("{:>8}{:35}", to_text(step), "");
  return fmt::format("{:>8} {:+6.1f} % ({:+5.1f} to {:+5.1f} %) {:<6}", to_text(step),
                     100 * (step / plan.prediction.step_time - 1), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1), relation_of(ratio));
}

void describe_runners_up(Out out, const Plan& plan) {
  if (plan.runners_up.empty()) return;
  fmt::format_to(out,
                 "runners-up: how much longer (90 % interval), the term by which each loses most, "
                 "where it differs\n");
  for (const RunnerUp& loser : plan.runners_up) {
    fmt::format_to(out, "  {}  takes {:>8}  {:<32}  {}\n",
                   beside(loser.step_time, loser.ratio, plan), to_text(loser.taken),
                   loss_words(loser), differences(loser.strategy, plan.strategy));
  }
}

/// Lists the chosen plan and the others by step time.
void describe_ranking(Out out, const Plan& plan) {
  std::vector<const RunnerUp*> order;
  for (const RunnerUp& one : plan.runners_up) order.push_back(&one);
  std::ranges::stable_sort(order, {}, [](const RunnerUp* one) { return one->step_time; });
  fmt::format_to(out,
                 "the {} best plans that split the job otherwise: step time, how much longer (90 % "
                 "interval), what each takes of a device, where it differs\n",
                 order.size() + 1);
  fmt::format_to(out, "  {:>3}  {}  takes {:>8}  chosen\n", 1,
                 beside(plan.prediction.step_time, {}, plan, true), to_text(most_taken(plan)));
  for (std::size_t i = 0; i < order.size(); ++i) {
    fmt::format_to(out, "  {:>3}  {}  takes {:>8}  {}\n", i + 2,
                   beside(order[i]->step_time, order[i]->ratio, plan), to_text(order[i]->taken),
                   differences(order[i]->strategy, plan.strategy));
  }
}

void describe_front(Out out, const Plan& plan) {
  if (plan.pareto.size() < 2) return;
  fmt::format_to(out,
                 "Pareto front of step time and memory taken of a device, in steps of {:.0f} % of "
                 "it, up to {} times the best step\n",
                 100 * kFrontSaving, kFrontTimes);
  for (const OtherPlan& point : plan.pareto) {
    const bool chosen = point.strategy == plan.strategy;
    fmt::format_to(out, "  {}  takes {:>8}  {}\n",
                   beside(point.step_time, point.ratio, plan, chosen), to_text(point.taken),
                   chosen ? "chosen" : differences(point.strategy, plan.strategy));
  }
}

void describe_counts(Out out, std::span<const Pruned> counts) {
  for (const Pruned& entry : counts) {
    fmt::format_to(out, "  {:>8}  {}\n", entry.count, entry.reason);
  }
}

/// Returns the keys that the plan's search did not vary.
std::vector<std::string_view> left_out(const Plan& plan) {
  std::vector<std::string_view> keys = not_searched();
  std::erase_if(keys, [&](std::string_view key) { return is_tried(plan.constraints.tried, key); });
  if (plan.strategy.experts.overlap_exchange) std::erase(keys, "overlap_expert_exchange");
  return keys;
}

/// Returns the keys whose values in the plan are not in the space
/// (planner/search/exchange_choices.h).
std::vector<std::string_view> changed_at_last(const Plan& plan) {
  const Constraints& held = plan.constraints;
  const auto is_free = [&](std::string_view key) {
    return !is_fixed(held.fixed, key) && !is_tried(held.tried, key);
  };
  std::vector<std::string_view> keys;
  if (plan.strategy.experts.overlap_exchange && is_free("overlap_expert_exchange"))
    keys.emplace_back("overlap_expert_exchange");
  const auto usual = expert_dispatches(plan.job, plan.framework, plan.strategy);
  const bool known = std::ranges::find(usual, plan.strategy.experts.dispatch) != usual.end();
  if (!known && is_free("expert_dispatch")) keys.emplace_back("expert_dispatch");
  return keys;
}

void describe_search(Out out, const Plan& plan) {
  const SearchSummary& search = plan.search;
  fmt::format_to(out, "search: branch and bound, {} candidates; {}\n", search.space,
                 search.proven ? "the choice is proven best of the space" : "not proven");
  if (!search.proven) {
    fmt::format_to(out, "  {:>8}  left when the search ended; {}\n", search.unexplored,
                   search.gap > 0 ? fmt::format("at most {:.1f} % faster is possible",
                                                100 * possible_gain(search))
                                  : "none is faster than the choice");
  }
  fmt::format_to(out, "  {:>8}  evaluated, of which {} do not fit\n", search.evaluated,
                 search.infeasible);
  describe_counts(out, left_out_by(search));
  fmt::format_to(out, "by stage, in 1F1B without virtual stages: {}\n",
                 fmt::join(chosen_by_stage(), ", "));
  if (const auto keys = changed_at_last(plan); !keys.empty())
    fmt::format_to(out, "on the fastest plans, after all others: {}\n", fmt::join(keys, ", "));
  fmt::format_to(out, "not searched, --fix and --try set them: {}\n",
                 fmt::join(left_out(plan), ", "));
}

}  // namespace

std::string describe_step(const Prediction& prediction, bool makes_timing_claim) {
  std::string text;
  const Out out = std::back_inserter(text);
  describe_rates(out, prediction, makes_timing_claim);
  describe_breakdown(out, prediction);
  return text;
}

std::string describe_host(const Target& target, const Strategy& strategy,
                          std::span<const StagePrediction> stages) {
  const Bytes of_rank = largest(stages, &StagePrediction::host);
  if (of_rank == Bytes()) return "";
  const auto& host = target.cluster().host;
  const bool stated = host && host->memory;
  return fmt::format("  host memory: {} ({} bytes) for a rank at most, {} for a node{}\n",
                     to_text(of_rank), of_rank.count(),
                     to_text(host_memory_of_node(target, strategy, stages)),
                     stated ? fmt::format(" of {}", to_text(*host->memory)) : "");
}

std::string describe(const StepParts& parts) {
  if (parts.communication.empty()) return "";
  std::string text =
      fmt::format("  communication of the critical rank\n    {:<14}{:>18}{:>18}{:>18}\n", "over",
                  "waits", "exposed transfer", "hidden");
  for (const GroupTime& time : parts.communication) {
    text += fmt::format("    {:<14}{:>18}{:>18}{:>18}\n", time.group, to_text(time.wait.seconds()),
                        to_text(time.transfer.seconds()), to_text(time.hidden.seconds()));
  }
  return text;
}

std::string describe(const Plan& plan, bool by_rank) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "chosen: {}\n  in words: {}\n", strategy_summary(plan.strategy),
                 layout_text(plan.job, plan.framework, plan.strategy));
  if (const std::string flags = framework_flags(plan.framework, plan.job, plan.strategy);
      !flags.empty())
    fmt::format_to(out, "  in {}: {}\n", plan.framework.name, flags);
  if (!plan.oversubscribed) describe_fastest(out, plan);
  text += describe_step(plan.prediction, !plan.oversubscribed);
  describe_memory(out, plan);
  if (plan.job.experts && plan.strategy.ep > 1) {
    text += describe(rows_room(plan.job, plan.framework, plan.strategy), *plan.job.experts);
  }
  by_rank ? describe_ranking(out, plan) : describe_runners_up(out, plan);
  describe_front(out, plan);
  describe_search(out, plan);
  return text;
}

std::string training_line(const Training& training, DeviceKind kind) {
  return fmt::format("  days        {}\n", training_text(training, kind));
}

std::string describe_parameters(const Job& job) {
  const Graph graph = build_forward(job, 1);
  const std::string trained = has_frozen(job) ? fmt::format(", of which {} are trained",
                                                            grouped(trained_parameter_count(graph)))
                                              : "";
  return fmt::format("  parameters  {}{}\n", grouped(parameter_count(graph)), trained);
}

std::string describe(const NothingFits& refused) {
  std::string text = fmt::format("{}\n", refused.what());
  if (!refused.changes().empty()) text += "what would fit:\n";
  for (const std::string& change : refused.changes()) text += fmt::format("  {}\n", change);
  return text;
}

std::string describe(const Space& space, bool list) {
  std::string text;
  const Out out = std::back_inserter(text);
  if (list) {
    for (const Strategy& strategy : space.legal) {
      fmt::format_to(out, "{}\n", strategy_summary(strategy));
    }
  }
  fmt::format_to(out, "{} legal of {} candidates\n", space.legal.size(), space.enumerated);
  describe_counts(out, space.rejected);
  for (const Dimension& dimension : dimensions(space)) {
    fmt::format_to(out, "  {:<18}", dimension.key);
    for (const auto& [value, count] : dimension.values) {
      fmt::format_to(out, " {} ({})", value, count);
    }
    text += "\n";
  }
  return text;
}

}  // namespace plimsoll
