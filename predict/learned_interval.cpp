// The covariance of learned numbers becomes the interval of a step.
#include "predict/learned_interval.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log_statistics.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

constexpr double kDerivativeStep = 0.05;  // of a logarithm

}  // namespace

std::vector<double> step_derivatives(const Target& target, const Strategy& strategy,
                                     const Footprint& footprint, Seconds step_time,
                                     std::span<const FitParameter> parameters) {
  const CostModel& costs = *target.costs;
  std::vector<double> derivatives;
  for (const FitParameter& parameter : parameters) {
    Cluster cluster = costs.cluster();
    Framework framework = costs.framework();
    const double value = parameter.get(cluster, framework, parameter.level);
    const bool up = value * std::exp(kDerivativeStep) <= parameter.most;
    const double step = up ? kDerivativeStep : -kDerivativeStep;
    parameter.set(cluster, framework, parameter.level, value * std::exp(step));
    const Target moved(
        target.job,
        CostModel(std::move(cluster), costs.calibration(), std::move(framework), costs.fitted()),
        target.devices);
    try {
      const Simulation there =
          simulate(footprint.programs, costs_of(moved, strategy), Folding::folded, Detail::none);
      derivatives.push_back(std::log(there.step_time / step_time) / step);
    } catch (const InfeasibleError&) {  // longer than a step may be
      derivatives.push_back(0);
    }
  }
  return derivatives;
}

StepInterval learned_interval(const Target& target, const Strategy& strategy,
                              const Footprint& footprint, const Prediction& prediction,
                              const StepInterval& otherwise) {
  const FittedCalibration& fitted = *target.costs->fitted();
  const LearnedSpread& learned = *fitted.learned;
  std::vector<FitParameter> parameters;
  std::vector<std::size_t> rows;
  for (FitParameter& parameter : fit_parameters(target.cluster())) {
    const auto name = std::ranges::find(learned.names, parameter.name);
    const double value = parameter.get(target.cluster(), target.framework(), parameter.level);
    if (name == learned.names.end() || value <= 0) continue;
    rows.push_back(std::size_t(name - learned.names.begin()));
    parameters.push_back(std::move(parameter));
  }
  const std::vector<double> by =
      step_derivatives(target, strategy, footprint, prediction.step_time, parameters);
  double variance = learned.noise * learned.noise;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < rows.size(); ++j)
      variance += by[i] * by[j] * learned.covariance[rows[i] * learned.names.size() + rows[j]];
  }
  const Breakdown& parts = prediction.breakdown;
  const double computed = (parts.forward + parts.recompute + parts.backward) / prediction.step_time;
  const double layers =
      computed * layer_factor(fitted.layers, layer_shape(target.job, strategy)).deviation;
  const double half = kNormal90 * std::sqrt(variance + layers * layers);
  return around(std::min(half, otherwise.logarithm()));
}

}  // namespace plimsoll
