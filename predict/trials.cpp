// Expected gains of trials.
#include "predict/trials.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/log_statistics.h"

namespace plimsoll {
namespace {

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double probability_below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

/// The logarithm of the best step so far over that of the first plan, and its covariances with
/// those of all plans.
struct Best {
  double mean = 0, variance = 0;
  Eigen::VectorXd with;
};

/// Logarithms of steps, with handicaps, over that of the first plan.
struct LogSteps {
  Eigen::VectorXd means, fits;
  Eigen::MatrixXd covariance;
};

/// Splits unusual choices into the handicap of all but tight memory, and the probability of a fit:
/// tight memory is measured by the odds against it.
std::pair<double, double> handicap_and_fit(std::vector<Unusual> unusual) {
  double fits = 1;
  std::erase_if(unusual, [&](const Unusual& one) {
    if (one.choice != UnusualChoice::tight_memory) return false;
    fits = 1 / (1 + one.gain / rule_of(one.choice).gain);
    return true;
  });
  return {handicap(unusual), fits};
}

LogSteps log_steps_of(std::span<const TrialPlan> plans) {
  const auto count = Eigen::Index(plans.size());
  const auto at = [&](Eigen::Index i) -> const TrialPlan& { return plans[std::size_t(i)]; };
  Eigen::MatrixXd apart(count, count);  // variances of differences
  for (Eigen::Index i = 0; i < count; ++i) {
    for (Eigen::Index j = 0; j < count; ++j) {
      const double deviation = half_width_between(at(i).time, at(j).time) / kNormal90;
      apart(i, j) = deviation * deviation;
    }
  }
  LogSteps steps{Eigen::VectorXd(count), Eigen::VectorXd(count), Eigen::MatrixXd(count, count)};
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto [handicap, fits] = handicap_and_fit(at(i).unusual);
    steps.means[i] = std::log(at(i).time.step_time.value() * handicap);
    steps.fits[i] = fits;
    for (Eigen::Index j = 0; j < count; ++j)
      steps.covariance(i, j) = (apart(i, 0) + apart(j, 0) - apart(i, j)) / 2;
  }
  steps.means.array() -= steps.means[0];
  return steps;
}

/// Returns the best of what was tried and of plan `i`, if that fits.
Best best_with(const Best& best, const LogSteps& steps, Eigen::Index i) {
  const double variance = steps.covariance(i, i);
  const double apart = std::sqrt(std::max(best.variance + variance - 2 * best.with[i], 0.0));
  if (apart == 0) return best;
  const double ahead = (steps.means[i] - best.mean) / apart;
  // The probability that the best so far stays the best, or that the other one does not fit.
  const double stays = 1 - steps.fits[i] * probability_below(-ahead);
  const double both = steps.fits[i] * apart * density(ahead);
  const double mean = best.mean * stays + steps.means[i] * (1 - stays) - both;
  const double square = (best.mean * best.mean + best.variance) * stays +
                        (steps.means[i] * steps.means[i] + variance) * (1 - stays) -
                        (best.mean + steps.means[i]) * both;
  return {mean, std::max(square - mean * mean, 0.0),
          best.with * stays + steps.covariance.col(i) * (1 - stays)};
}

}  // namespace

std::vector<ChosenTrial> choose_trials(std::span<const TrialPlan> plans, double least) {
  std::vector<ChosenTrial> trials;
  if (plans.empty()) return trials;
  const LogSteps steps = log_steps_of(plans);
  Best best{0, 0, Eigen::VectorXd::Zero(Eigen::Index(plans.size()))};
  while (trials.size() + 1 < kMostTrials) {
    Best next = best;
    std::size_t chosen = 0;
    for (std::size_t i = 1; i < plans.size(); ++i) {
      if (std::ranges::find(trials, i, &ChosenTrial::plan) != trials.end()) continue;
      Best with = best_with(best, steps, Eigen::Index(i));
      if (with.mean >= next.mean) continue;
      next = std::move(with);
      chosen = i;
    }
    if (chosen == 0 || std::exp(best.mean) - std::exp(next.mean) < least) break;
    best = std::move(next);
    trials.push_back({chosen, -std::expm1(best.mean)});
  }
  return trials;
}

double least_gain(std::int64_t tokens_of_step, double tokens) {
  return std::max(double(kTrialSteps * tokens_of_step) / tokens, kLeastGain);
}

}  // namespace plimsoll
