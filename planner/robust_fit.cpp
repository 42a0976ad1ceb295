#include "planner/robust_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

using Values = std::vector<double>;

constexpr double kDerivativeStep = 0.02;  // of a logarithm
constexpr double kHuber = 1.5;            // standard deviations
constexpr double kLongestStep = 0.5;      // of a logarithm, in one iteration
constexpr double kSmallestStep = 2e-3;    // ends the iteration
constexpr double kNormal90 = 1.645;
constexpr double kNarrowed = 0.9;  // of the prior's spread: wider is not determined

Eigen::VectorXd at(const LogModel& model, const Values& values) {
  const Values all = model.predicted(values);
  return Eigen::Map<const Eigen::VectorXd>(all.data(), std::ptrdiff_t(all.size()));
}

/// By the logarithms of the numbers.
Eigen::MatrixXd derivatives_at(const LogModel& model, const Values& values,
                               const Eigen::VectorXd& here) {
  Eigen::MatrixXd result(here.size(), std::ptrdiff_t(values.size()));
  for (std::size_t p = 0; p < values.size(); ++p) {
    Values moved = values;
    const double up = values[p] * std::exp(kDerivativeStep);
    moved[p] = up <= model.numbers[p].most ? up : values[p] * std::exp(-kDerivativeStep);
    result.col(std::ptrdiff_t(p)) = (at(model, moved) - here) / std::log(moved[p] / values[p]);
  }
  return result;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Normal equations over the measurements in use: what the next step and the covariance follow
/// from.
struct Normal {
  Eigen::MatrixXd matrix;
  Eigen::VectorXd right;
};

Normal normal_equations(const LogModel& model, const std::vector<bool>& use,
                        const std::vector<bool>& fixed, const Values& values) {
  const Eigen::VectorXd here = at(model, values);
  const Eigen::MatrixXd derivatives = derivatives_at(model, values, here);
  Eigen::VectorXd residual(here.size());
  std::vector<double> sizes;
  for (std::ptrdiff_t i = 0; i < here.size(); ++i) {
    residual[i] = model.measured[std::size_t(i)] - here[i];
    if (use[std::size_t(i)]) sizes.push_back(std::abs(residual[i]));
  }
  // The median of |x| of a normal distribution is 0.6745 standard deviations.
  const double scale = std::clamp(median(sizes) / 0.6745, model.least_scale, model.most_scale);
  const auto n = std::ptrdiff_t(values.size());
  Normal normal{Eigen::MatrixXd::Zero(n, n), Eigen::VectorXd::Zero(n)};
  for (std::ptrdiff_t i = 0; i < here.size(); ++i) {
    if (!use[std::size_t(i)]) continue;
    const double size = std::abs(residual[i]) / scale;
    const double weight = (size <= kHuber ? 1 : kHuber / size) / (scale * scale);
    normal.matrix += weight * derivatives.row(i).transpose() * derivatives.row(i);
    normal.right += weight * residual[i] * derivatives.row(i).transpose();
  }
  for (std::ptrdiff_t p = 0; p < n; ++p) {
    const FitNumber& number = model.numbers[std::size_t(p)];
    const double weight = 1 / (number.spread * number.spread);
    normal.matrix(p, p) += weight;
    normal.right[p] += std::log(number.prior / values[std::size_t(p)]) * weight;
    if (!fixed[std::size_t(p)]) continue;
    normal.matrix.row(p).setZero();
    normal.matrix.col(p).setZero();
    normal.matrix(p, p) = weight;
    normal.right[p] = 0;
  }
  return normal;
}

}  // namespace

std::vector<double> LogModel::priors() const {
  std::vector<double> values;
  for (const FitNumber& number : numbers) values.push_back(number.prior);
  return values;
}

RobustSolution solve(const LogModel& model, const std::vector<bool>& use,
                     const std::vector<bool>& fixed, std::vector<double> start, int iterations) {
  RobustSolution solution{std::move(start), std::vector<double>(model.numbers.size())};
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const Normal normal = normal_equations(model, use, fixed, solution.values);
    const Eigen::VectorXd step = normal.matrix.ldlt().solve(normal.right);
    const Eigen::MatrixXd covariance = normal.matrix.inverse();
    double longest = 0;
    for (std::size_t p = 0; p < solution.values.size(); ++p) {
      const FitNumber& number = model.numbers[p];
      const auto place = std::ptrdiff_t(p);
      const double moved = std::clamp(step[place], -kLongestStep, kLongestStep);
      const double before = solution.values[p];
      solution.values[p] = std::clamp(before * std::exp(moved), number.least, number.most);
      solution.deviations[p] = std::sqrt(covariance(place, place));
      longest = std::max(longest, std::abs(std::log(solution.values[p] / before)));
    }
    if (longest < kSmallestStep) break;
  }
  return solution;
}

RobustSolution solve_determined(const LogModel& model, const std::vector<bool>& use, int iterations,
                                std::vector<bool>& fixed) {
  fixed.assign(model.numbers.size(), false);
  RobustSolution solution = solve(model, use, fixed, model.priors(), iterations);
  for (std::size_t p = 0; p < fixed.size(); ++p) {
    fixed[p] = solution.deviations[p] > kNarrowed * model.numbers[p].spread;
    if (fixed[p]) solution.values[p] = model.numbers[p].prior;
  }
  return solve(model, use, fixed, solution.values, iterations);
}

std::vector<FittedValue> fitted_values(const LogModel& model, const RobustSolution& solution,
                                       const std::vector<bool>& fixed) {
  std::vector<FittedValue> values;
  for (std::size_t p = 0; p < solution.values.size(); ++p) {
    FittedValue& value = values.emplace_back();
    value.name = model.numbers[p].name;
    value.prior = model.numbers[p].prior;
    value.determined = !fixed[p];
    value.value = solution.values[p];
    const double factor = std::exp(kNormal90 * solution.deviations[p]);
    value.low = value.value / factor;
    value.high = value.value * factor;
  }
  return values;
}

}  // namespace plimsoll
