#include "planner/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "planner/fit_model.h"
#include "planner/fit_solve.h"

namespace plimsoll {
namespace {

constexpr double kNormal90 = 1.645;

/// |predicted / measured - 1| of the runs in use.
std::vector<double> errors(const FitModel& model, const FitPoint& point,
                           const std::vector<bool>& use) {
  const Eigen::VectorXd here = model.at(point);
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

std::vector<FittedValue> fitted_values(const FitModel& model, const Solution& solution) {
  std::vector<FittedValue> values;
  for (std::size_t p = 0; p < solution.point.values.size(); ++p) {
    FittedValue& value = values.emplace_back();
    value.name = model.parameters()[p].name;
    value.prior = model.priors().values[p];
    value.determined = !solution.fixed[p];
    value.value = solution.point.values[p];
    const double factor = std::exp(kNormal90 * deviation(solution, p));
    value.low = value.value / factor;
    value.high = value.value * factor;
  }
  return values;
}

/// The layers of all runs in use; others would only repeat these.
std::vector<LayerPoint> fitted_layers(const FitModel& model, const Solution& solution) {
  std::vector<LayerPoint> layers;
  const std::size_t parameters = model.parameters().size();
  for (std::size_t l = 0; l < model.shapes().size(); ++l) {
    LayerPoint& point = layers.emplace_back();
    point.shape = model.shapes()[l];
    point.factor = std::exp(solution.point.layers[l]);
    point.deviation = deviation(solution, parameters + l);
    point.runs = std::count_if(model.runs().begin(), model.runs().end(),
                               [&](const FitRun& run) { return run.layer == l; });
  }
  return layers;
}

/// A run as a fit without it predicts it.
struct UnseenRun {
  const FitRun* run = nullptr;
  double predicted = 0;  ///< logarithm
  double deviation = 0;  ///< of that, by the fit
};

double error(const UnseenRun& unseen) {
  return std::abs(std::exp(unseen.predicted - unseen.run->measured) - 1);
}

std::vector<UnseenRun> predict_unseen(const FitModel& model, const Solution& solution,
                                      const std::vector<bool>& left_out) {
  std::vector<UnseenRun> unseen;
  const Eigen::VectorXd here = model.at(solution.point);
  for (std::size_t i = 0; i < left_out.size(); ++i) {
    if (!left_out[i]) continue;
    const FitRun& run = model.runs()[i];
    const double layer =
        model.shapes().empty() ? 0 : deviation(solution, model.parameters().size() + run.layer);
    unseen.push_back({&run, here[std::ptrdiff_t(i)], std::hypot(solution.scale, layer)});
  }
  return unseen;
}

/// Each fold is solved for again from the fit of all runs, with its derivatives.
std::vector<FitFold> cross_validate(const FitModel& model, const Solution& whole,
                                    const FitOptions& options, std::vector<UnseenRun>& unseen) {
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
    const std::vector<UnseenRun> own =
        predict_unseen(model, solve_again(model, use, whole), left_out);
    for (const UnseenRun& run : own) {
      folds[fold].mean_abs_error += error(run) / double(own.size());
      unseen.push_back(run);
    }
    folds[fold].runs = own.size();
  }
  return folds;
}

/// Sets what a calibration says of the errors of runs left out, and returns them by family.
std::vector<FitFamily> judge(const std::vector<UnseenRun>& unseen, FittedCalibration& fitted) {
  std::vector<double> errors, deviations;
  std::map<std::string, std::vector<UnseenRun>> by_family;
  for (const UnseenRun& run : unseen) {
    errors.push_back(error(run));
    deviations.push_back(std::abs(run.predicted - run.run->measured) / run.deviation);
    by_family[run.run->family].push_back(run);
  }
  fitted.cross_validated_mean = mean(errors);
  fitted.cross_validated_p90 = percentile90(errors);
  fitted.interval90_deviations = percentile90(deviations);
  std::vector<FitFamily> families;
  for (const auto& [name, runs] : by_family) {
    ErrorPairs pairs;
    double within = 0, width = 0;
    for (const UnseenRun& run : runs) {
      pairs.emplace_back(std::exp(run.predicted), std::exp(run.run->measured));
      const double half = std::exp(fitted.interval90_deviations * run.deviation) - 1;
      within += std::abs(std::exp(run.run->measured - run.predicted) - 1) <= half ? 1 : 0;
      width += half;
    }
    FitFamily& family = families.emplace_back(FitFamily{name, *statistics(pairs)});
    family.unseen.interval90_coverage = within / double(runs.size());
    family.unseen.interval90_half_width = width / double(runs.size());
  }
  return families;
}

}  // namespace

Fit fit(std::span<const PublishedRun> published, const FitOptions& options) {
  Fit result;
  FittedCalibration& fitted = result.fitted;
  std::vector<FitRun> runs =
      fit_runs(published, options.cluster, options.framework, options.most_runs, fitted.sources);
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
  const FitModel model(std::move(runs), options.layers);
  const std::vector<bool> all(model.runs().size(), true);
  fitted.cluster = options.cluster;
  fitted.framework = options.framework;
  fitted.runs = std::int64_t(all.size());
  result.mean_abs_error_before = mean(errors(model, model.priors(), all));
  const Solution solution = solve_determined(model, all, options.most_iterations);
  fitted.values = fitted_values(model, solution);
  fitted.layers = fitted_layers(model, solution);
  fitted.run_deviation = solution.scale;
  result.mean_abs_error = mean(errors(model, solution.point, all));
  std::vector<UnseenRun> unseen;
  result.folds = cross_validate(model, solution, options, unseen);
  result.families = judge(unseen, fitted);
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
  for (const FitFamily& family : fit.families) {
    text += fmt::format("  {}, {} left out: {}\n", family.name, family.unseen.count,
                        errors_text(family.unseen));
  }
  for (const FittedValue& value : fitted.values) {
    text += fmt::format("  {:34} {:10.4g}  90 % {:.4g} to {:.4g}  prior {:.4g}{}\n", value.name,
                        value.value, value.low, value.high, value.prior,
                        value.determined ? "" : "  not determined, stays");
  }
  for (const LayerPoint& layer : fitted.layers) {
    text += fmt::format(
        "  layers of {} tokens, sequence {}, hidden {}, mp {}: {:.3f} +- {:.1f} %, {} runs\n",
        layer.shape.tokens, layer.shape.sequence, layer.shape.hidden, layer.shape.mp, layer.factor,
        100 * kNormal90 * layer.deviation, layer.runs);
  }
  for (const FitFold& fold : fit.folds) {
    text += fmt::format("  left out {:3} runs of {:2} layouts: {:5.1f} %\n", fold.runs,
                        fold.layouts.size(), 100 * fold.mean_abs_error);
  }
  return text;
}

}  // namespace plimsoll
