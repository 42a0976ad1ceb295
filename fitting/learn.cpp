// A Gaussian posterior of the numbers of predictions, with an unknown noise.
#include "fitting/learn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/log_statistics.h"
#include "fitting/cross_validate.h"
#include "fitting/learned_memory.h"
#include "predict/step_interval.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

constexpr double kNarrowed = 0.9;        // of a spread: wider is not determined
constexpr double kLeastVariance = 1e-4;  // of a logarithm: nobody predicts better
constexpr double kNegligible = 1e-3;     // of a step: less is as good as nothing

/// Kinds of numbers, by FitPart.
constexpr std::array<std::string_view, std::size_t(FitPart::host) + 1> kPartNames = {
    "products",         "products", "products", "products", "attention", "attention",
    "memory-bound ops", "overlap",  "network",  "host",     "host"};

/// The spread of a known noise, a logarithm: far less than the distance of the noises that are
/// tried.
constexpr double kKnown = 0.1;

/// Parts that leave less than this share of a step out are the whole step: timers are read with an
/// error of a hundredth of the step, which as an error of so small a rest exceeds the noise of
/// steps.
constexpr double kLeastRest = 0.05;

/// Returns the matrix that makes the errors of steps and of their parts independent, each with the
/// noise of a step. Errors add up over a step, so that a part with the share w of it has the noise
/// of a step over the root of w. A step with parts becomes what they leave.
Eigen::MatrixXd independent_rows(const FitModel& model, const LogModel::Values& before) {
  const auto count = Eigen::Index(before.size());
  Eigen::MatrixXd rows = Eigen::MatrixXd::Identity(count, count);
  for (std::size_t i = 0; i < model.runs().size(); ++i) {
    const std::size_t first = model.first_part(i), end = first + model.runs()[i].parts.size();
    double rest = 1;
    for (std::size_t p = first; p < end; ++p) {
      const double share = std::exp(before[p] - before[i]);
      rows(Eigen::Index(p), Eigen::Index(p)) = std::sqrt(share);
      rows(Eigen::Index(i), Eigen::Index(p)) = -share;
      rest -= share;
    }
    rows.row(Eigen::Index(i)) /= std::sqrt(std::max(rest, kLeastRest));
  }
  return rows;
}

Seconds seconds(double logarithm) { return Seconds(std::exp(logarithm)); }

Eigen::VectorXd vector_of(const LogModel::Values& values) {
  return Eigen::Map<const Eigen::VectorXd>(values.data(), Eigen::Index(values.size()));
}

