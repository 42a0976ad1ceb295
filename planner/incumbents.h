// Incumbents: the plans that others have to beat.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "planner/runners_up.h"

namespace plimsoll {

/// What is known when a round of a search begins.
class Incumbents {
 public:
  void learn(std::span<const Candidate> candidates) {
    const std::vector<std::size_t> best = best_plans(candidates);
    last_listed_.reset();
    if (best.size() == kRunnersUp + 1) {
      last_listed_ = candidates[best.back()].score.prediction.step_time;
    }
    best_.reset();
    if (!best.empty()) best_ = candidates[best.front()].score.prediction.step_time;
    feasible_.clear();
    for (const Candidate& candidate : candidates) {
      if (feasible(candidate)) feasible_.push_back(&candidate);
    }
  }

  std::optional<Seconds> best() const { return best_; }

  /// Whether a plan of these bounds may be the best or a runner-up: not slower than the last of
  /// those, nor than the same with other buckets.
  bool may_be_listed(Seconds bound, const Strategy& strategy) const {
    if (last_listed_ && bound > *last_listed_) return false;
    return std::none_of(feasible_.begin(), feasible_.end(), [&](const Candidate* candidate) {
      return bound > candidate->score.prediction.step_time &&
             same_but_buckets(candidate->strategy, strategy);
    });
  }

  /// Whether one may be on the Pareto front: no plan is as good in both and better in one.
  bool may_be_on_front(Seconds bound, Bytes peak) const {
    if (best_ && bound > kFrontTimes * *best_) return false;
    return std::none_of(feasible_.begin(), feasible_.end(), [&](const Candidate* candidate) {
      const Seconds step = candidate->score.prediction.step_time;
      const Bytes other = candidate->score.peak;
      return step <= bound && other <= peak && (step < bound || other < peak);
    });
  }

 private:
  std::optional<Seconds> best_, last_listed_;
  std::vector<const Candidate*> feasible_;
};

}  // namespace plimsoll
