#include "planner/fit.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>

#include "base/parallel.h"
#include "planner/evaluate.h"
#include "planner/published_target.h"
#include "planner/validate.h"

namespace plimsoll {
namespace {

constexpr double kDerivativeStep = 0.02;  // of a logarithm
constexpr double kHuber = 1.5;            // standard deviations
// Standard deviation of one run's logarithm: nobody measures better than the first, and what lies
// beyond the second is the model's fault, to be mended by the fit.
constexpr double kLeastScale = 0.01, kMostScale = 0.05;
constexpr double kLongestStep = 0.5;    // of a logarithm, in one iteration
constexpr double kSmallestStep = 2e-3;  // ends the iteration
constexpr int kFoldIterations = 2;      // from the fit of all runs, which is near
constexpr double kNormal90 = 1.645;
constexpr double kNarrowed = 0.9;  // of the prior's spread: wider is not determined

/// A run laid out once: parameters change durations only.
struct FitRun {
  PublishedTarget target;
  Footprint footprint;
  double measured = 0;  ///< logarithm of seconds
  std::string layout;
};

using Values = std::vector<double>;

/// The runs as a function of the parameters.
class Model {
 public:
  Model(std::vector<FitRun> runs, std::vector<FitParameter> parameters)
      : runs_(std::move(runs)), parameters_(std::move(parameters)) {
    for (const FitParameter& parameter : parameters_) {
      priors_.push_back(
          parameter.get(runs_[0].target.cluster, runs_[0].target.framework, parameter.level));
    }
  }

  const std::vector<FitRun>& runs() const { return runs_; }
  const std::vector<FitParameter>& parameters() const { return parameters_; }
  const Values& priors() const { return priors_; }

  /// Logarithms of predicted step times.
  Eigen::VectorXd at(const Values& values) const {
    Eigen::VectorXd all(std::ptrdiff_t(runs_.size()));
    for_each_index(runs_.size(), resolve_threads(0),
                   [&](std::size_t i) { all[std::ptrdiff_t(i)] = predicted(runs_[i], values); });
    return all;
  }

  /// Their derivatives by the logarithms of the parameters.
  Eigen::MatrixXd derivatives(const Values& values, const Eigen::VectorXd& here) const {
    Eigen::MatrixXd result(here.size(), std::ptrdiff_t(values.size()));
    for (std::size_t p = 0; p < values.size(); ++p) {
      Values moved = values;
      const double up = values[p] * std::exp(kDerivativeStep);
      moved[p] = up <= parameters_[p].most ? up : values[p] * std::exp(-kDerivativeStep);
      result.col(std::ptrdiff_t(p)) = (at(moved) - here) / std::log(moved[p] / values[p]);
    }
    return result;
  }

 private:
  double predicted(const FitRun& run, const Values& values) const {
    Cluster cluster = run.target.cluster;
    Framework framework = run.target.framework;
    for (std::size_t p = 0; p < values.size(); ++p) {
      parameters_[p].set(cluster, framework, parameters_[p].level, values[p]);
    }
    const CostModel costs(std::move(cluster), std::nullopt, std::move(framework));
    const Evaluation evaluation = predict(run.target.job, run.target.strategies[0], run.footprint,
                                          costs, run.target.devices, Folding::folded, Detail::none);
    return std::log(evaluation.score.prediction.step_time.value());
  }

