#include "planner/fit_solve.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

constexpr double kHuber = 1.5;  // standard deviations
// Standard deviation of one run's logarithm: nobody measures better than the first, and what lies
// beyond the second is the model's fault, to be mended by the fit.
constexpr double kLeastScale = 0.01, kMostScale = 0.05;
constexpr double kLongestStep = 0.5;    // of a logarithm, in one iteration
constexpr double kSmallestStep = 2e-3;  // ends the iteration
constexpr int kMostFoldSteps = 12;      // with derivatives that stay: cheap
constexpr double kNarrowed = 0.9;       // of the prior's spread: wider is not determined

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Which runs count, and which unknowns stay.
struct Terms {
  std::vector<bool> use, fixed;
};

/// Of the residuals in use: the median of |x| of a normal distribution is 0.6745 standard
/// deviations.
double scale_of(const Eigen::VectorXd& residual, const std::vector<bool>& use) {
  std::vector<double> sizes;
  for (std::ptrdiff_t i = 0; i < residual.size(); ++i) {
    if (use[std::size_t(i)]) sizes.push_back(std::abs(residual[i]));
  }
  return std::clamp(median(sizes) / 0.6745, kLeastScale, kMostScale);
}

Eigen::VectorXd residual_of(const FitModel& model, const Eigen::VectorXd& here) {
  Eigen::VectorXd residual(here.size());
  for (std::ptrdiff_t i = 0; i < here.size(); ++i)
    residual[i] = model.runs()[std::size_t(i)].measured - here[i];
  return residual;
}

/// Logarithms of the unknowns relative to their priors.
Eigen::VectorXd from_prior(const FitModel& model, const FitPoint& point) {
  Eigen::VectorXd moved(model.unknowns());
  const std::size_t parameters = model.parameters().size();
  for (std::size_t p = 0; p < parameters; ++p)
    moved[std::ptrdiff_t(p)] = std::log(point.values[p] / model.priors().values[p]);
  for (std::size_t l = 0; l < point.layers.size(); ++l)
    moved[std::ptrdiff_t(parameters + l)] = point.layers[l];
  return moved;
}

/// Normal equations at a point: what the next step and the covariance follow from.
struct Normal {
  Eigen::MatrixXd matrix;
  Eigen::VectorXd right;
};

Normal normal_equations(const FitModel& model, const Terms& terms, const FitPoint& point,
                        const Eigen::VectorXd& residual, const Eigen::MatrixXd& derivatives,
                        double scale) {
  Normal normal;
  normal.matrix = model.prior_precision();
  normal.right = -model.prior_precision() * from_prior(model, point);
  for (std::ptrdiff_t i = 0; i < residual.size(); ++i) {
    if (!terms.use[std::size_t(i)]) continue;
    const double size = std::abs(residual[i]) / scale;
    const double weight = (size <= kHuber ? 1 : kHuber / size) / (scale * scale);
    normal.matrix += weight * derivatives.row(i).transpose() * derivatives.row(i);
    normal.right += weight * residual[i] * derivatives.row(i).transpose();
  }
  for (std::ptrdiff_t p = 0; p < std::ptrdiff_t(terms.fixed.size()); ++p) {
    if (!terms.fixed[std::size_t(p)]) continue;
    normal.matrix.row(p).setZero();
    normal.matrix.col(p).setZero();
    normal.matrix(p, p) = model.prior_precision()(p, p);
    normal.right[p] = 0;
  }
  return normal;
}

/// The longest step that was made.
double move(const FitModel& model, const Eigen::VectorXd& step, FitPoint& point) {
  double longest = 0;
  const std::size_t parameters = model.parameters().size();
  for (std::size_t p = 0; p < parameters; ++p) {
    const FitParameter& parameter = model.parameters()[p];
    const double by = std::clamp(step[std::ptrdiff_t(p)], -kLongestStep, kLongestStep);
    const double before = point.values[p];
    point.values[p] = std::clamp(before * std::exp(by), parameter.least, parameter.most);
    longest = std::max(longest, std::abs(std::log(point.values[p] / before)));
  }
  for (std::size_t l = 0; l < point.layers.size(); ++l) {
    const double by = step[std::ptrdiff_t(parameters + l)];
    point.layers[l] += std::clamp(by, -kLongestStep, kLongestStep);
    longest = std::max(longest, std::abs(by));
  }
  return longest;
}

/// With derivatives of the point that each step starts from; or, cheaper, with those of a solution
/// nearby all the time (`known`).
Solution solve(const FitModel& model, const Terms& terms, FitPoint start, int steps,
               const Eigen::MatrixXd* known = nullptr) {
  Solution solution;
  solution.point = std::move(start);
  solution.fixed = terms.fixed;
  for (int step = 0; step < steps; ++step) {
    const Eigen::VectorXd here = model.at(solution.point);
    solution.derivatives = known != nullptr ? *known : model.derivatives(solution.point, here);
    const Eigen::VectorXd residual = residual_of(model, here);
    solution.scale = scale_of(residual, terms.use);
    const Normal normal = normal_equations(model, terms, solution.point, residual,
                                           solution.derivatives, solution.scale);
    solution.covariance = normal.matrix.inverse();
    if (move(model, solution.covariance * normal.right, solution.point) < kSmallestStep) break;
  }
  return solution;
}

Solution solve_determined_from(const FitModel& model, const std::vector<bool>& use,
                               const FitPoint& start, int steps, const Eigen::MatrixXd* known) {
  Terms terms{use, std::vector<bool>(model.parameters().size(), false)};
  Solution solution = solve(model, terms, start, steps, known);
  for (std::size_t p = 0; p < terms.fixed.size(); ++p) {
    terms.fixed[p] = deviation(solution, p) > kNarrowed * model.parameters()[p].spread;
    if (terms.fixed[p]) solution.point.values[p] = model.priors().values[p];
  }
  return solve(model, terms, solution.point, steps, known);
}

}  // namespace

double deviation(const Solution& solution, std::size_t unknown) {
  return std::sqrt(solution.covariance(std::ptrdiff_t(unknown), std::ptrdiff_t(unknown)));
}

Solution solve_determined(const FitModel& model, const std::vector<bool>& use, int most_steps) {
  return solve_determined_from(model, use, model.priors(), most_steps, nullptr);
}

Solution solve_again(const FitModel& model, const std::vector<bool>& use, const Solution& nearby) {
  return solve_determined_from(model, use, nearby.point, kMostFoldSteps, &nearby.derivatives);
}

}  // namespace plimsoll
