// Adds what one cycle of micro-batches takes, once for each cycle that was left out.
#include "planner/search/extended_breakdown.h"

#include <algorithm>

#include "planner/bounds/shorter_step.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

Evaluation critical_step(const Target& target, const Strategy& strategy) {
  const Footprint footprint = lay_out(target, strategy, Proof::none, AllocatorReplay::leave_out);
  return predict(target, strategy, footprint, Folding::folded, Detail::critical);
}

/// Returns `few` plus so many times the difference from `few` to `more`.
Picoseconds extended(Picoseconds few, Picoseconds more, std::int64_t times) {
  return few + Picoseconds((more - few).count() * times);
}

GroupTime extended(const GroupTime& few, const GroupTime& more, std::int64_t times) {
  return {few.group, extended(few.wait, more.wait, times),
          extended(few.transfer, more.transfer, times), extended(few.hidden, more.hidden, times)};
}

/// Whether the rank that computes longest in the short steps does so in the long one.
bool same_rank_is_critical(const Evaluation& few, const Evaluation& more, std::int64_t times) {
  if (few.critical_rank != more.critical_rank) return false;
  std::vector<Picoseconds> all;
  for (std::size_t r = 0; r < few.computes.size(); ++r)
    all.push_back(extended(few.computes[r], more.computes[r], times));
  return std::ranges::max_element(all) - all.begin() ==
         std::ranges::max_element(few.computes) - few.computes.begin();
}

std::optional<StepParts> extended(const StepParts& few, const StepParts& more, std::int64_t times) {
  if (few.communication.size() != more.communication.size()) return std::nullopt;
  StepParts parts;
  for (const auto part :
       {&StepParts::step, &StepParts::forward, &StepParts::recompute, &StepParts::backward,
        &StepParts::optimizer, &StepParts::bubble, &StepParts::dispatch}) {
    parts.*part = extended(few.*part, more.*part, times);
    if (parts.*part < Picoseconds()) return std::nullopt;
  }
  for (std::size_t t = 0; t < kTimers; ++t)
    parts.timers[t] = extended(few.timers[t], more.timers[t], times);
  for (std::size_t g = 0; g < few.communication.size(); ++g) {
    if (few.communication[g].group != more.communication[g].group) return std::nullopt;
    const GroupTime time = extended(few.communication[g], more.communication[g], times);
    if (std::min({time.wait, time.transfer, time.hidden}) < Picoseconds()) return std::nullopt;
    parts.communication.push_back(time);
  }
  return parts;
}

}  // namespace

std::optional<StepParts> extended_parts(const Target& target, const Strategy& strategy,
                                        Seconds step) {
  const auto shorter = with_fewer_micro_batches(target, strategy);
  if (!shorter) return std::nullopt;
  Target longer = shorter->target;
  longer.job.global_batch += shorter->stand_for.micro_batches_per_cycle * strategy.micro_batch *
                             strategy.dp * strategy.sharding_degree;
  const Evaluation few = critical_step(shorter->target, strategy);
  const Evaluation more = critical_step(longer, strategy);
  const std::int64_t left_out = shorter->stand_for.cycles_left_out;
  if (!same_rank_is_critical(few, more, left_out)) return std::nullopt;
  std::optional<StepParts> parts = extended(few.parts, more.parts, left_out);
  if (!parts || parts->step != to_picoseconds(step)) return std::nullopt;
  return parts;
}

Breakdown breakdown_of(const Target& target, const Strategy& strategy, Seconds step) {
  if (const auto parts = extended_parts(target, strategy, step)) return break_down(*parts, step);
  return critical_step(target, strategy).prediction.breakdown;
}

}  // namespace plimsoll
