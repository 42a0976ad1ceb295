// Trials: which plans to run for some steps before one of them trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "predict/plan_difference.h"

namespace plimsoll {

/// The steps of a trial. The first ones warm up; half of them are enough for a median.
inline constexpr std::int64_t kTrialSteps = 20;
/// The most plans that are tried, the recommended one among them.
inline constexpr std::size_t kMostTrials = 3;
/// A share of a step. Less is within what the same program's steps differ by from run to run.
inline constexpr double kLeastGain = 0.001;

/// A plan that may be tried.
struct TrialPlan {
  PlanTime time;
  std::vector<Unusual> unusual;  ///< if its memory is tight, a trial finds out whether it fits
};
struct ChosenTrial {
  std::size_t plan = 0;  ///< its index
  /// The share of the recommended plan's step that the best of all tried is expected to save.
  double gain = 0;
};

/// Chooses the plans whose trial is expected to gain most: the first plan, which is the recommended
/// one, is always tried, and each next trial makes the expected step of the best so far least.
/// Logarithms of steps are normal, and half_width_between() bounds their difference; the
/// least of several is taken as normal again (Clark 1961, The greatest of a finite set of random
/// variables). A trial gains at least `least`, a share of the step.
std::vector<ChosenTrial> choose_trials(std::span<const TrialPlan> plans, double least);

/// Returns the share of a step that a trial has to gain so that a training of so many tokens saves
/// the steps of the trial, and at least kLeastGain.
double least_gain(std::int64_t tokens_of_step, double tokens);

}  // namespace plimsoll
