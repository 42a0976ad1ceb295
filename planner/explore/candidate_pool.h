// Candidate pool: what a search has simulated so far, and of which of it the memory is known.
#pragma once

#include <span>
#include <vector>

#include "planner/explore/assess.h"

namespace plimsoll {

/// Replaying an allocator costs as much as simulating. So strategies are taken to fit until
/// something depends on it.
class CandidatePool {
 public:
  CandidatePool(const SearchRequest& request, const CostModel& costs)
      : request_(request), costs_(costs) {}

  void add(Candidate candidate) { all_.push_back(std::move(candidate)); }
  std::span<const Candidate> all() const { return all_; }
  std::vector<Candidate> take() { return std::move(all_); }

  /// Whether it is certain that the candidate fits, or that it does not.
  bool is_known(const Candidate& candidate) const;
  /// Finds it out for the best plan, its runners-up and the Pareto front; whether all of these fit.
  bool confirm_shown();
  /// Finds it out for the fastest.
  void confirm_fastest();

 private:
  void confirm(const std::vector<std::size_t>& indices);

  const SearchRequest& request_;
  const CostModel& costs_;
  std::vector<Candidate> all_;  ///< in the order in which they were simulated
};

}  // namespace plimsoll
