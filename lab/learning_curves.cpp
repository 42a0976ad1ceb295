// Runs of published sources are learned from as if they were one's own.
#include "lab/learning_curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>

#include "base/log_statistics.h"
#include "base/parallel.h"
#include "fitting/learn.h"
#include "predict/target.h"
#include "predict/tried_layouts.h"
#include "published/published_target.h"

namespace plimsoll {
namespace {

/// Draws are many: steps go on with the derivatives at the beginning.
constexpr SearchLimits kLimits{.most_derivations = 1, .most_steps = 6};

using GroupNames = std::tuple<std::string, std::string, std::string>;

/// The places of the runs of each group, evenly spread and at most `most_runs`.
std::map<GroupNames, std::vector<std::size_t>> groups_of(std::span<const PublishedRun> runs,
                                                         const LearningRequest& request) {
  std::vector<std::optional<GroupNames>> names(runs.size());
  for_each_index(runs.size(), 0, [&](std::size_t i) {
    if (!runs[i].has_step_time()) return;
    const PublishedTarget target = published_target(runs[i], request.calibration);
    if (target.missing.empty())
      names[i] = {document_of(runs[i].source), target.cluster.name,
                  calibrated_as(target.framework)};
  });
  std::map<GroupNames, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (names[i]) groups[*names[i]].push_back(i);
  }
  for (auto& [name, places] : groups) {
    const std::vector<std::size_t> all = std::exchange(places, {});
    const std::size_t most = std::min(all.size(), request.most_runs);
    for (std::size_t i = 0; i < most; ++i) places.push_back(all[i * all.size() / most]);
  }
  return groups;
}

/// A model of the runs that can be predicted; null if there are none.
std::unique_ptr<LearnModel> model_of(std::span<const PublishedRun> runs,
                                     const std::vector<std::size_t>& places,
                                     const LearningRequest& request) {
  std::vector<std::optional<FitRun>> laid_out(places.size());
  for_each_index(places.size(), 0, [&](std::size_t i) {
    const PublishedRun& run = runs[places[i]];
    laid_out[i] = fit_run(published_target(run, request.calibration), *run.step_time);
  });
  std::vector<FitRun> usable;
  for (std::optional<FitRun>& run : laid_out) {
    if (run) usable.push_back(std::move(*run));
  }
  return usable.empty() ? nullptr : std::make_unique<LearnModel>(std::move(usable));
}

/// The standard library's distributions differ between machines; this shuffle does not.
std::vector<std::size_t> drawn(std::mt19937_64& random, std::size_t count, std::size_t of) {
  std::vector<std::size_t> order(of);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(order[i], order[i + random() % (of - i)]);
  order.resize(count);
  return order;
}

/// The runs of each job that has kLeastLayouts or more.
using Choices = std::vector<std::vector<std::size_t>>;

Choices choices_of(const LearnModel& model) {
  std::map<std::string, std::vector<std::size_t>> jobs;
  const std::vector<FitRun>& runs = model.model().runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const PublishedTarget& target = runs[i].target;
    jobs[digest_of(target.job, target.devices, target.cluster, target.framework)].push_back(i);
  }
  Choices choices;
  for (auto& [job, of_job] : jobs)
    if (of_job.size() >= kLeastLayouts) choices.push_back(std::move(of_job));
  return choices;
}

/// `predicted` and `measured` are logarithms of steps.
double regret_of(const Choices& choices, const LogModel::Values& predicted,
                 const LogModel::Values& measured) {
  double sum = 0;
  for (const std::vector<std::size_t>& runs : choices) {
    const auto least = [&](const LogModel::Values& steps) {
      return *std::ranges::min_element(runs, {}, [&](std::size_t i) { return steps[i]; });
    };
    sum += std::expm1(measured[least(predicted)] - measured[least(measured)]);
  }
  return sum / double(choices.size());
}

/// Adds the errors of the runs that are not in use, and the regret.
void add_errors(const LearnModel& model, const std::vector<bool>& use, const Choices& choices,
                LearningPoint& point) {
  std::vector<bool> rest;
  for (const bool used : use) rest.push_back(!used);
  const bool learns = std::ranges::count(use, true) > 0;
  const LogModel::Values after =
      learns ? model.log_model().predicted(model.learn(use, kLimits).values) : model.before();
  const std::vector<LearnModel::Difference> differences = model.differences(use);
  double error = 0, width = 0, held = 0;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (!rest[i]) continue;
    const double off = after[i] - model.log_model().measured[i];
    // No wider than before, as learned_interval() has it.
    const double half =
        std::min(kNormal90 * differences[i].deviation, model.model().runs()[i].half_width);
    error += std::abs(std::expm1(off));
    width += std::expm1(half);
    held += std::abs(off) <= half ? 1 : 0;
  }
  if (!choices.empty())
    point.regret = point.regret.value_or(0) + regret_of(choices, after, model.log_model().measured);
  const auto count = double(std::ranges::count(rest, true));
  point.error += error / count;
  point.half_width += width / count;
  point.held += held / count;
}