/// Returns the kind of each number, as ErrorPart names it.
std::vector<std::string> kinds_of(const FitModel& model) {
  std::vector<std::string> kinds;
  for (const FitParameter& parameter : model.parameters()) {
    const bool of_level = parameter.part == FitPart::level;
    kinds.push_back(of_level ? model.runs()[0].target.cluster.levels[parameter.level].name
                             : std::string(kPartNames[std::size_t(parameter.part)]));
  }
  kinds.resize(kinds.size() + model.shapes().size(), "layers of this shape");
  return kinds;
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

/// Sets the errors of runs that the others predict, if there are others, and the noise.
void set_errors(const LearnModel& model, const std::vector<bool>& use,
                const std::vector<LearnedRun>& runs, FittedCalibration& fitted) {
  std::vector<double> errors;
  double variance = 0;
  for (const LearnedRun& run : runs) {
    if (run.contradicts || !run.left_out) continue;
    errors.push_back(std::abs(std::exp(-run.left_out->error) - 1));
    variance += run.left_out->deviation * run.left_out->deviation;
  }
  const auto count = double(errors.size());
  const double deviation =
      errors.empty() ? model.differences(use)[0].deviation : std::sqrt(variance / count);
  fitted.within_node = fitted.across_nodes = {deviation, kNormal90};
  if (errors.empty()) return;
  std::ranges::sort(errors);
  fitted.cross_validated_mean = std::reduce(errors.begin(), errors.end()) / count;
  fitted.cross_validated_p90 = errors[std::size_t(0.9 * double(errors.size() - 1) + 0.5)];
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
  const auto size = [](const LearnModel::Difference& one) {
    return std::abs(one.error) / one.deviation;
  };
  const std::vector<bool> use = plimsoll::trusted_runs(
      std::vector<bool>(runs.size(), true), [&](const std::vector<bool>& others, std::size_t i) {
        return size(model.differences(others)[i]);
      });
  const auto before = model.differences(std::vector<bool>(runs.size(), false));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<bool> others = use;
    others[i] = false;
    runs[i].contradicts = !use[i];
    if (runs.size() > 1) runs[i].left_out = model.differences(others)[i];
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
  independent_ = independent_rows(model_, before_);
  errors_ = vector_of(log_model_.measured) - vector_of(before_);
  derivatives_ = log_model_.derivatives(log_model_.priors(), before_);
  SourceSpreads spreads = source_spreads();
  // Published runs differ in more than the runs of one machine whose costs were measured.
  if (model_.parameters().empty()) spreads.noise = repeated_deviation();
  set_spreads(std::move(spreads));
}

void LearnModel::set_spreads(SourceSpreads spreads) {
  spreads_ = std::move(spreads);
  const Eigen::Index count = scaled_numbers();
  log_model_.precision = with_spreads(model_.parameters(), *log_model_.precision, spreads_);
  const double scale = before_.empty() ? 1 : scale_of_prior();
  log_model_.precision->topLeftCorner(count, count) /= scale * scale;
  for (std::size_t p = 0; p < model_.parameters().size(); ++p)
    log_model_.numbers[p].spread = scale * spreads_.of(model_.parameters()[p]);
}

/// Returns how many numbers, from the first on, have priors that the intervals before scale.
/// Factors of layers are among them if all costs were measured, as there are no parameters then.
Eigen::Index LearnModel::scaled_numbers() const {
  const auto parameters = Eigen::Index(model_.parameters().size());
  return parameters > 0 ? parameters : Eigen::Index(log_model_.numbers.size());
}

/// Returns the factor on spreads with which runs have the intervals that they had, in the mean of
/// logarithms.
double LearnModel::scale_of_prior() const {
  const Eigen::Index count = scaled_numbers();
  const Eigen::MatrixXd covariance = log_model_.precision->topLeftCorner(count, count)
                                         .ldlt()
                                         .solve(Eigen::MatrixXd::Identity(count, count));
  double sum = 0;
  for (std::size_t i = 0; i < model_.runs().size(); ++i) {
    const Eigen::VectorXd by = derivatives_.row(Eigen::Index(i)).head(count);
    const double half = model_.runs()[i].half_width / kNormal90;
    const double wanted = std::max(half * half - spreads_.noise * spreads_.noise, kLeastVariance);
    sum += std::log(wanted / std::max(by.dot(covariance * by), kLeastVariance)) / 2;
  }
  return std::exp(sum / double(model_.runs().size()));
}

std::vector<bool> LearnModel::measurements_of(const std::vector<bool>& use) const {
  std::vector<bool> all(before_.size());
  for (std::size_t i = 0; i < use.size(); ++i) {
    all[i] = use[i];
    for (std::size_t p = 0; p < model_.runs()[i].parts.size(); ++p)
      all[model_.first_part(i) + p] = use[i];
  }
  return all;
}

/// Returns the posterior of the runs in use. The noise follows from steps alone, since the parts of
/// a run share the error of its layout.
Posterior LearnModel::posterior_of(const std::vector<bool>& use, const Eigen::MatrixXd& derivatives,
                                   const Eigen::VectorXd& errors) const {
  const std::vector<bool> measured = measurements_of(use);
  std::vector<Eigen::Index> rows, steps;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (!measured[i]) continue;
    rows.push_back(Eigen::Index(i));
    if (i < use.size()) steps.push_back(Eigen::Index(i));
  }
  Posterior alone =
      posterior(*log_model_.precision, derivatives(steps, Eigen::all), errors(steps), spreads_);
  if (rows.size() == steps.size()) return alone;
  SourceSpreads known = spreads_;
  known.noise = alone.noise;
  known.noise_spread = kKnown;
  const Eigen::MatrixXd by = (independent_ * derivatives)(rows, Eigen::all);
  const Eigen::VectorXd off = (independent_ * errors)(rows);
  Posterior found = posterior(*log_model_.precision, by, off, known);
  found.noise = alone.noise;
  return found;
}

SourceErrors LearnModel::errors() const {
  return {model_.parameters(), *log_model_.precision, derivatives_, errors_};
}

std::vector<LearnModel::Difference> LearnModel::differences(const std::vector<bool>& use) const {
  const Posterior found = posterior_of(use, derivatives_, errors_);
  std::vector<Difference> all;
  for (Eigen::Index i = 0; i < Eigen::Index(use.size()); ++i) {
    const Eigen::VectorXd by = derivatives_.row(i);
    all.push_back({errors_[i] - by.dot(found.moved),
                   std::sqrt(by.dot(found.covariance * by) + found.noise * found.noise)});
  }
  return all;
}