  std::vector<FitRun> runs_;
  std::vector<FitParameter> parameters_;
  Values priors_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Solution {
  Values values;
  Eigen::MatrixXd covariance;  ///< of their logarithms
};

/// Normal equations at `solution` over the runs in use: what the next step and the covariance
/// follow from.
struct Normal {
  Eigen::MatrixXd matrix;
  Eigen::VectorXd right;
};

Normal normal_equations(const Model& model, const std::vector<bool>& use,
                        const std::vector<bool>& fixed, const Values& values) {
  const Eigen::VectorXd here = model.at(values);
  const Eigen::MatrixXd derivatives = model.derivatives(values, here);
  Eigen::VectorXd residual(here.size());
  std::vector<double> sizes;
  for (std::ptrdiff_t i = 0; i < here.size(); ++i) {
    residual[i] = model.runs()[std::size_t(i)].measured - here[i];
    if (use[std::size_t(i)]) sizes.push_back(std::abs(residual[i]));
  }
  // The median of |x| of a normal distribution is 0.6745 standard deviations.
  const double scale = std::clamp(median(sizes) / 0.6745, kLeastScale, kMostScale);
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
    const double spread = model.parameters()[std::size_t(p)].spread;
    normal.matrix(p, p) += 1 / (spread * spread);
    normal.right[p] +=
        std::log(model.priors()[std::size_t(p)] / values[std::size_t(p)]) / (spread * spread);
    if (!fixed[std::size_t(p)]) continue;
    normal.matrix.row(p).setZero();
    normal.matrix.col(p).setZero();
    normal.matrix(p, p) = 1 / (spread * spread);
    normal.right[p] = 0;
  }
  return normal;
}

Solution solve(const Model& model, const std::vector<bool>& use, const std::vector<bool>& fixed,
               Values values, int iterations) {
  Solution solution{std::move(values), {}};
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const Normal normal = normal_equations(model, use, fixed, solution.values);
    const Eigen::VectorXd step = normal.matrix.ldlt().solve(normal.right);
    solution.covariance = normal.matrix.inverse();
    double longest = 0;
    for (std::size_t p = 0; p < solution.values.size(); ++p) {
      const FitParameter& parameter = model.parameters()[p];
      const double moved = std::clamp(step[std::ptrdiff_t(p)], -kLongestStep, kLongestStep);
      const double before = solution.values[p];
      solution.values[p] = std::clamp(before * std::exp(moved), parameter.least, parameter.most);
      longest = std::max(longest, std::abs(std::log(solution.values[p] / before)));
    }
    if (longest < kSmallestStep) break;
  }
  return solution;
}

/// |predicted / measured - 1| of the runs in use.
std::vector<double> errors(const Model& model, const Values& values, const std::vector<bool>& use) {
  const Eigen::VectorXd here = model.at(values);
  std::vector<double> result;
  for (std::size_t i = 0; i < use.size(); ++i) {
    if (use[i])
      result.push_back(std::abs(std::exp(here[std::ptrdiff_t(i)] - model.runs()[i].measured) - 1));
  }
  return result;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / double(values.size());
}

double percentile90(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, std::size_t(0.9 * double(values.size())))];
}

std::string layout_of(const PublishedRun& run) {
  return fmt::format("{} s{} tp {} pp {} dp {}", run.model, run.sequence.value_or(0), run.tp,
                     run.pp, run.dp);
}

/// Runs with a step time on that cluster and framework, not more than asked for, laid out.
std::vector<FitRun> runs_of(std::span<const PublishedRun> published, const FitOptions& options,
                            std::vector<std::string>& sources) {
  std::vector<FitRun> all;
  for (const PublishedRun& run : published) {
    if (!run.step_time || run.out_of_memory || run.use.starts_with("memory_only")) continue;
    FitRun next;
    next.target = published_target(run, false);
    if (!next.target.missing.empty() || next.target.cluster.name != options.cluster ||
        next.target.framework.name != options.framework)
      continue;
    next.measured = std::log(run.step_time->value());
    next.layout = layout_of(run);
    if (std::find(sources.begin(), sources.end(), run.source) == sources.end())
      sources.push_back(run.source);
    all.push_back(std::move(next));
  }
  std::vector<FitRun> chosen;
  const double stride = std::max(1.0, double(all.size()) / double(options.most_runs));
  for (double i = 0; std::size_t(i) < all.size(); i += stride)
    chosen.push_back(std::move(all[std::size_t(i)]));
  std::vector<char> usable(chosen.size(), 1);
  for_each_index(chosen.size(), resolve_threads(0), [&](std::size_t i) {
    PublishedTarget& target = chosen[i].target;
    try {
      target.strategies = std::vector{predict_published(target).strategy};
      chosen[i].footprint = lay_out(target.job, target.strategies[0], target.framework,
                                    target.cluster, Bytes(0), Proof::none);
    } catch (const InfeasibleError&) {
      usable[i] = 0;  // `validate` says why
    } catch (const InputError&) {
      usable[i] = 0;
    }
  });
  std::vector<FitRun> laid_out;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (usable[i] != 0) laid_out.push_back(std::move(chosen[i]));
  }
  return laid_out;
}

double deviation(const Solution& solution, std::size_t p) {
  return std::sqrt(solution.covariance(std::ptrdiff_t(p), std::ptrdiff_t(p)));
}

/// All parameters first; then those that the runs did not narrow stay at their priors, and the
/// others are solved for again.
Solution solve_determined(const Model& model, const std::vector<bool>& use, int iterations,
                          std::vector<bool>& fixed) {
  fixed.assign(model.parameters().size(), false);
  Solution solution = solve(model, use, fixed, model.priors(), iterations);
  for (std::size_t p = 0; p < fixed.size(); ++p) {
    fixed[p] = deviation(solution, p) > kNarrowed * model.parameters()[p].spread;
    if (fixed[p]) solution.values[p] = model.priors()[p];
  }
  return solve(model, use, fixed, solution.values, iterations);
}

