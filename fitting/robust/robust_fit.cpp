// Damped Gauss-Newton steps solve the robust least squares.
#include "fitting/robust/robust_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/log_statistics.h"

namespace plimsoll {
namespace {

using Values = LogModel::Values;

constexpr double kDerivativeStep = 0.02;  // of a logarithm
constexpr double kHuber = 1.5;            // standard deviations
constexpr double kLongestStep = 0.5;      // of a logarithm, in one step
// A step ends the search if it is smaller than this change of a logarithm, or than this share of
// the number's uncertainty.
constexpr double kSmallestStep = 2e-3, kSmallestShare = 0.05;
constexpr double kShrinks = 0.5;  // a step to the one before: longer asks for fresh derivatives
constexpr int kMostShorter = 4;
// The damping of a step, relative to the diagonal of the normal equations: the first value above
// none, the factor after a step that was no better, and the divisor after one that was.
constexpr double kLeastDamping = 0.02, kMoreDamping = 4, kLessDamping = 8;
constexpr double kNarrowed = 0.9;  // of the prior's spread: wider is not determined

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool all_finite(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

/// The inputs of the search for a solution.
struct SearchProblem {
  const LogModel& model;
  const std::vector<bool>& use;
  const std::vector<bool>& fixed;
  Eigen::MatrixXd precision;

  std::size_t group(std::size_t i) const { return model.groups.empty() ? 0 : model.groups[i]; }
  double open(std::size_t i) const { return model.open.empty() ? 0 : model.open[i]; }
};

Eigen::MatrixXd precision_of(const LogModel& model) {
  if (model.precision) return *model.precision;
  const auto n = std::ptrdiff_t(model.numbers.size());
  Eigen::MatrixXd precision = Eigen::MatrixXd::Zero(n, n);
  for (std::ptrdiff_t p = 0; p < n; ++p) {
    const double spread = model.numbers[std::size_t(p)].spread;
    precision(p, p) = 1 / (spread * spread);
  }
  return precision;
}

/// Returns the standard deviation of a group: the median of |x| of a normal distribution is 0.6745
/// standard deviations. Measurements without an uncertainty of their own are used, if there are
/// enough.
double scale_of(const SearchProblem& problem, const Values& residual,
                std::optional<std::size_t> group) {
  Values exact, all;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    if (!problem.use[i] || (group && problem.group(i) != *group)) continue;
    all.push_back(std::abs(residual[i]));
    if (problem.open(i) == 0) exact.push_back(all.back());
  }
  if (group && all.size() < kLeastOfGroup) return scale_of(problem, residual, std::nullopt);
  const double scale = median(exact.size() < kLeastOfGroup ? all : exact) / 0.6745;
  return std::clamp(scale, problem.model.least_scale, problem.model.most_scale);
}

/// By measurement: standard deviations.
Values deviations_of(const SearchProblem& problem, const Values& residual, Values& scales) {
  std::size_t groups = 1;
  for (const std::size_t group : problem.model.groups) groups = std::max(groups, group + 1);
  scales.clear();
  for (std::size_t group = 0; group < groups; ++group)
    scales.push_back(scale_of(problem, residual, group));
  Values deviations;
  for (std::size_t i = 0; i < residual.size(); ++i)
    deviations.push_back(std::hypot(scales[problem.group(i)], problem.open(i)));
  return deviations;
}

Values residual_of(const SearchProblem& problem, const Values& here) {
  Values residual = problem.model.measured;
  for (std::size_t i = 0; i < here.size(); ++i) residual[i] -= here[i];
  return residual;
}

/// Logarithms of the numbers relative to their priors.
Eigen::VectorXd from_prior(const SearchProblem& problem, const Values& values) {
  Eigen::VectorXd moved(std::ptrdiff_t(values.size()));
  for (std::size_t p = 0; p < values.size(); ++p)
    moved[std::ptrdiff_t(p)] = std::log(values[p] / problem.model.numbers[p].prior);
  return moved;
}

/// The loss that the search makes as small as it can.
double loss(const SearchProblem& problem, const Values& values, const Values& residual,
            const Values& deviations) {
  const Eigen::VectorXd moved = from_prior(problem, values);
  double sum = moved.dot(problem.precision * moved) / 2;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    if (!problem.use[i]) continue;
    const double size = std::abs(residual[i]) / deviations[i];
    sum += size <= kHuber ? size * size / 2 : kHuber * size - kHuber * kHuber / 2;
  }
  return sum;
}

/// Normal equations at a point, which give the next step and the covariance.
struct NormalEquations {
  Eigen::MatrixXd matrix;
  Eigen::VectorXd right;
};

NormalEquations normal_equations(const SearchProblem& problem, const Values& values,
                                 const Values& residual, const Values& deviations,
                                 const Eigen::MatrixXd& derivatives) {
  Eigen::VectorXd weights(derivatives.rows()), weighted(derivatives.rows());
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const double size = std::abs(residual[i]) / deviations[i];
    const double robust = (size <= kHuber ? 1 : kHuber / size) / (deviations[i] * deviations[i]);
    weights[std::ptrdiff_t(i)] = problem.use[i] ? robust : 0;
    weighted[std::ptrdiff_t(i)] = weights[std::ptrdiff_t(i)] * residual[i];
  }
  NormalEquations normal;
  normal.matrix = problem.precision + derivatives.transpose() * weights.asDiagonal() * derivatives;
  normal.right =
      derivatives.transpose() * weighted - problem.precision * from_prior(problem, values);
  for (std::ptrdiff_t p = 0; p < normal.right.size(); ++p) {
    if (!problem.fixed[std::size_t(p)]) continue;
    normal.matrix.row(p).setZero();
    normal.matrix.col(p).setZero();
    normal.matrix(p, p) = problem.precision(p, p);
    normal.right[p] = 0;
  }
  return normal;
}

