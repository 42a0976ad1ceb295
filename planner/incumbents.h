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
  /// `least`: no plan whose step is shorter is left to be found.
  void learn(std::span<const Candidate> candidates, Seconds least) {
    const std::vector<std::size_t> best = best_plans(candidates);
    last_listed_.reset();
    if (best.size() == kRunnersUp + 1) {
      last_listed_ = candidates[best.back()].score.prediction.step_time;
    }
    best_.reset();
    if (!best.empty()) best_ = candidates[best.front()].score.prediction.step_time;
    feasible_.clear();
    std::vector<Candidate> settled;  // nothing that comes changes what of these is on the front
    for (const Candidate& candidate : candidates) {
      if (!feasible(candidate)) continue;
      feasible_.push_back(&candidate);
      if (candidate.score.prediction.step_time < least) settled.push_back(candidate);
    }
    const std::vector<std::size_t> front = pareto_front(settled);
    front_end_.reset();
    if (!front.empty()) front_end_ = settled[front.back()].score.peak;
  }

  std::optional<Seconds> best() const { return best_; }

  /// Whether a plan of these bounds may be the best or a runner-up: not slower than the last of
  /// those, nor than the same with other details.
  bool may_be_listed(Seconds bound, const Strategy& strategy) const {
    if (!may_be_listed(bound)) return false;
    return std::none_of(feasible_.begin(), feasible_.end(), [&](const Candidate* candidate) {
      return bound > candidate->score.prediction.step_time &&
             same_but_details(candidate->strategy, strategy);
    });
  }

  /// The same of strategies that are not known one by one.
  bool may_be_listed(Seconds bound) const { return !last_listed_ || bound <= *last_listed_; }

  /// Whether one may be on the Pareto front: what is left comes after all that is settled.
  bool may_be_on_front(Seconds bound, Bytes peak) const {
    if (best_ && bound > kFrontTimes * *best_) return false;
    return !front_end_ || saves_enough(peak, *front_end_);
  }

 private:
  std::optional<Seconds> best_, last_listed_;
  std::optional<Bytes> front_end_;  ///< the peak of the last settled plan on the front
  std::vector<const Candidate*> feasible_;
};

}  // namespace plimsoll