std::vector<std::vector<ErrorPart>> LearnModel::error_parts(const LearnedNumbers& numbers) const {
  const Eigen::VectorXd moved = moved_of(log_model_, numbers.values);
  std::map<std::string, std::vector<Eigen::Index>> kinds;
  Eigen::Index count = 0;
  for (const std::string& kind : kinds_of(model_)) kinds[kind].push_back(count++);
  std::vector<std::vector<ErrorPart>> all;
  for (Eigen::Index i = 0; i < Eigen::Index(model_.runs().size()); ++i) {
    std::vector<ErrorPart>& parts = all.emplace_back();
    for (const auto& [name, columns] : kinds) {
      const Eigen::VectorXd by = derivatives_.row(i)(columns);
      const double share = by.cwiseAbs().sum();
      ErrorPart part{name, by.dot(moved(columns)),
                     std::sqrt(by.dot(numbers.covariance(columns, columns) * by))};
      if (const double alone = 1 + std::expm1(errors_[i]) / share; share > kNegligible && alone > 0)
        part.alone = alone;
      parts.push_back(std::move(part));
    }
    std::ranges::stable_sort(parts, std::greater(),
                             [](const ErrorPart& part) { return std::abs(part.change); });
  }
  return all;
}

LearnedNumbers LearnModel::learn(const std::vector<bool>& use, const SearchLimits& limits) const {
  const LogModel simulated = model_.log_model(use);
  LogModel robust = log_model_;
  const auto independent = [&](const LogModel::Values& values) {
    const Eigen::VectorXd rows = independent_ * vector_of(values);
    return LogModel::Values(rows.begin(), rows.end());
  };
  robust.measured = independent(log_model_.measured);
  robust.predicted = [&](const LogModel::Values& values) {
    return independent(simulated.predicted(values));
  };
  robust.derivatives = [&](const LogModel::Values& values, const LogModel::Values& here) {
    const Eigen::VectorXd times = independent_.lu().solve(vector_of(here));
    return Eigen::MatrixXd(independent_ *
                           simulated.derivatives(values, {times.begin(), times.end()}));
  };
  robust.least_scale = robust.most_scale = posterior_of(use, derivatives_, errors_).noise;
  const std::vector<bool> fixed(robust.numbers.size(), false);
  const Eigen::MatrixXd known = independent_ * derivatives_;
  SearchLimits from_known = limits;
  from_known.known = &known;
  const RobustSolution solution =
      solve(robust, measurements_of(use), fixed, robust.priors(), from_known);
  const Eigen::MatrixXd derivatives = independent_.lu().solve(solution.derivatives);
  const Eigen::VectorXd there = vector_of(log_model_.measured) -
                                vector_of(simulated.predicted(solution.values)) +
                                derivatives * moved_of(robust, solution.values);
  const Posterior found = posterior_of(use, derivatives, there);
  return {solution.values, found.covariance, solution.alone, found.noise};
}

Learned learn(std::vector<FitRun> own, const std::optional<FittedCalibration>& basis) {
  const LearnModel model(std::move(own));
  Learned learned;
  const std::vector<FitRun>& runs = model.model().runs();
  for (std::size_t i = 0; i < runs.size(); ++i)
    learned.runs.push_back(
        {seconds(model.log_model().measured[i]), seconds(model.before()[i]), {}});
  const std::vector<bool> use = trusted_runs(model, learned.runs);
  const LearnedNumbers numbers = model.learn(use, {.most_derivations = 3});
  const LogModel::Values after = model.log_model().predicted(numbers.values);
  std::vector<std::vector<ErrorPart>> error_parts = model.error_parts(numbers);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    learned.runs[i].after = seconds(after[i]);
    learned.runs[i].error_parts = std::move(error_parts[i]);
    for (std::size_t p = 0; p < runs[i].parts.size(); ++p) {
      const FitPartTime& part = runs[i].parts[p];
      const std::size_t at = model.model().first_part(i) + p;
      learned.runs[i].parts.push_back(
          {part.part, seconds(part.measured), seconds(model.before()[at]), seconds(after[at])});
    }
  }

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
  set_errors(model, use, learned.runs, fitted);
  std::vector<std::vector<LoggedPeak>> peaks;
  for (const FitRun& run : runs) peaks.push_back(run.peaks);
  if (const auto memory = learn_memory(peaks)) {
    fitted.learned->memory = memory->memory;
    for (std::size_t i = 0; i < runs.size(); ++i)
      learned.runs[i].peak_contradicts = memory->contradicts[i];
  }
  return learned;
}

}  // namespace plimsoll
