// Candidate pool: the candidates that a search has simulated so far, and whether their memory is
// known.
#pragma once

#include <span>
#include <vector>

#include "planner/explore/assess.h"

namespace plimsoll {

/// The simulated candidates of a search. Replaying an allocator costs as much as simulating, so a
/// candidate is taken to fit until the result depends on it.
class CandidatePool {
 public:
  CandidatePool(const Target& target, std::int64_t threads, Shown shown)
      : target_(target), threads_(threads), shown_(shown) {}

  void add(Candidate candidate) { all_.push_back(std::move(candidate)); }
  std::span<const Candidate> all() const { return all_; }
  std::vector<Candidate> take() { return std::move(all_); }

  /// Whether it is certain that the candidate fits, or that it does not.
  bool memory_is_known(const Candidate& candidate) const;
  /// Confirms the memory of the best plan, its runners-up and the Pareto front. Returns whether all
  /// of these fit.
  bool confirm_shown();
  /// Confirms the memory of the fastest candidate.
  void confirm_fastest();

 private:
  void confirm(const std::vector<std::size_t>& indices);

  const Target& target_;
  const std::int64_t threads_;
  const Shown shown_;
  std::vector<Candidate> all_;  ///< in the order in which they were simulated
};

}  // namespace plimsoll
