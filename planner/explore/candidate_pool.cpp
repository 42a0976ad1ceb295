// Confirms the memory of the candidates that a search would show.
#include "planner/explore/candidate_pool.h"

#include <algorithm>
#include <optional>

namespace plimsoll {

bool CandidatePool::memory_is_known(const Candidate& candidate) const {
  return has_arena(target_.framework()) || candidate.replayed || !feasible(candidate);
}

void CandidatePool::confirm(const std::vector<std::size_t>& indices) {
  std::vector<Candidate> candidates;
  for (const std::size_t i : indices) candidates.push_back(std::move(all_[i]));
  confirm_memory(target_, candidates, threads_);
  for (std::size_t k = 0; k < indices.size(); ++k) all_[indices[k]] = std::move(candidates[k]);
}

bool CandidatePool::confirm_shown() {
  std::vector<std::size_t> shown = best_plans(all_, shown_);
  const std::vector<std::size_t> front = pareto_front(all_);
  shown.insert(shown.end(), front.begin(), front.end());
  std::ranges::sort(shown);
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  std::erase_if(shown, [&](std::size_t i) { return memory_is_known(all_[i]); });
  confirm(shown);
  return std::ranges::all_of(shown, [&](std::size_t i) { return feasible(all_[i]); });
}

void CandidatePool::confirm_fastest() {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (feasible(all_[i]) && (!fastest || better(all_[i], all_[*fastest]))) fastest = i;
  }
  if (fastest && !memory_is_known(all_[*fastest])) confirm({*fastest});
}

}  // namespace plimsoll
