// Documents are left out of a fit, one after another.
#include "fitting/fits_without.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "predict/fit_transfer.h"

namespace plimsoll {
namespace {

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
