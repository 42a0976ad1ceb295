// Incumbents: holds the plans that others have to beat.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "planner/explore/runners_up.h"
#include "planner/explore/search_node.h"

namespace plimsoll {

/// The plans that are known when a round of a search begins.
class Incumbents {
 public:
  /// `tolerance` and `shown` are SearchRequest's.
  Incumbents(double tolerance, Shown shown) : slower_(1 + tolerance), shown_(shown) {}

  void learn(std::span<const Candidate> candidates) {
    const std::vector<std::size_t> best = best_plans(candidates, shown_);
    best_.reset();
    fastest_.reset();
    last_listed_.reset();
    if (!best.empty()) best_ = merit(candidates[best.front()]);
    if (const auto fastest = fastest_plan(candidates))
      fastest_ = candidates[*fastest].prediction.step_time;
    if (best.size() == shown_.runners_up + 1) last_listed_ = merit(candidates[best.back()]);
    feasible_.clear();
    for (const Candidate& candidate : candidates) {
      if (feasible(candidate)) feasible_.push_back(&candidate);
    }
    front_.clear();
    for (const std::size_t i : pareto_front(candidates)) {
      const Prediction& plan = candidates[i].prediction;
      front_.push_back({merit(candidates[i]), largest(plan.stages, &StagePrediction::peak)});
    }
  }

  /// Whether a strategy of the node may be the best or the fastest plan.
  bool may_be_best(const SearchNode& node) const {
    return !best_ || node.merit().seconds() <= *best_ || node.bound.seconds() <= *fastest_;
  }

  /// Whether a plan with this bound of its merit may be a runner-up. Such a plan is better than the
  /// last runner-up, and than plans that are like it.
  bool may_be_listed(Seconds bound, const Strategy& strategy) const {
    if (!may_be_listed(bound)) return false;
    return std::none_of(feasible_.begin(), feasible_.end(), [&](const Candidate* candidate) {
      return bound * slower_ > merit(*candidate) &&
             are_alike(candidate->strategy, strategy, shown_.likeness);
    });
  }

  /// Whether one of several strategies may be a runner-up, by their common bound.
  bool may_be_listed(Seconds bound) const {
    return !last_listed_ || bound * slower_ <= *last_listed_;
  }

  /// Whether a plan may be on the Pareto front, provided that all better plans are known.
  bool may_be_on_front(Seconds bound, Bytes peak) const {
    if (best_ && bound * slower_ > kFrontTimes * *best_) return false;
    const auto behind = std::find_if(front_.begin(), front_.end(), [&](const FrontPlan& plan) {
      return plan.merit >= bound * slower_;
    });
    return behind == front_.begin() || saves_enough(peak, std::prev(behind)->peak);
  }

 private:
  struct FrontPlan {
    Seconds merit;
    Bytes peak;
  };

  const double slower_;
  const Shown shown_;
  std::optional<Seconds> best_, last_listed_;  ///< merit() of the best and the last runner-up
  std::optional<Seconds> fastest_;             ///< the shortest step
  std::vector<const Candidate*> feasible_;
  std::vector<FrontPlan> front_;  ///< in order of merit
};

}  // namespace plimsoll
