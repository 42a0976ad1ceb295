// A Gaussian posterior of the numbers of predictions, with an unknown noise.
#include "fitting/learn.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log_statistics.h"
#include "fitting/cross_validate.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

constexpr double kNarrowed = 0.9;        // of a spread: wider is not determined
constexpr double kLeastVariance = 1e-4;  // of a logarithm: nobody predicts better

std::vector<Eigen::Index> rows_in_use(const std::vector<bool>& use) {
  std::vector<Eigen::Index> rows;
  for (std::size_t i = 0; i < use.size(); ++i) {
    if (use[i]) rows.push_back(Eigen::Index(i));
  }
  return rows;
}

Eigen::VectorXd vector_of(const LogModel::Values& values) {
  return Eigen::Map<const Eigen::VectorXd>(values.data(), Eigen::Index(values.size()));
}

/// Logarithms of values over their priors.
Eigen::VectorXd moved_of(const LogModel& model, const LogModel::Values& values) {
  Eigen::VectorXd moved(Eigen::Index(values.size()));
  for (std::size_t p = 0; p < values.size(); ++p)
    moved[Eigen::Index(p)] = std::log(values[p] / model.numbers[p].prior);
  return moved;
}

/// The factors of the basis, as far as the runs move them, and those of the runs' own shapes.
std::vector<LayerPoint> joined_layers(const FitModel& model, const LogModel::Values& values,
                                      std::vector<LayerPoint> own,
                                      const std::vector<LayerPoint>& basis) {
  for (LayerPoint& point : own) point.factor *= layer_factor(basis, point.shape).factor;
  const auto& shapes = model.shapes();
  for (LayerPoint point : basis) {
    if (std::ranges::find(shapes, point.shape) != shapes.end()) continue;
    const LayerNeighbours near = layer_neighbours(shapes, point.shape);
    double moved = 0;
    for (std::size_t l = 0; l < shapes.size(); ++l)
      moved += near.weights[Eigen::Index(l)] * std::log(values[model.parameters().size() + l]);
    point.factor *= std::exp(moved);
    own.push_back(point);
  }
  std::ranges::sort(own, {}, &LayerPoint::shape);
  return own;
}

LearnedSpread spread_of(const LearnedNumbers& numbers,
                        const std::vector<FitParameter>& parameters) {
  LearnedSpread spread;
  spread.noise = numbers.noise;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    spread.names.push_back(parameters[i].name);
    for (std::size_t j = 0; j < parameters.size(); ++j)
      spread.covariance.push_back(numbers.covariance(Eigen::Index(i), Eigen::Index(j)));
  }
  return spread;
}

/// Sets the errors: those of runs that the others predict, or the noise of a single run.
void set_errors(const std::vector<LearnedRun>& runs, double noise, FittedCalibration& fitted) {
  std::vector<double> errors;
  double variance = 0;
  for (const LearnedRun& run : runs) {
    if (run.contradicts || !run.left_out) continue;
    errors.push_back(std::abs(std::exp(-run.left_out->error) - 1));
    variance += run.left_out->deviation * run.left_out->deviation;
  }
  const auto count = double(errors.size());
  const double deviation = errors.empty() ? noise : std::sqrt(variance / count);
  if (errors.empty()) errors.push_back(noise);
  std::ranges::sort(errors);
  for (const double error : errors) fitted.cross_validated_mean += error / double(errors.size());
  fitted.cross_validated_p90 = errors[std::size_t(0.9 * double(errors.size() - 1) + 0.5)];
  fitted.within_node = fitted.across_nodes = {deviation, kNormal90};
}

/// Returns the relative half width of 90 % intervals of the runs' steps, mean over them.
double mean_half_width(const LearnModel& model, const std::vector<bool>& use) {
  double sum = 0;
  for (const LearnModel::Difference& one : model.differences(use))
    sum += std::expm1(kNormal90 * one.deviation);
  return sum / double(use.size());
}

/// Finds the runs that the others contradict, and predicts each by those that remain.
std::vector<bool> trusted_runs(const LearnModel& model, std::vector<LearnedRun>& runs) {
  std::vector<bool> use(runs.size(), true);
  const auto left_out = [&](std::size_t i) {
    std::vector<bool> others = use;
    others[i] = false;
    return model.differences(others)[i];
  };
  const auto size = [](const LearnModel::Difference& one) {
    return std::abs(one.error) / one.deviation;
  };
  while (std::ranges::count(use, true) > 2) {
    std::optional<std::size_t> worst;
    double most = kContradicts;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!use[i] || size(left_out(i)) <= most) continue;
      most = size(left_out(i));
      worst = i;
    }
    if (!worst) break;
    use[*worst] = false;
    runs[*worst].contradicts = true;
  }
  const auto before = model.differences(std::vector<bool>(runs.size(), false));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() > 1) runs[i].left_out = left_out(i);
    runs[i].unlikely = size(before[i]) > kContradicts ||
                       (runs[i].left_out && size(*runs[i].left_out) > kContradicts);
  }
  return use;
}

}  // namespace

LearnModel::LearnModel(std::vector<FitRun> runs)
    : model_(std::move(runs), LayerShapes::all), log_model_(model_.log_model()) {
  log_model_.groups.clear();
  before_ = log_model_.predicted(log_model_.priors());
  errors_ = vector_of(log_model_.measured) - vector_of(before_);
  derivatives_ = log_model_.derivatives(log_model_.priors(), before_);
  set_spreads(source_spreads());
}

