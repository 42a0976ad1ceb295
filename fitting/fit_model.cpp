// Published runs are lowered and predicted as functions of a fit's numbers.
#include "fitting/fit_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/parallel.h"
#include "models/framework/framework.h"
#include "published/validate.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

constexpr double kDerivativeStep = 0.02;  // of a logarithm
constexpr double kLeastChange = 1e-6;     // of a logarithm: as good as none
constexpr double kLeastFactor = 0.5, kMostFactor = 2;
// Bounds of the standard deviation of one run's logarithm. Nobody measures better than the first.
// Larger deviations than the second are errors of the model, which the fit should mend.
constexpr double kLeastScale = 0.01, kMostScale = 0.05;

std::string size_of(const PublishedRun& run) {
  return fmt::format("{}x{}", run.layers.value_or(0), run.hidden.value_or(0));
}

std::string layout_of(const PublishedRun& run) {
  return fmt::format("{} {} s{} tp {} pp {} dp {}", run.model, size_of(run),
                     run.sequence.value_or(0), run.tp, run.pp, run.dp);
}

bool several_recomputes(const PublishedTarget& target) {
  return std::any_of(
      target.strategies.begin(), target.strategies.end(),
      [&](const Strategy& other) { return other.recompute != target.strategies[0].recompute; });
}

/// Returns whether a parameter can change the time of a run.
bool can_move(const FitParameter& parameter, const FitRun& run) {
  const Fp8 fp8 = run.target.strategies[0].precision.fp8;
  switch (parameter.part) {
    case FitPart::level:
      return parameter.level == 0 || run.across_nodes;
    case FitPart::products_of_fp8:
      return fp8 != Fp8::none;
    case FitPart::products_by_rows:
      return fp8 == Fp8::rowwise;
    case FitPart::attention_forward:
    case FitPart::attention_backward:
      return run.target.framework.kernels.attention.flash;
    default:
      return true;
  }
}

/// Returns the runs that show a parameter apart from others; empty if all do. What runs with 8-bit
/// products lack may be of fp8_rate alone, and says nothing of products of 16 bits.
std::vector<bool> shown_by(const FitParameter& parameter, std::span<const FitRun> runs) {
  std::vector<bool> shown;
  if (parameter.part != FitPart::products_of_16_bits) return shown;
  for (const FitRun& run : runs)
    shown.push_back(run.target.strategies[0].precision.fp8 == Fp8::none);
  return shown;
}

/// Chooses the strategy and lowers it. Returns false where it cannot be lowered.
bool lay_out_run(FitRun& run) {
  PublishedTarget& published = run.target;
  try {
    if (published.strategies.size() > 1)
      published.strategies = std::vector{predict_published(published).strategy};
    const Strategy& strategy = published.strategies.at(0);
    const Target target = published.target();
    run.footprint = lay_out(target, strategy, Proof::none, AllocatorReplay::leave_out);
    run.shape = layer_shape(target.job, strategy);
    predict(target, strategy, run.footprint, Folding::folded, Detail::none);
    return true;
  } catch (const InfeasibleError&) {
    return false;
  } catch (const InputError&) {
    return false;
  }
}

/// At most so many within a node and across nodes each, in their order.
std::vector<FitRun> spread(std::vector<FitRun> runs, std::size_t most) {
  std::vector<FitRun> chosen;
  std::array<double, 2> count{}, seen{}, next{};
  for (const FitRun& run : runs) ++count[run.across_nodes ? 1 : 0];
  for (FitRun& run : runs) {
    const std::size_t scope = run.across_nodes ? 1 : 0;
    if (seen[scope]++ < next[scope]) continue;
    next[scope] = next[scope] + std::max(1.0, count[scope] / double(most));
    chosen.push_back(std::move(run));
  }
  return chosen;
}