/// Returns the step with the least value of the quadratic that the normal equations stand for. No
/// number may move farther than kLongestStep or beyond its bounds. The number that would go
/// farthest beyond is fixed at the edge of that box and the others are solved for again, until all
/// are inside. A number at the edge stays there, so the result is only close to the least value.
/// Without this, numbers that moved to compensate for a number that is held back would compensate
/// for nothing.
Eigen::VectorXd step_within_bounds(const SearchProblem& problem, const Values& values,
                                   const NormalEquations& normal) {
  const auto count = std::ptrdiff_t(values.size());
  Eigen::VectorXd least(count), most(count), step = Eigen::VectorXd::Zero(count);
  for (std::ptrdiff_t p = 0; p < count; ++p) {
    const FitNumber& number = problem.model.numbers[std::size_t(p)];
    const bool fixed = problem.fixed[std::size_t(p)];
    least[p] = fixed ? 0 : std::max(-kLongestStep, std::log(number.least / values[std::size_t(p)]));
    most[p] = fixed ? 0 : std::min(kLongestStep, std::log(number.most / values[std::size_t(p)]));
  }
  std::vector<std::ptrdiff_t> free(values.size());
  std::iota(free.begin(), free.end(), 0);
  while (!free.empty()) {
    const Eigen::MatrixXd matrix = normal.matrix(free, free);
    Eigen::VectorXd held = step;
    held(free).setZero();
    const Eigen::VectorXd right = (normal.right - normal.matrix * held)(free);
    const Eigen::VectorXd own = matrix.ldlt().solve(right);
    if (!own.allFinite()) return Eigen::VectorXd::Zero(count);
    step(free) = own;
    const Eigen::VectorXd inside = step.cwiseMax(least).cwiseMin(most);
    std::ptrdiff_t farthest = 0;
    if ((step - inside).cwiseAbs().maxCoeff(&farthest) == 0) break;
    step[farthest] = inside[farthest];
    std::erase(free, farthest);
  }
  return step;
}

/// Returns a value within the bounds. It is exactly on a bound that a step misses only by rounding.
double within_bounds(double value, const FitNumber& number) {
  constexpr double kRounding = 1e-12;
  if (value < number.least * (1 + kRounding)) return number.least;
  return value > number.most * (1 - kRounding) ? number.most : value;
}

Values moved_by(const SearchProblem& problem, const Values& values, const Eigen::VectorXd& step) {
  Values moved = values;
  for (std::size_t p = 0; p < values.size(); ++p) {
    const FitNumber& number = problem.model.numbers[p];
    if (problem.fixed[p]) continue;
    moved[p] = within_bounds(values[p] * std::exp(step[std::ptrdiff_t(p)]), number);
  }
  return moved;
}

/// The longest move of a number, in its own units, that ends the search.
double longest_move(const Values& from, const Values& to, const Values& deviations) {
  double longest = 0;
  for (std::size_t p = 0; p < from.size(); ++p) {
    const double small = std::max(kSmallestStep, kSmallestShare * deviations[p]);
    longest = std::max(longest, std::abs(std::log(to[p] / from[p])) / small);
  }
  return longest;
}

/// One step with the derivatives that the solution has; returns the longest move, 0 where nothing
/// is better than staying. `here` and the `damping` that steps begin with go along.
double take_step(const SearchProblem& problem, RobustSolution& solution, Values& here,
                 double& damping) {
  const Values residual = residual_of(problem, here);
  const Values deviations = deviations_of(problem, residual, solution.scales);
  const NormalEquations normal =
      normal_equations(problem, solution.values, residual, deviations, solution.derivatives);
  const Eigen::MatrixXd covariance = normal.matrix.inverse();
  for (std::ptrdiff_t p = 0; p < covariance.rows(); ++p) {
    solution.deviations[std::size_t(p)] = std::sqrt(covariance(p, p));
    solution.alone[std::size_t(p)] = 1 / std::sqrt(normal.matrix(p, p));
  }
  const double before = loss(problem, solution.values, residual, deviations);
  solution.loss = before;
  damping = damping <= kLeastDamping ? 0 : damping / kLessDamping;
  for (int shorter = 0; shorter <= kMostShorter; ++shorter) {
    NormalEquations damped = normal;
    damped.matrix.diagonal() *= 1 + damping;
    const Eigen::VectorXd step = step_within_bounds(problem, solution.values, damped);
    const Values trial = moved_by(problem, solution.values, step);
    const double longest = longest_move(solution.values, trial, solution.deviations);
    if (longest == 0) return 0;
    const Values there = problem.model.predicted(trial);
    const bool better = all_finite(there) &&
                        loss(problem, trial, residual_of(problem, there), deviations) <= before;
    if (better) {
      solution.values = trial;
      here = there;
      return longest;
    }
    if (longest < 1) return 0;
    damping = std::max(kLeastDamping, kMoreDamping * damping);
  }
  return 0;
}

