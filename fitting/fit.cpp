// A fit of published runs is solved, cross-validated and written as text.
#include "fitting/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/log_statistics.h"
#include "base/parallel.h"
#include "fitting/fit_model.h"
#include "predict/evaluate.h"
#include "published/validate.h"

namespace plimsoll {
namespace {

/// So many runs tell whether layers were recomputed, which changes a third of a step.
constexpr std::size_t kRunsToChoose = 100;
constexpr double kNoiseToChoose = 0.01;  // of a logarithm: nobody measures better
constexpr SearchLimits kLimitsToChoose{4, 4, nullptr};
/// The largest share of runs that ran which may be predicted out of memory: predictions of memory
/// are off, too.
constexpr double kMostOutOfMemory = 0.1;

/// |predicted / measured - 1|, mean.
double mean_error(const LogModel& model, const LogModel::Values& values) {
  const LogModel::Values here = model.predicted(values);
  double sum = 0;
  for (std::size_t i = 0; i < here.size(); ++i)
    sum += std::abs(std::exp(here[i] - model.measured[i]) - 1);
  return sum / double(here.size());
}

/// Returns the loss of a fit on the assumption: how far off its runs are, and how far its
/// parameters are from their priors. All assumptions have one noise, since a worse fit would
/// otherwise be excused as noise.
double loss_with(std::span<const PublishedRun> published, const FitSelection& selection,
                 const AssumedRecompute& assumed, LayerShapes layers) {
  std::vector<std::string> sources;
  const FitModel model(fit_runs(published, selection, assumed, sources), layers);
  LogModel log_model = model.log_model();
  log_model.least_scale = log_model.most_scale = kNoiseToChoose;
  const std::vector<bool> all(model.runs().size(), true);
  return solve_determined(log_model, all, log_model.priors(), kLimitsToChoose).loss;
}

/// Whether one of its strategies fits: memory alone.
bool fits(const PublishedTarget& run) {
  const Target target = run.target();
  return std::any_of(run.strategies.begin(), run.strategies.end(), [&](const Strategy& one) {
    return fits_devices(target, one, lay_out(target, one, Proof::none).stages);
  });
}

/// Returns the share of the runs without a stated recompute that would have been out of memory
/// under the assumption.
double out_of_memory(std::span<const PublishedRun> published, const FitSelection& selection,
                     bool full, bool across_nodes) {
  std::vector<std::string> sources;
  std::vector<FitRun> runs = fit_runs(published, selection, {full, full}, sources);
  std::erase_if(runs, [&](const FitRun& run) {
    return !run.unstated_recompute || run.across_nodes != across_nodes;
  });
  std::atomic<std::size_t> out = 0;
  for_each_index(runs.size(), 0, [&](std::size_t i) { out += fits(runs[i].target) ? 0 : 1; });
  return runs.empty() ? 0 : double(out) / double(runs.size());
}

/// Returns the assumption that fits best. The runs ran, so assumptions under which they would not
/// have fitted their memory are excluded.
AssumedRecompute choose_recompute(std::span<const PublishedRun> published, FitSelection selection,
                                  std::span<const FitRun> runs, LayerShapes layers) {
  const auto ways = [&](bool across_nodes) {
    const bool open = std::any_of(runs.begin(), runs.end(), [&](const FitRun& run) {
      return run.unstated_recompute && run.across_nodes == across_nodes;
    });
    if (!open) return std::vector<std::optional<bool>>{std::nullopt};
    if (out_of_memory(published, selection, false, across_nodes) > kMostOutOfMemory &&
        out_of_memory(published, selection, true, across_nodes) <= kMostOutOfMemory)
      return std::vector<std::optional<bool>>{true};
    return std::vector<std::optional<bool>>{false, true};
  };
  selection.most_runs = std::min(selection.most_runs, kRunsToChoose);
  const auto within = ways(false), across = ways(true);
  if (within.size() * across.size() == 1) return {within[0], across[0]};
  AssumedRecompute best;
  double least = std::numeric_limits<double>::infinity();
  for (const std::optional<bool> within_node : within) {
    for (const std::optional<bool> across_nodes : across) {
      const AssumedRecompute assumed{within_node, across_nodes};
      const double found = loss_with(published, selection, assumed, layers);
      if (found >= least) continue;
      least = found;
      best = assumed;
    }
  }
  return best;
}

/// Returns what the runs were taken for, the most frequent first.
std::string taken_text(std::span<const PublishedRun> published) {
  std::map<std::string, std::size_t> seen;
  for (const PublishedRun& run : published) {
    const PublishedTarget target = published_target(run, own_numbers());
    ++seen[!target.missing.empty() ? "not predicted for want of: " + target.missing
           : !run.has_step_time()  ? "without a step time"
                                   : fmt::format("on {} with {}", target.cluster.name,
                                                 calibrated_as(target.framework))];
  }
  std::vector<std::pair<std::size_t, std::string>> counted;
  for (const auto& [what, count] : seen) counted.emplace_back(count, what);
  std::ranges::stable_sort(counted, std::greater(), &std::pair<std::size_t, std::string>::first);
  std::string text;
  for (const auto& [count, what] : counted)
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", count, what);
  return text;
}

std::string families_text(const std::vector<FitFamily>& families, std::string_view what) {
  std::string text;
  for (const FitFamily& family : families) {
    text += fmt::format("  {}, {} left out by {}: {}\n", family.name, family.unseen.count, what,
                        errors_text(family.unseen));
  }
  return text;
}

std::string folds_text(const CrossValidation& found, std::string_view what) {
  std::string text;
  for (const FitFold& fold : found.folds) {
    text += fmt::format("  left out {:3} runs of {:2} {}: {:5.1f} %\n", fold.runs,
                        fold.left_out.size(), what, 100 * fold.mean_abs_error);
  }
  return text;
}

std::string assumed_text(const AssumedRecompute& assumed) {
  std::string text;
  const auto add = [&](std::string_view where, const std::optional<bool>& full) {
    if (!full) return;
    text += fmt::format("  if it is not stated, {} {}\n",
                        *full ? "all layers repeated" : "no layer repeated", where);
  };
  add("within a node", assumed.within_node);
  add("across nodes", assumed.across_nodes);
  return text;
}

}  // namespace

Fit fit(std::span<const PublishedRun> published, const FitOptions& options) {
  Fit result;
  FittedCalibration& fitted = result.fitted;
  const FitSelection selection{options.cluster, options.framework, options.most_runs};
  std::vector<FitRun> runs = fit_runs(published, selection, {}, fitted.sources);
  if (runs.empty()) {
    throw InfeasibleError(fmt::format("none of the {} runs is on cluster {} with framework {}: {}",
                                      published.size(), options.cluster, options.framework,
                                      taken_text(published)));
  }
  if (std::all_of(runs.begin(), runs.end(),
                  [&](const FitRun& run) { return run.layout == runs[0].layout; })) {
    throw InfeasibleError(fmt::format(
        "all {} runs are {}: a fit to one layout says nothing about others, and nothing is left to "
        "test it on",
        runs.size(), runs[0].layout));
  }
  fitted.assumed_recompute = choose_recompute(published, selection, runs, options.layers);
  if (fitted.assumed_recompute != AssumedRecompute{})
    runs = fit_runs(published, selection, fitted.assumed_recompute, fitted.sources);
  const FitModel model(std::move(runs), options.layers);
  const LogModel log_model = model.log_model();
  const std::vector<bool> all(model.runs().size(), true);
  fitted.cluster = options.cluster;
  fitted.framework = options.framework;
  result.mean_abs_error_before = mean_error(log_model, log_model.priors());
  const RobustSolution solution = solve_determined(log_model, all, log_model.priors(),
                                                   {.most_derivations = options.most_iterations});
  set_numbers(model, log_model, solution, all, fitted);
  result.mean_abs_error = mean_error(log_model, solution.values);
  auto after_fit = [&, done = std::int64_t{0}]() mutable {
    if (options.progress) options.progress(++done, 1 + 2 * std::int64_t(options.folds));
  };
  after_fit();
  const std::function<void()> after_fold = std::ref(after_fit);
  result.by_layout =
      cross_validate(model, log_model, solution, &FitRun::layout, options.folds, after_fold);
  result.by_size =
      cross_validate(model, log_model, solution, &FitRun::size, options.folds, after_fold);
  fitted.cross_validated_mean = result.by_layout.mean_abs_error;
  fitted.cross_validated_p90 = result.by_layout.p90_abs_error;
  if (!result.by_size.runs.empty()) fitted.unseen_sizes_mean = result.by_size.mean_abs_error;
  // Later requests are for a layout or a size that was not there.
  std::vector<UnseenRun> unseen = result.by_layout.runs;
  unseen.insert(unseen.end(), result.by_size.runs.begin(), result.by_size.runs.end());
  fitted.within_node = run_spread(unseen, false);
  fitted.across_nodes = run_spread(unseen, true);
  if (options.without)
    result.without = fits_without(model, log_model, solution, result.by_layout, unseen, fitted);
  result.families_by_layout = families_of(result.by_layout, unseen);
  result.families_by_size = families_of(result.by_size, unseen);
  return result;
}

std::string fit_text(const Fit& fit) {
  const FittedCalibration& fitted = fit.fitted;
  std::string text = fmt::format(
      "{} with {}: {} runs\n  mean |error| {:.1f} % before, {:.1f} % fitted, {:.1f} % on runs left "
      "out (90th percentile {:.1f} %)\n",
      fitted.cluster, fitted.framework, fitted.runs, 100 * fit.mean_abs_error_before,
      100 * fit.mean_abs_error, 100 * *fitted.cross_validated_mean,
      100 * *fitted.cross_validated_p90);
  text += families_text(fit.families_by_layout, "layout") +
          families_text(fit.families_by_size, "model size") +
          assumed_text(fitted.assumed_recompute);
  std::vector<std::string> stay;
  for (const FittedValue& value : fitted.values) {
    if (!value.determined) {
      stay.push_back(fmt::format("{} {:.4g}", value.name, value.value));
      continue;
    }
    text += fmt::format("  {:34} {:10.4g}  90 % {:.4g} to {:.4g}  prior {:.4g}{}\n", value.name,
                        value.value, value.low, value.high, value.prior,
                        value.at_bound() ? "  rests on its bound" : "");
  }
  if (!stay.empty()) text += fmt::format("  not determined, stay: {}\n", fmt::join(stay, ", "));
  for (const LayerPoint& layer : fitted.layers) {
    text += fmt::format(
        "  layers of {} tokens, sequence {}, hidden {}, mp {}{}{}: {:.3f} +- {:.1f} % with these "
        "numbers, {} runs\n",
        layer.shape.tokens, layer.shape.sequence, layer.shape.hidden, layer.shape.mp,
        layer.shape.operand_bytes == 1 ? ", 8 bits" : "", layer.shape.routed > 0 ? ", experts" : "",
        layer.factor, 100 * kNormal90 * layer.deviation, layer.runs);
  }
  return text + folds_text(fit.by_layout, "layouts") + folds_text(fit.by_size, "model sizes");
}

}  // namespace plimsoll