/// Ascending.
std::vector<LayerShape> shapes_of(std::span<const FitRun> runs, LayerShapes which) {
  if (which == LayerShapes::none) return {};
  struct Seen {
    std::size_t runs = 0;
    std::set<std::string> layouts;
  };
  std::map<LayerShape, Seen> seen;
  for (const FitRun& run : runs) {
    ++seen[run.shape].runs;
    seen[run.shape].layouts.insert(run.layout);
  }
  std::vector<LayerShape> shapes;
  for (const auto& [shape, of] : seen) {
    const bool repeated = of.runs >= kLeastRunsOfShape && of.layouts.size() >= kLeastLayoutsOfShape;
    if (repeated || which == LayerShapes::all) shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

std::optional<FitRun> fit_run(PublishedTarget target, Seconds measured,
                              std::vector<FitPartTime> parts) {
  if (!target.missing.empty()) return std::nullopt;
  FitRun run;
  run.target = std::move(target);
  run.measured = std::log(measured.value());
  if (!lay_out_run(run)) return std::nullopt;
  run.across_nodes = run.target.devices > run.target.cluster.devices_per_node;
  const Evaluation step = predict(run.target.target(), run.target.strategies[0], run.footprint,
                                  Folding::folded, Detail::critical);
  const Prediction& before = step.prediction;
  run.half_width = std::log(before.step_time_high / before.step_time_low) / 2;
  for (const FitPartTime& one : parts) {
    if (time_of(one.part, step.parts) >= before.step_time * kLeastShare) run.parts.push_back(one);
  }
  if (const auto& fitted = run.target.fitted)
    run.layer_factor = layer_factor(fitted->layers, run.shape).factor;
  return run;
}

std::vector<FitRun> fit_runs(std::span<const PublishedRun> published, const FitSelection& selection,
                             const AssumedRecompute& assumed, std::vector<std::string>& sources) {
  std::vector<FitRun> all;
  for (const PublishedRun& run : published) {
    // If each launch waits for its kernel, a step is no measure of rates.
    if (!run.has_step_time() || (run.framework && run.framework->host.waits.for_launches)) continue;
    const PublishedTarget open = published_target(run, own_numbers());
    if (!open.missing.empty() || open.cluster.name != selection.cluster ||
        calibrated_as(open.framework) != selection.framework)
      continue;
    FitRun next;
    next.target = published_target(run, own_numbers(), assumed);
    next.unstated_recompute = several_recomputes(open);
    next.measured = std::log(run.step_time->value());
    next.family = run.family;
    next.document = document_of(run.source);
    next.layout = layout_of(run);
    next.size = size_of(run);
    next.across_nodes = open.devices > open.cluster.devices_per_node;
    if (std::find(sources.begin(), sources.end(), run.source) == sources.end())
      sources.push_back(run.source);
    all.push_back(std::move(next));
  }
  std::vector<FitRun> chosen = spread(std::move(all), selection.most_runs);
  std::vector<char> usable(chosen.size(), 0);
  for_each_index(chosen.size(), resolve_threads(0), [&](std::size_t i) {
    usable[i] = chosen[i].target.missing.empty() && lay_out_run(chosen[i]) ? 1 : 0;
  });
  std::vector<FitRun> laid_out;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (usable[i] != 0) laid_out.push_back(std::move(chosen[i]));
  }
  return laid_out;
}

FitModel::FitModel(std::vector<FitRun> runs, LayerShapes layers) : runs_(std::move(runs)) {
  const PublishedTarget& first = runs_.at(0).target;
  parameters_ = fit_parameters(first.cluster);
  // A time of zero has no logarithm: a framework whose host never waits.
  std::erase_if(parameters_, [&](const FitParameter& parameter) {
    return parameter.get(first.cluster, first.framework, parameter.level) <= 0;
  });
  for (const FitRun& run : runs_) measured_.push_back(run.measured);
  for (const FitRun& run : runs_) {
    first_parts_.push_back(measured_.size());
    for (const FitPartTime& one : run.parts) measured_.push_back(one.measured);
  }
  shapes_ = shapes_of(runs_, layers);
  const auto count = std::ptrdiff_t(shapes_.size());
  for (FitRun& run : runs_) {
    const auto same = std::find(shapes_.begin(), shapes_.end(), run.shape);
    if (same != shapes_.end()) {
      run.layers = Eigen::VectorXd::Unit(count, same - shapes_.begin());
    } else if (!shapes_.empty()) {
      LayerNeighbours neighbours = layer_neighbours(shapes_, run.shape);
      run.layers = std::move(neighbours.weights);
      run.layer_deviation = neighbours.deviation;
    }
  }
}

LogModel FitModel::log_model(std::vector<bool> only) const {
  if (only.empty()) only.assign(runs_.size(), true);
  LogModel model;
  model.least_scale = kLeastScale;
  model.most_scale = kMostScale;
  const PublishedTarget& first = runs_.at(0).target;
  for (const FitParameter& parameter : parameters_) {
    model.numbers.push_back({parameter.name,
                             parameter.get(first.cluster, first.framework, parameter.level),
                             parameter.spread, parameter.least, parameter.most});
    model.numbers.back().shown_by = shown_by(parameter, runs_);
  }
  const double spread = std::hypot(kSharedDeviation, kOwnDeviation);
  for (std::size_t l = 0; l < shapes_.size(); ++l)
    model.numbers.push_back({"layers", 1, spread, kLeastFactor, kMostFactor, false});
  model.measured = measured_;
  model.groups.resize(measured_.size());
  model.open.resize(measured_.size());
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    model.groups[i] = runs_[i].across_nodes ? 1 : 0;
    model.open[i] = runs_[i].layer_deviation;
  }
  const auto numbers = std::ptrdiff_t(model.numbers.size());
  const auto layers = std::ptrdiff_t(shapes_.size());
  Eigen::MatrixXd precision = Eigen::MatrixXd::Zero(numbers, numbers);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    precision(std::ptrdiff_t(p), std::ptrdiff_t(p)) =
        1 / (parameters_[p].spread * parameters_[p].spread);
  }
  if (layers > 0) precision.bottomRightCorner(layers, layers) = layer_covariance(shapes_).inverse();
  model.precision = std::move(precision);
  model.predicted = [this, only](const LogModel::Values& values) {
    return predicted(values, only);
  };
  model.derivatives = [this, only](const LogModel::Values& values, const LogModel::Values& here) {
    return derivatives(values, here, only);
  };
  return model;
}

