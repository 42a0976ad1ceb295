// Candidate pool: the candidates that a search has simulated so far, and whether their memory is
// known.
#pragma once

#include <span>
#include <vector>

#include "planner/explore/assess.h"
#include "planner/explore/handicaps.h"

namespace plimsoll {

/// The simulated candidates of a search. Replaying an allocator costs as much as simulating, so a
/// candidate is taken to fit until the result depends on it.
class CandidatePool {
 public:
  explicit CandidatePool(const SearchRequest& request)
      : target_(request.target),
        handicaps_(request),
        threads_(request.threads),
        shown_(request.shown) {}

  void add(Candidate candidate) {
    handicaps_.weigh(candidate);
    all_.push_back(std::move(candidate));
  }
  std::span<const Candidate> all() const { return all_; }
  std::vector<Candidate> take() { return std::move(all_); }

  /// Whether it is certain that the candidate fits, or that it does not.
  bool memory_is_known(const Candidate& candidate) const;
  /// Confirms the memory of the best plan, its runners-up, the Pareto front and the fastest plan.
  /// Returns whether all of these fit, and as well as it was thought before.
  bool confirm_shown();
  /// Confirms the memory of the best and of the fastest candidate.
  void confirm_best();

 private:
  /// Returns whether all of these fit, with the handicaps that they had before.
  bool confirm(std::vector<std::size_t> indices);

  const Target& target_;
  const Handicaps handicaps_;
  const std::int64_t threads_;
  const Shown shown_;
  std::vector<Candidate> all_;  ///< in the order in which they were simulated
};

}  // namespace plimsoll
