#include "planner/fit_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "planner/validate.h"
#include "simulator/layer_factors.h"

namespace plimsoll {
namespace {

constexpr double kDerivativeStep = 0.02;  // of a logarithm

std::string layout_of(const PublishedRun& run) {
  return fmt::format("{} {}x{} s{} tp {} pp {} dp {}", run.model, run.layers.value_or(0),
                     run.hidden.value_or(0), run.sequence.value_or(0), run.tp, run.pp, run.dp);
}

/// Chooses the strategy and lays it out; false where it cannot be (`validate` says why).
bool lay_out_run(FitRun& run) {
  PublishedTarget& target = run.target;
  try {
    target.strategies = std::vector{predict_published(target).strategy};
    run.footprint = lay_out(target.job, target.strategies[0], target.framework, target.cluster,
                            Bytes(0), Proof::none);
    return true;
  } catch (const InfeasibleError&) {
    return false;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

std::vector<FitRun> fit_runs(std::span<const PublishedRun> published, const std::string& cluster,
                             const std::string& framework, std::size_t most,
                             std::vector<std::string>& sources) {
  std::vector<FitRun> all;
  for (const PublishedRun& run : published) {
    if (!run.step_time || run.out_of_memory || run.use.starts_with("memory_only")) continue;
    FitRun next;
    next.target = published_target(run, false);
    if (!next.target.missing.empty() || next.target.cluster.name != cluster ||
        calibrated_as(next.target.framework) != framework)
      continue;
    next.measured = std::log(run.step_time->value());
    next.family = run.family;
    next.layout = layout_of(run);
    if (std::find(sources.begin(), sources.end(), run.source) == sources.end())
      sources.push_back(run.source);
    all.push_back(std::move(next));
  }
  std::vector<FitRun> chosen;
  const double stride = std::max(1.0, double(all.size()) / double(most));
  for (double i = 0; std::size_t(i) < all.size(); i += stride)
    chosen.push_back(std::move(all[std::size_t(i)]));
  std::vector<char> usable(chosen.size(), 0);
  for_each_index(chosen.size(), resolve_threads(0),
                 [&](std::size_t i) { usable[i] = lay_out_run(chosen[i]) ? 1 : 0; });
  std::vector<FitRun> laid_out;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (usable[i] != 0) laid_out.push_back(std::move(chosen[i]));
  }
  return laid_out;
}

FitModel::FitModel(std::vector<FitRun> runs, bool layers) : runs_(std::move(runs)) {
  const PublishedTarget& first = runs_.at(0).target;
  parameters_ = fit_parameters(first.cluster);
  for (const FitParameter& parameter : parameters_) {
    priors_.values.push_back(parameter.get(first.cluster, first.framework, parameter.level));
  }
  const auto shape_of = [](const FitRun& run) {
    return layer_shape(run.target.job, run.target.strategies[0]);
  };
  if (layers) {
    for (const FitRun& run : runs_) shapes_.push_back(shape_of(run));
    std::sort(shapes_.begin(), shapes_.end());
    shapes_.erase(std::unique(shapes_.begin(), shapes_.end()), shapes_.end());
    for (FitRun& run : runs_) {
      const auto at = std::lower_bound(shapes_.begin(), shapes_.end(), shape_of(run));
      run.layer = std::size_t(at - shapes_.begin());
    }
  }
  priors_.layers.assign(shapes_.size(), 0);
  precision_ = Eigen::MatrixXd::Zero(unknowns(), unknowns());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    precision_(std::ptrdiff_t(p), std::ptrdiff_t(p)) =
        1 / (parameters_[p].spread * parameters_[p].spread);
  }
  const auto n = std::ptrdiff_t(shapes_.size());
  if (n > 0) precision_.bottomRightCorner(n, n) = layer_covariance(shapes_).inverse();
}

Eigen::VectorXd FitModel::at(const FitPoint& point) const {
  Eigen::VectorXd all(std::ptrdiff_t(runs_.size()));
  for_each_index(runs_.size(), resolve_threads(0),
                 [&](std::size_t i) { all[std::ptrdiff_t(i)] = predicted(runs_[i], point); });
  return all;
}

Eigen::MatrixXd FitModel::derivatives(const FitPoint& point, const Eigen::VectorXd& here) const {
  Eigen::MatrixXd result = Eigen::MatrixXd::Zero(here.size(), unknowns());
  const auto parameters = std::ptrdiff_t(parameters_.size());
  for (std::ptrdiff_t p = 0; p < parameters; ++p) {
    FitPoint moved = point;
    double& value = moved.values[std::size_t(p)];
    const double before = value, up = before * std::exp(kDerivativeStep);
    value = up <= parameters_[std::size_t(p)].most ? up : before * std::exp(-kDerivativeStep);
    result.col(p) = (at(moved) - here) / std::log(value / before);
  }
  if (shapes_.empty()) return result;
  FitPoint moved = point;
  for (double& layer : moved.layers) layer += kDerivativeStep;
  const Eigen::VectorXd slower = at(moved);
  for (std::ptrdiff_t i = 0; i < here.size(); ++i) {
    const auto layer = std::ptrdiff_t(runs_[std::size_t(i)].layer);
    result(i, parameters + layer) = (slower[i] - here[i]) / kDerivativeStep;
  }
  return result;
}

double FitModel::predicted(const FitRun& run, const FitPoint& point) const {
  Cluster cluster = run.target.cluster;
  Framework framework = run.target.framework;
  for (std::size_t p = 0; p < point.values.size(); ++p) {
    parameters_[p].set(cluster, framework, parameters_[p].level, point.values[p]);
  }
  CostModel costs(std::move(cluster), std::nullopt, std::move(framework));
  if (!shapes_.empty()) costs = costs.with_layer_factor(std::exp(point.layers[run.layer]));
  const Evaluation evaluation = predict(run.target.job, run.target.strategies[0], run.footprint,
                                        costs, run.target.devices, Folding::folded, Detail::none);
  return std::log(evaluation.score.prediction.step_time.value());
}

}  // namespace plimsoll