void LearnModel::set_spreads(SourceSpreads spreads) {
  spreads_ = std::move(spreads);
  const auto count = Eigen::Index(model_.parameters().size());
  log_model_.precision = with_spreads(model_.parameters(), *log_model_.precision, spreads_);
  const double scale = before_.empty() ? 1 : scale_of_prior();
  log_model_.precision->topLeftCorner(count, count) /= scale * scale;
  for (std::size_t p = 0; p < model_.parameters().size(); ++p)
    log_model_.numbers[p].spread = scale * spreads_.of(model_.parameters()[p]);
}

/// Returns the factor on spreads with which runs have the intervals that they had, in the mean of
/// logarithms.
double LearnModel::scale_of_prior() const {
  const auto count = Eigen::Index(model_.parameters().size());
  const Eigen::MatrixXd covariance = log_model_.precision->topLeftCorner(count, count)
                                         .ldlt()
                                         .solve(Eigen::MatrixXd::Identity(count, count));
  double sum = 0;
  for (Eigen::Index i = 0; i < derivatives_.rows(); ++i) {
    const Eigen::VectorXd by = derivatives_.row(i).head(count);
    const double half = model_.runs()[std::size_t(i)].half_width / kNormal90;
    const double wanted = std::max(half * half - spreads_.noise * spreads_.noise, kLeastVariance);
    sum += std::log(wanted / std::max(by.dot(covariance * by), kLeastVariance)) / 2;
  }
  return std::exp(sum / double(derivatives_.rows()));
}

SourceErrors LearnModel::errors() const {
  return {model_.parameters(), *log_model_.precision, derivatives_, errors_};
}

std::vector<LearnModel::Difference> LearnModel::differences(const std::vector<bool>& use) const {
  const std::vector<Eigen::Index> rows = rows_in_use(use);
  const Posterior found =
      posterior(*log_model_.precision, derivatives_(rows, Eigen::all), errors_(rows), spreads_);
  std::vector<Difference> all;
  for (Eigen::Index i = 0; i < errors_.size(); ++i) {
    const Eigen::VectorXd by = derivatives_.row(i);
    all.push_back({errors_[i] - by.dot(found.moved),
                   std::sqrt(by.dot(found.covariance * by) + found.noise * found.noise)});
  }
  return all;
}

LearnedNumbers LearnModel::learn(const std::vector<bool>& use, const SearchLimits& limits) const {
  const std::vector<Eigen::Index> rows = rows_in_use(use);
  const LogModel simulated = model_.log_model(use);
  LogModel robust = log_model_;
  robust.predicted = simulated.predicted;
  robust.derivatives = simulated.derivatives;
  robust.least_scale = robust.most_scale =
      posterior(*robust.precision, derivatives_(rows, Eigen::all), errors_(rows), spreads_).noise;
  const std::vector<bool> fixed(robust.numbers.size(), false);
  SearchLimits from_known = limits;
  from_known.known = &derivatives_;
  const RobustSolution solution = solve(robust, use, fixed, robust.priors(), from_known);
  const LogModel::Values after = robust.predicted(solution.values);
  const Eigen::VectorXd there = vector_of(robust.measured) - vector_of(after) +
                                solution.derivatives * moved_of(robust, solution.values);
  const Posterior found =
      posterior(*robust.precision, solution.derivatives(rows, Eigen::all), there(rows), spreads_);
  return {solution.values, found.covariance, solution.alone, found.noise};
}

Learned learn(std::vector<FitRun> own, const std::optional<FittedCalibration>& basis) {
  const LearnModel model(std::move(own));
  Learned learned;
  for (std::size_t i = 0; i < model.before().size(); ++i) {
    learned.runs.push_back({Seconds(std::exp(model.log_model().measured[i])),
                            Seconds(std::exp(model.before()[i])), Seconds(), std::nullopt});
  }
  const std::vector<bool> use = trusted_runs(model, learned.runs);
  const LearnedNumbers numbers = model.learn(use, {.most_derivations = 3});
  const LogModel::Values after = model.log_model().predicted(numbers.values);
  for (std::size_t i = 0; i < after.size(); ++i)
    learned.runs[i].after = Seconds(std::exp(after[i]));

  learned.half_width = mean_half_width(model, use);
  learned.half_width_before = mean_half_width(model, std::vector<bool>(use.size(), false));

  RobustSolution solution;
  solution.values = numbers.values;
  solution.alone = numbers.alone;
  for (std::size_t p = 0; p < numbers.values.size(); ++p) {
    const auto at = Eigen::Index(p);
    solution.deviations.push_back(std::sqrt(numbers.covariance(at, at)));
    solution.fixed.push_back(solution.deviations[p] >
                             kNarrowed * model.log_model().numbers[p].spread);
  }
  FittedCalibration& fitted = learned.fitted;
  const PublishedTarget& target = model.model().runs()[0].target;
  fitted.cluster = target.cluster.name;
  fitted.framework = calibrated_as(target.framework);
  set_numbers(model.model(), model.log_model(), solution, use, fitted);
  fitted.layers = joined_layers(model.model(), numbers.values, std::move(fitted.layers),
                                basis ? basis->layers : std::vector<LayerPoint>());
  fitted.learned = spread_of(numbers, model.model().parameters());
  set_errors(learned.runs, numbers.noise, fitted);
  return learned;
}

}  // namespace plimsoll
