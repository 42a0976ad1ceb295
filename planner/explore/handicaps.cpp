// Handicaps of strategies and candidates.
#include "planner/explore/handicaps.h"

#include <algorithm>

#include "plan/memory_interval.h"

namespace plimsoll {

Handicaps::Handicaps(const SearchRequest& request)
    : target_(request.target),
      capacity_(largest_memory(request.target)),
      devices_{target_.cluster().devices_per_node, target_.costs->device_kinds() > 1} {
  for (std::size_t i = 0; i < kUnusualChoices; ++i) {
    counts_[i] = !request.fastest &&
                 std::ranges::none_of(rule_of(UnusualChoice(i)).fields, [&](std::string_view key) {
                   return is_fixed(request.constraints.fixed, key);
                 });
  }
}

std::vector<Unusual> Handicaps::of(const Strategy& strategy, Bytes peak) const {
  std::vector<Unusual> choices = unusual_choices(target_.job, strategy, devices_);
  const double overflow =
      least_overflow(peak, capacity_, target_.framework(), outside_program(target_, strategy),
                     learned_memory(target_));
  if (overflow > 0) choices.push_back(tight_memory(overflow));
  std::erase_if(choices, [&](const Unusual& one) { return !counts_[std::size_t(one.choice)]; });
  return choices;
}

void Handicaps::weigh(Candidate& candidate) const {
  const std::vector<StagePrediction>& stages = candidate.prediction.stages;
  const bool known = has_arena(target_.framework()) || candidate.replayed;
  candidate.unusual =
      of(candidate.strategy, known ? Bytes() : largest(stages, &StagePrediction::peak));
  if (!known || !counts_[std::size_t(UnusualChoice::tight_memory)]) return;
  const MemoryInterval memory =
      memory_interval(stages, target_.framework(), outside_program(target_, candidate.strategy),
                      target_.reserve, learned_memory(target_));
  if (memory.verdict == MemoryVerdict::tight)
    candidate.unusual.push_back(tight_memory(memory.overflow));
}

}  // namespace plimsoll