std::vector<FittedValue> fitted_values(const Model& model, const Solution& solution,
                                       const std::vector<bool>& fixed) {
  std::vector<FittedValue> values;
  for (std::size_t p = 0; p < solution.values.size(); ++p) {
    FittedValue& value = values.emplace_back();
    value.name = model.parameters()[p].name;
    value.prior = model.priors()[p];
    value.determined = !fixed[p];
    value.value = solution.values[p];
    const double factor = std::exp(kNormal90 * deviation(solution, p));
    value.low = value.value / factor;
    value.high = value.value * factor;
  }
  return values;
}

std::vector<FitFold> cross_validate(const Model& model, const Values& start,
                                    const std::vector<bool>& fixed, const FitOptions& options,
                                    std::vector<double>& all_errors) {
  std::map<std::string, std::size_t> fold_of;
  for (const FitRun& run : model.runs()) fold_of[run.layout] = 0;
  std::size_t next = 0;
  for (auto& [layout, fold] : fold_of) fold = next++ % options.folds;
  std::vector<FitFold> folds(std::min(options.folds, fold_of.size()));
  for (const auto& [layout, fold] : fold_of) folds[fold].layouts.push_back(layout);
  for (std::size_t fold = 0; fold < folds.size(); ++fold) {
    std::vector<bool> use, left_out;
    for (const FitRun& run : model.runs()) {
      left_out.push_back(fold_of[run.layout] == fold);
      use.push_back(!left_out.back());
    }
    const Solution without = solve(model, use, fixed, start, kFoldIterations);
    const std::vector<double> unseen = errors(model, without.values, left_out);
    folds[fold].runs = unseen.size();
    folds[fold].mean_abs_error = mean(unseen);
    all_errors.insert(all_errors.end(), unseen.begin(), unseen.end());
  }
  return folds;
}

}  // namespace

Fit fit(std::span<const PublishedRun> published, const FitOptions& options) {
  Fit result;
  FittedCalibration& fitted = result.fitted;
  std::vector<FitRun> runs = runs_of(published, options, fitted.sources);
  if (runs.empty()) {
    throw InfeasibleError(fmt::format("none of the {} runs is on cluster {} with framework {}",
                                      published.size(), options.cluster, options.framework));
  }
  if (std::all_of(runs.begin(), runs.end(),
                  [&](const FitRun& run) { return run.layout == runs[0].layout; })) {
    throw InfeasibleError(fmt::format(
        "all {} runs are {}: a fit to one layout says nothing about others, and nothing is left to "
        "test it on",
        runs.size(), runs[0].layout));
  }
  const std::vector<FitParameter> parameters = fit_parameters(runs[0].target.cluster);
  const Model model(std::move(runs), parameters);
  const std::vector<bool> all(model.runs().size(), true);
  fitted.cluster = options.cluster;
  fitted.framework = options.framework;
  fitted.runs = std::int64_t(all.size());
  result.mean_abs_error_before = mean(errors(model, model.priors(), all));
  std::vector<bool> fixed;
  const Solution solution = solve_determined(model, all, options.most_iterations, fixed);
  fitted.values = fitted_values(model, solution, fixed);
  std::vector<double> known = errors(model, solution.values, all), unseen;
  result.mean_abs_error = mean(known);
  result.folds = cross_validate(model, solution.values, fixed, options, unseen);
  fitted.cross_validated_mean = mean(unseen);
  fitted.cross_validated_p90 = percentile90(unseen);
  return result;
}

std::string fit_text(const Fit& fit) {
  const FittedCalibration& fitted = fit.fitted;
  std::string text = fmt::format(
      "{} with {}: {} runs\n  mean |error| {:.1f} % before, {:.1f} % fitted, {:.1f} % on runs left "
      "out (90th percentile {:.1f} %)\n",
      fitted.cluster, fitted.framework, fitted.runs, 100 * fit.mean_abs_error_before,
      100 * fit.mean_abs_error, 100 * fitted.cross_validated_mean,
      100 * fitted.cross_validated_p90);
  for (const FittedValue& value : fitted.values) {
    text += fmt::format("  {:34} {:10.4g}  90 % {:.4g} to {:.4g}  prior {:.4g}{}\n", value.name,
                        value.value, value.low, value.high, value.prior,
                        value.determined ? "" : "  not determined, stays");
  }
  for (const FitFold& fold : fit.folds) {
    text += fmt::format("  left out {:3} runs of {:2} layouts: {:5.1f} %\n", fold.runs,
                        fold.layouts.size(), 100 * fold.mean_abs_error);
  }
  return text;
}

}  // namespace plimsoll