Eigen::MatrixXd FitModel::derivatives(const LogModel::Values& values, const LogModel::Values& here,
                                      const std::vector<bool>& only) const {
  const std::size_t parameters = parameters_.size();
  Eigen::MatrixXd result = Eigen::MatrixXd::Zero(std::ptrdiff_t(here.size()),
                                                 std::ptrdiff_t(parameters + shapes_.size()));
  // Calls `set(row, change)` for the changes of a run's times.
  const auto for_each_change = [&](const LogModel::Values& moved, std::size_t i, auto set) {
    const LogModel::Values there = predicted(runs_[i], moved);
    for (std::size_t t = 0; t < there.size(); ++t) {
      const std::size_t row = t == 0 ? i : first_parts_[i] + t - 1;
      if (std::isfinite(there[t]))  // else the edge of what can be predicted
        set(std::ptrdiff_t(row), there[t] - here[row]);
    }
  };
  for (std::size_t p = 0; p < parameters; ++p) {
    LogModel::Values moved = values;
    const bool up = values[p] * std::exp(kDerivativeStep) <= parameters_[p].most;
    const double step = up ? kDerivativeStep : -kDerivativeStep;
    moved[p] *= std::exp(step);
    for_each_index(runs_.size(), resolve_threads(0), [&](std::size_t i) {
      if (!only[i] || !can_move(parameters_[p], runs_[i])) return;
      for_each_change(moved, i, [&](std::ptrdiff_t row, double change) {
        result(row, std::ptrdiff_t(p)) = change / step;
      });
    });
  }
  if (shapes_.empty()) return result;
  // All layers slower at once: a run has those of one shape.
  LogModel::Values slower = values;
  for (std::size_t l = parameters; l < slower.size(); ++l) slower[l] *= std::exp(kDerivativeStep);
  for_each_index(runs_.size(), resolve_threads(0), [&](std::size_t i) {
    const double by = runs_[i].layers.sum() * kDerivativeStep;
    if (!only[i] || std::abs(by) < kLeastChange) return;
    for_each_change(slower, i, [&](std::ptrdiff_t row, double change) {
      result.row(row).rightCols(std::ptrdiff_t(shapes_.size())) =
          change / by * runs_[i].layers.transpose();
    });
  });
  return result;
}

LogModel::Values FitModel::predicted(const LogModel::Values& values,
                                     const std::vector<bool>& only) const {
  LogModel::Values all = measured_;
  for_each_index(runs_.size(), resolve_threads(0), [&](std::size_t i) {
    if (!only[i]) return;
    const LogModel::Values times = predicted(runs_[i], values);
    all[i] = times[0];
    std::copy(times.begin() + 1, times.end(), all.begin() + std::ptrdiff_t(first_parts_[i]));
  });
  return all;
}

LogModel::Values FitModel::predicted(const FitRun& run, const LogModel::Values& values) const {
  Cluster cluster = run.target.cluster;
  Framework framework = run.target.framework;
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    parameters_[p].set(cluster, framework, parameters_[p].level, values[p]);
  CostModel costs(std::move(cluster), run.target.measured, std::move(framework));
  double factor = std::log(run.layer_factor);
  for (std::size_t l = 0; l < shapes_.size(); ++l)
    factor += run.layers[std::ptrdiff_t(l)] * std::log(values[parameters_.size() + l]);
  if (factor != 0) costs = costs.with_layer_factor(std::exp(factor));
  LogModel::Values times;
  try {
    const Target target(run.target.job, std::move(costs), run.target.devices);
    const Detail detail = run.parts.empty() ? Detail::none : Detail::critical;
    const Evaluation step =
        predict(target, run.target.strategies[0], run.footprint, Folding::folded, detail);
    times.push_back(std::log(step.prediction.step_time.value()));
    for (const FitPartTime& one : run.parts)
      times.push_back(std::log(time_of(one.part, step.parts).value()));
  } catch (const InfeasibleError&) {  // longer than a step may be
    times.assign(1 + run.parts.size(), std::numeric_limits<double>::infinity());
  }
  return times;
}

}  // namespace plimsoll
