// Describe: plans, predictions and spaces as terminal text.
#include "planner/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <sstream>
#include <vector>

namespace plimsoll {
namespace {

using Out = std::back_insert_iterator<std::string>;

void describe_rates(Out out, const Prediction& p, bool makes_timing_claim) {
  fmt::format_to(out, "  step time   {}{}\n", to_text(p.step_time),
                 makes_timing_claim ? "" : " (oversubscribed: no timing claim)");
  fmt::format_to(out, "  throughput  {:.0f} tokens/s\n", p.tokens_per_second);
  fmt::format_to(out, "  MFU         {:.1f} % (HFU {:.1f} %) of {} per device\n", 100 * p.mfu,
                 100 * p.hfu, to_text(p.peak_flops));
  fmt::format_to(out, "  that peak   {}\n", p.peak_source);
  fmt::format_to(out, "  costs      ");
  for (std::size_t i = 0; i < p.share_by_provenance.size(); ++i) {
    if (p.share_by_provenance[i] == 0) continue;
    fmt::format_to(out, " {} {:.1f} %", to_text(Provenance(i)), 100 * p.share_by_provenance[i]);
  }
  fmt::format_to(out, " of op time; weakest: {}\n", to_text(p.worst));
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
    fmt::format_to(out, "    {:<22}{:>10}  {:5.1f} %\n", name, to_text(time),
                   100 * (time / p.step_time));
  }
}

void describe_memory(Out out, const Prediction& p) {
  fmt::format_to(out, "  memory per device\n");
  for (const StagePrediction& stage : p.stages) {
    const double share = 100.0 * static_cast<double>(stage.peak.count()) /
                         static_cast<double>(stage.capacity.count());
    fmt::format_to(out, "    stage {:<3} peak {:>10} ({} bytes), arena {}, of {} ({:.1f} %)\n",
                   stage.stage, to_text(stage.peak), stage.peak.count(), to_text(stage.arena),
                   to_text(stage.capacity), share);
  }
}

/// "+1.2 ms bubble", "3.1 GiB over capacity": why it is not the chosen plan.
std::string loss_of(const RunnerUp& loser) {
  if (!loser.fits) return fmt::format("does not fit: {} too much", to_text(loser.term_bytes));
  if (loser.term == "memory") return fmt::format("+{} of peak", to_text(loser.term_bytes));
  if (loser.term == "tie") return "as good; comes later in the space";
  return fmt::format("+{} {}", to_text(loser.term_time), loser.term);
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The choices of `strategy` that `chosen` makes otherwise: "pp=2 micro_batch=4".
std::string differences(const Strategy& strategy, const Strategy& chosen) {
  const std::vector<std::string> usual = words(strategy_summary(chosen));
  std::string text;
  for (const std::string& word : words(strategy_summary(strategy))) {
    if (std::find(usual.begin(), usual.end(), word) == usual.end()) text += " " + word;
  }
  return text;
}

void describe_runners_up(Out out, const Plan& plan) {
  if (plan.runners_up.empty()) return;
  fmt::format_to(out, "runners-up: the term by which each loses most, and where it differs\n");
  for (const RunnerUp& loser : plan.runners_up) {
    const double slower = 100 * (loser.step_time / plan.prediction.step_time - 1);
    fmt::format_to(out, "  {:>8} ({:+.1f} %)  peak {:>8}  {:<32} {}\n", to_text(loser.step_time),
                   slower, to_text(loser.peak), loss_of(loser),
                   differences(loser.strategy, plan.strategy));
  }
}

void describe_rejected(Out out, std::span<const Pruned> rejected) {
  for (const Pruned& pruned : rejected) {
    fmt::format_to(out, "  {} rejected: {}\n", pruned.count, pruned.reason);
  }
}

}  // namespace

std::string describe(const Prediction& prediction, bool makes_timing_claim) {
  std::string text;
  const Out out = std::back_inserter(text);
  describe_rates(out, prediction, makes_timing_claim);
  describe_breakdown(out, prediction);
  describe_memory(out, prediction);
  return text;
}

std::string describe(const Plan& plan) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "chosen: {}\n", strategy_summary(plan.strategy));
  text += describe(plan.prediction, !plan.oversubscribed);
  describe_runners_up(out, plan);
  const SearchSummary& search = plan.search;
  fmt::format_to(out, "search: {}, {} candidates, {} evaluated, {} of them do not fit; {}\n",
                 search.method, search.space, search.evaluated, search.infeasible,
                 search.proven ? "the choice is proven best of the space" : "not proven");
  describe_rejected(out, search.pruned);
  return text;
}

std::string describe(const Space& space) {
  std::string text;
  const Out out = std::back_inserter(text);
  for (const Strategy& strategy : space.legal) {
    fmt::format_to(out, "{}\n", strategy_summary(strategy));
  }
  fmt::format_to(out, "{} legal of {} candidates\n", space.legal.size(), space.enumerated);
  describe_rejected(out, space.rejected);
  return text;
}

}  // namespace plimsoll
