#include "planner/search/extended_breakdown.h"

#include <algorithm>

#include "planner/explore/fewer_micro_batches.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

Evaluation evaluate_few(const SearchRequest& request, const CostModel& costs,
                        const Strategy& strategy, const Job& few) {
  const Footprint footprint = lay_out(few, strategy, request.framework, costs.cluster(),
                                      request.reserve, Proof::none, AllocatorReplay::leave_out);
  return predict(few, strategy, footprint, costs, request.devices, Folding::folded,
                 Detail::critical);
}

/// `few` and so many times what `more` has beyond it.
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
  for (std::size_t g = 0; g < few.communication.size(); ++g) {
    if (few.communication[g].group != more.communication[g].group) return std::nullopt;
    const GroupTime time = extended(few.communication[g], more.communication[g], times);
    if (std::min({time.wait, time.transfer, time.hidden}) < Picoseconds()) return std::nullopt;
    parts.communication.push_back(time);
  }
  return parts;
}

}  // namespace

std::optional<StepParts> extended_parts(const SearchRequest& request, const CostModel& costs,
                                        const Strategy& strategy, Seconds step) {
  const auto fewer = with_fewer_micro_batches(request.job, strategy, request.framework);
  if (!fewer) return std::nullopt;
  Job longer = fewer->job;
  longer.global_batch += fewer->stand_for.micro_batches_per_cycle * strategy.micro_batch *
                         strategy.dp * strategy.sharding_degree;
  const Evaluation few = evaluate_few(request, costs, strategy, fewer->job);
  const Evaluation more = evaluate_few(request, costs, strategy, longer);
  const std::int64_t left_out = fewer->stand_for.cycles_left_out;
  if (!same_rank_is_critical(few, more, left_out)) return std::nullopt;
  std::optional<StepParts> parts = extended(few.parts, more.parts, left_out);
  if (!parts || parts->step != to_picoseconds(step)) return std::nullopt;
  return parts;
}

}  // namespace plimsoll