Eigen::MatrixXd derivatives_at(const LogModel& model, const Values& values, const Values& here) {
  if (model.derivatives) return model.derivatives(values, here);
  const auto numbers = std::ptrdiff_t(values.size());
  Eigen::MatrixXd result = Eigen::MatrixXd::Zero(std::ptrdiff_t(here.size()), numbers);
  for (std::size_t p = 0; p < values.size(); ++p) {
    Values moved = values;
    const bool up = values[p] * std::exp(kDerivativeStep) <= model.numbers[p].most;
    const double step = up ? kDerivativeStep : -kDerivativeStep;
    moved[p] *= std::exp(step);
    const Values there = model.predicted(moved);
    if (!all_finite(there)) continue;  // the edge of what can be predicted: no step along this one
    for (std::size_t i = 0; i < here.size(); ++i)
      result(std::ptrdiff_t(i), std::ptrdiff_t(p)) = (there[i] - here[i]) / step;
  }
  return result;
}

}  // namespace

Values LogModel::priors() const {
  Values values;
  for (const FitNumber& number : numbers) values.push_back(number.prior);
  return values;
}

RobustSolution solve(const LogModel& model, const std::vector<bool>& use,
                     const std::vector<bool>& fixed, Values start, const SearchLimits& limits) {
  const SearchProblem problem{model, use, fixed, precision_of(model)};
  RobustSolution solution;
  solution.values = std::move(start);
  solution.deviations.assign(model.numbers.size(), 0);
  solution.alone.assign(model.numbers.size(), 0);
  solution.fixed = fixed;
  Values here = model.predicted(solution.values);
  if (!all_finite(here)) {
    solution.values = model.priors();
    here = model.predicted(solution.values);
  }
  const bool steady_is_enough = limits.known != nullptr;
  double damping = 0;
  if (limits.known != nullptr) solution.derivatives = *limits.known;
  for (int round = 0; round < limits.most_derivations && !solution.converged; ++round) {
    if (round > 0 || limits.known == nullptr)
      solution.derivatives = derivatives_at(model, solution.values, here);
    double before = std::numeric_limits<double>::infinity();
    for (int step = 0; step < limits.most_steps; ++step) {
      const double longest = take_step(problem, solution, here, damping);
      const bool steady = longest < 1;
      if (steady) solution.converged = steady_is_enough || step == 0;
      if (steady || (!steady_is_enough && longest > kShrinks * before)) break;
      before = longest;
    }
  }
  return solution;
}

RobustSolution solve_determined(const LogModel& model, const std::vector<bool>& use, Values start,
                                const SearchLimits& limits) {
  std::vector<bool> fixed;
  for (const FitNumber& number : model.numbers) {
    bool shown = number.shown_by.empty();
    for (std::size_t i = 0; i < number.shown_by.size(); ++i)
      shown = shown || (use[i] && number.shown_by[i]);
    if (!shown) start[fixed.size()] = number.prior;
    fixed.push_back(!shown);
  }
  RobustSolution solution = solve(model, use, fixed, std::move(start), limits);
  for (std::size_t p = 0; p < fixed.size(); ++p) {
    const FitNumber& number = model.numbers[p];
    fixed[p] = fixed[p] || (number.named && solution.deviations[p] > kNarrowed * number.spread);
    if (fixed[p]) solution.values[p] = number.prior;
  }
  return solve(model, use, fixed, solution.values, limits);
}

std::vector<FittedValue> fitted_values(const LogModel& model, const RobustSolution& solution,
                                       std::size_t count) {
  std::vector<FittedValue> values;
  for (std::size_t p = 0; p < count; ++p) {
    FittedValue& value = values.emplace_back();
    value.name = model.numbers[p].name;
    value.prior = model.numbers[p].prior;
    value.determined = !solution.fixed[p];
    value.value = solution.values[p];
    const double factor = std::exp(kNormal90 * solution.deviations[p]);
    value.low = std::max(value.value / factor, model.numbers[p].least);
    value.high = std::min(value.value * factor, model.numbers[p].most);
  }
  return values;
}

}  // namespace plimsoll