LearningPoint point_of(const LearnModel& model, std::int64_t learned, std::int64_t draws) {
  const std::size_t runs = model.model().runs().size();
  std::mt19937_64 random(std::uint64_t(learned) + 1);
  LearningPoint point{learned};
  const Choices choices = choices_of(model);
  if (learned == 0) draws = 1;
  for (std::int64_t draw = 0; draw < draws; ++draw) {
    std::vector<bool> use(runs, false);
    for (const std::size_t i : drawn(random, std::size_t(learned), runs)) use[i] = true;
    add_errors(model, use, choices, point);
  }
  for (double* sum : {&point.error, &point.half_width, &point.held}) *sum /= double(draws);
  if (point.regret) *point.regret /= double(draws);
  return point;
}

constexpr int kRounds = 40;
constexpr double kLeastNoiseSpread = 0.3;  // of a few sources
constexpr double kMostSpread = 1.6;        // a factor of five: a wider prior changes nothing
/// A source that is farther off than kOdd spreads counts as if it were that far off.
constexpr double kOdd = 2.5;

/// Sums over sources.
struct Sums {
  std::map<std::string, std::pair<double, double>, std::less<>> squares;  ///< and their number
  double log_noise = 0, log_noise_squares = 0, sources = 0;
};

void add(const SourceErrors& source, const SourceSpreads& spreads, Sums& sums) {
  const Posterior found = posterior(with_spreads(source.parameters, source.precision, spreads),
                                    source.derivatives, source.errors, spreads);
  for (std::size_t p = 0; p < source.parameters.size(); ++p) {
    const auto at = Eigen::Index(p);
    if (source.derivatives.col(at).cwiseAbs().maxCoeff() < 1e-6) continue;  // no run depends on it
    auto& [square, count] = sums.squares[spread_name(source.parameters[p])];
    const double odd = kOdd * spreads.of(source.parameters[p]);
    square += std::min(found.moved[at] * found.moved[at] + found.covariance(at, at), odd * odd);
    count += 1;
  }
  sums.log_noise += found.log_noise;
  sums.log_noise_squares +=
      found.log_noise * found.log_noise + found.log_noise_spread * found.log_noise_spread;
  sums.sources += 1;
}

}  // namespace

SourceSpreads most_likely_spreads(std::span<const SourceErrors> sources) {
  SourceSpreads spreads{0.05, 0.7, {}};  // where rounds begin
  std::map<std::string, double, std::less<>> own;
  for (const SourceErrors& source : sources) {
    for (const FitParameter& one : source.parameters) own[spread_name(one)] = one.spread;
  }
  for (int round = 0; round < kRounds && !sources.empty(); ++round) {
    Sums sums;
    for (const SourceErrors& source : sources) add(source, spreads, sums);
    for (const auto& [name, spread] : own) {
      const auto [square, count] = sums.squares[name];
      const double variance = (square + kPriorSources * spread * spread) / (count + kPriorSources);
      spreads.values[name] = std::min(std::sqrt(variance), kMostSpread);
    }
    const double mean = sums.log_noise / sums.sources;
    spreads.noise = std::exp(mean);
    const double variance = sums.log_noise_squares / sums.sources - mean * mean;
    spreads.noise_spread = std::sqrt(std::max(variance, kLeastNoiseSpread * kLeastNoiseSpread));
  }
  return spreads;
}

Learning learning_curves(std::span<const PublishedRun> runs, const LearningRequest& request) {
  const auto groups = groups_of(runs, request);
  Learning learning;
  std::vector<SourceErrors> sources;  // the models themselves would fill the memory
  std::vector<const std::vector<std::size_t>*> places;
  for (const auto& [names, of_group] : groups) {
    const auto model = model_of(runs, of_group, request);
    if (!model) continue;
    sources.push_back(model->errors());
    places.push_back(&of_group);
    LearningGroup& group = learning.groups.emplace_back();
    std::tie(group.document, group.cluster, group.framework) = names;
    group.runs = model->model().runs().size();
  }
  learning.spreads = most_likely_spreads(sources);
  for (std::size_t g = 0; g < sources.size(); ++g) {
    LearningGroup& group = learning.groups[g];
    if (group.runs <= kLeastLeftOut) continue;
    std::vector<SourceErrors> others;
    for (std::size_t other = 0; other < sources.size(); ++other) {
      if (learning.groups[other].document != group.document) others.push_back(sources[other]);
    }
    const auto model = model_of(runs, *places[g], request);
    if (!others.empty()) model->set_spreads(most_likely_spreads(others));
    for (const std::int64_t count : request.counts) {
      if (std::size_t(count) + kLeastLeftOut <= group.runs)
        group.points.push_back(point_of(*model, count, request.draws));
    }
  }
  return learning;
}

Json learning_json(const Learning& learning) {
  Json list = Json::array();
  for (const LearningGroup& group : learning.groups) {
    Json points = Json::array();
    for (const LearningPoint& point : group.points)
      points.push_back({{"learned", point.learned},
                        {"error", point.error},
                        {"half_width", point.half_width},
                        {"held", point.held},
                        {"regret", point.regret ? Json(*point.regret) : Json(nullptr)}});
    list.push_back({{"document", group.document},
                    {"cluster", group.cluster},
                    {"framework", group.framework},
                    {"runs", group.runs},
                    {"points", std::move(points)}});
  }
  return {{"groups", std::move(list)},
          {"spreads",
           {{"noise", learning.spreads.noise},
            {"noise_spread", learning.spreads.noise_spread},
            {"values", learning.spreads.values}}}};
}

}  // namespace plimsoll
