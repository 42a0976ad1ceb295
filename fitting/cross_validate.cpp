// Folds of runs are left out, fitted without and predicted.
#include "fitting/cross_validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "predict/fit_transfer.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

// Standard deviations of one run that are tried: from what nobody measures better than to where
// layers make no difference any more.
constexpr double kLeastDeviation = 0.01, kMostDeviation = 0.3, kNextDeviation = 1.2;

double error(const UnseenRun& unseen) {
  return std::abs(std::exp(unseen.predicted - unseen.measured) - 1);
}

void predict_unseen(const FitModel& model, const LogModel& log_model,
                    const RobustSolution& solution, const std::vector<bool>& use, std::size_t fold,
                    std::vector<UnseenRun>& unseen) {
  const LogModel::Values here = log_model.predicted(solution.values);
  const std::vector<LayerPoint> points = layer_points(model, solution, use);
  for (std::size_t i = 0; i < use.size(); ++i) {
    if (use[i]) continue;
    const FitRun& run = model.runs()[i];
    unseen.push_back({i, run.family, run.across_nodes, fold, here[i], run.measured,
                      layer_factor(points, run.shape).deviation});
  }
}

/// The value that 90 % of further values of the kind are expected not to exceed: at place 0.9 (n +
/// 1) of the ascending ones, between neighbours (Weibull 1939; quantile type 6 of Hyndman and Fan
/// 1996).
double percentile90(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = std::clamp(0.9 * double(values.size() + 1), 1.0, double(values.size()));
  const auto below = std::size_t(place) - 1;
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - std::floor(place));
}

double half_width(const RunSpread& spread, const UnseenRun& run) {
  const double deviation = std::hypot(spread.deviation, run.layer_deviation);
  return std::exp(spread.interval90_deviations * deviation) - 1;
}

/// By fold, then within a node and across: the spread of `unseen` without the fold's runs.
std::vector<std::array<RunSpread, 2>> spreads_without_folds(const CrossValidation& left_out,
                                                            const std::vector<UnseenRun>& unseen) {
  std::map<std::size_t, std::size_t> fold_of;  // by run
  for (const UnseenRun& run : left_out.runs) fold_of[run.run] = run.fold;
  std::vector<std::array<RunSpread, 2>> spreads;
  for (std::size_t fold = 0; fold < left_out.folds.size(); ++fold) {
    std::vector<UnseenRun> others = unseen;
    std::erase_if(others, [&](const UnseenRun& run) { return fold_of.at(run.run) == fold; });
    spreads.push_back({run_spread(others, false), run_spread(others, true)});
  }
  return spreads;
}

bool is_enough(const FitModel& model, const std::vector<bool>& use) {
  std::set<std::string> layouts;
  for (std::size_t i = 0; i < use.size(); ++i) {
    if (use[i]) layouts.insert(model.runs()[i].layout);
  }
  return std::size_t(std::ranges::count(use, true)) >= kLeastRunsOfFit && layouts.size() > 1;
}

std::vector<UnseenRun> of_runs(std::vector<UnseenRun> unseen, const std::vector<bool>& use) {
  std::erase_if(unseen, [&](const UnseenRun& run) { return !use[run.run]; });
  return unseen;
}

}  // namespace

std::vector<LayerPoint> layer_points(const FitModel& model, const RobustSolution& solution,
                                     const std::vector<bool>& use) {
  std::vector<LayerPoint> points;
  const std::size_t parameters = model.parameters().size();
  for (std::size_t l = 0; l < model.shapes().size(); ++l) {
    LayerPoint point;
    point.shape = model.shapes()[l];
    point.factor = solution.values[parameters + l];
    point.deviation = solution.alone[parameters + l];
    for (std::size_t i = 0; i < use.size(); ++i)
      point.runs += use[i] && model.runs()[i].shape == point.shape ? 1 : 0;
    if (point.runs > 0) points.push_back(point);
  }
  return points;
}

SearchLimits fold_limits(const RobustSolution& whole) { return {3, 25, &whole.derivatives}; }

CrossValidation cross_validate(const FitModel& model, const LogModel& log_model,
                               const RobustSolution& whole, std::string FitRun::*alike,
                               std::size_t folds, const std::function<void()>& after_fold) {
  CrossValidation result;
  std::map<std::string, std::size_t> fold_of;
  for (const FitRun& run : model.runs()) fold_of[run.*alike] = 0;
  if (fold_of.size() < 2) return result;
  std::size_t next = 0;
  for (auto& [name, fold] : fold_of) fold = next++ % folds;
  result.folds.resize(std::min(folds, fold_of.size()));
  for (const auto& [name, fold] : fold_of) result.folds[fold].left_out.push_back(name);
  const SearchLimits limits = fold_limits(whole);
  for (std::size_t fold = 0; fold < result.folds.size(); ++fold) {
    std::vector<bool> use;
    for (const FitRun& run : model.runs()) use.push_back(fold_of[run.*alike] != fold);
    const std::size_t first = result.runs.size();
    predict_unseen(model, log_model, solve_determined(log_model, use, whole.values, limits), use,
                   fold, result.runs);
    FitFold& own = result.folds[fold];
    own.runs = result.runs.size() - first;
    for (std::size_t i = first; i < result.runs.size(); ++i)
      own.mean_abs_error += error(result.runs[i]) / double(own.runs);
    if (after_fold) after_fold();
  }
  result.mean_abs_error = mean_abs_error(result.runs);
  result.p90_abs_error = p90_abs_error(result.runs);
  return result;
}

