// Confirms the memory of the candidates that a search would show.
#include "planner/explore/candidate_pool.h"

#include <algorithm>

namespace plimsoll {

bool CandidatePool::memory_is_known(const Candidate& candidate) const {
  return has_arena(target_.framework()) || candidate.replayed || !feasible(candidate);
}

bool CandidatePool::confirm(std::vector<std::size_t> indices) {
  std::ranges::sort(indices);
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::erase_if(indices, [&](std::size_t i) { return memory_is_known(all_[i]); });
  std::vector<Candidate> candidates;
  for (const std::size_t i : indices) candidates.push_back(std::move(all_[i]));
  confirm_memory(target_, candidates, threads_);
  bool as_before = true;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::vector<Unusual> before = candidates[k].unusual;
    handicaps_.weigh(candidates[k]);
    as_before = as_before && feasible(candidates[k]) && candidates[k].unusual == before;
    all_[indices[k]] = std::move(candidates[k]);
  }
  return as_before;
}

bool CandidatePool::confirm_shown() {
  std::vector<std::size_t> shown = best_plans(all_, shown_);
  const std::vector<std::size_t> front = pareto_front(all_);
  shown.insert(shown.end(), front.begin(), front.end());
  if (const auto fastest = fastest_plan(all_)) shown.push_back(*fastest);
  return confirm(std::move(shown));
}

void CandidatePool::confirm_best() {
  const auto fastest = fastest_plan(all_);
  if (fastest) confirm({best_plans(all_, {0, shown_.likeness}).front(), *fastest});
}

}  // namespace plimsoll