double mean_abs_error(const std::vector<UnseenRun>& runs) {
  double sum = 0;
  for (const UnseenRun& run : runs) sum += error(run) / double(runs.size());
  return sum;
}

double p90_abs_error(const std::vector<UnseenRun>& runs) {
  std::vector<double> errors;
  for (const UnseenRun& run : runs) errors.push_back(error(run));
  return percentile90(errors);
}

std::vector<FitFamily> families_of(const CrossValidation& left_out,
                                   const std::vector<UnseenRun>& unseen) {
  const auto spreads = spreads_without_folds(left_out, unseen);
  std::map<std::string, std::vector<const UnseenRun*>> by_family;
  for (const UnseenRun& run : left_out.runs) by_family[run.family].push_back(&run);
  std::vector<FitFamily> families;
  for (const auto& [name, runs] : by_family) {
    ErrorPairs pairs;
    double within = 0, width = 0;
    for (const UnseenRun* run : runs) {
      pairs.emplace_back(std::exp(run->predicted), std::exp(run->measured));
      const double half = half_width(spreads[run->fold][run->across_nodes ? 1 : 0], *run);
      within += std::abs(std::exp(run->measured - run->predicted) - 1) <= half ? 1 : 0;
      width += half;
    }
    FitFamily& family = families.emplace_back(FitFamily{name, *statistics(pairs)});
    family.unseen.interval90_coverage = within / double(runs.size());
    family.unseen.interval90_half_width = width / double(runs.size());
  }
  return families;
}

RunSpread run_spread(const std::vector<UnseenRun>& runs, bool across_nodes) {
  std::vector<UnseenRun> own = runs;
  std::erase_if(own, [&](const UnseenRun& run) { return run.across_nodes != across_nodes; });
  if (own.size() < kLeastOfGroup) own = runs;
  RunSpread best;
  double narrowest = std::numeric_limits<double>::infinity();
  for (double deviation = kLeastDeviation; deviation < kMostDeviation;
       deviation *= kNextDeviation) {
    std::vector<double> off;
    for (const UnseenRun& run : own) {
      off.push_back(std::abs(run.predicted - run.measured) /
                    std::hypot(deviation, run.layer_deviation));
    }
    const RunSpread spread{deviation, percentile90(off)};
    double width = 0;
    for (const UnseenRun& run : own) width += half_width(spread, run);
    if (width >= narrowest) continue;
    narrowest = width;
    best = spread;
  }
  return best;
}

void set_numbers(const FitModel& model, const LogModel& log_model, const RobustSolution& solution,
                 const std::vector<bool>& use, FittedCalibration& fitted) {
  fitted.runs = std::ranges::count(use, true);
  fitted.sizes.clear();
  fitted.levels.clear();
  for (std::size_t i = 0; i < use.size(); ++i) {
    if (!use[i]) continue;
    const PublishedTarget& target = model.runs()[i].target;
    add_cluster(target.cluster, fitted);
    fitted.device = target.device;
    fitted.sizes.push_back(model_size(target.job));
  }
  std::ranges::sort(fitted.sizes);
  fitted.sizes.erase(std::unique(fitted.sizes.begin(), fitted.sizes.end()), fitted.sizes.end());
  fitted.values = fitted_values(log_model, solution, model.parameters().size());
  fitted.layers = layer_points(model, solution, use);
}

std::vector<FitWithout> fits_without(const FitModel& model, const LogModel& log_model,
                                     const RobustSolution& whole, const CrossValidation& by_layout,
                                     const std::vector<UnseenRun>& unseen,
                                     const FittedCalibration& fitted) {
  std::set<std::string> documents;
  for (const FitRun& run : model.runs()) documents.insert(run.document);
  std::vector<FitWithout> found;
  for (const std::string& document : documents) {
    std::vector<bool> use;
    for (const FitRun& run : model.runs()) use.push_back(run.document != document);
    if (!is_enough(model, use)) continue;
    FitWithout& next = found.emplace_back(FitWithout{document, fitted});
    std::erase_if(next.fitted.sources,
                  [&](const std::string& source) { return document_of(source) == document; });
    set_numbers(model, log_model,
                solve_determined(log_model, use, whole.values, fold_limits(whole)), use,
                next.fitted);
    const std::vector<UnseenRun> layouts = of_runs(by_layout.runs, use);
    next.fitted.unseen_sizes_mean.reset();
    next.fitted.cross_validated_mean = mean_abs_error(layouts);
    next.fitted.cross_validated_p90 = p90_abs_error(layouts);
    next.fitted.within_node = run_spread(of_runs(unseen, use), false);
    next.fitted.across_nodes = run_spread(of_runs(unseen, use), true);
  }
  return found;
}

}  // namespace plimsoll
