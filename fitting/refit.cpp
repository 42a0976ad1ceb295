// The durations of a traced step are collected, compared and fitted.
#include "fitting/refit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/log_statistics.h"
#include "fitting/robust/robust_fit.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

constexpr double kPriorSpread = 0.3, kLeastRefit = 0.1, kMostRefit = 10;
constexpr Seconds kShortest{2e-6};
/// Standard deviation of one op's logarithm: samples count as steady below the first (half of it is
/// their quarter range), and an op that is off by more than the second is another machine's.
constexpr double kLeastRefitScale = 0.05, kMostRefitScale = 0.5;
constexpr int kIterations = 6;
constexpr double kTrusted = 1.1;

/// The kind whose curve an op is predicted by.
OpKind term_of(OpKind kind, const Calibration& calibration) {
  const auto& points = calibration.collectives;
  const bool own = std::any_of(points.begin(), points.end(),
                               [&](const CollectivePoint& point) { return point.kind == kind; });
  return own ? kind : measured_as(kind);
}

/// Whether there is a curve to be corrected.
bool has_curve(OpKind kind, const Calibration& calibration) {
  const auto of_kind = [&](const auto& point) { return point.kind == kind; };
  if (kind == OpKind::matmul) return !calibration.matmuls.empty();
  return std::any_of(calibration.ops.begin(), calibration.ops.end(), of_kind) ||
         std::any_of(calibration.collectives.begin(), calibration.collectives.end(), of_kind);
}

/// An op of a routine: the n-th of its stream there.
using Place = std::tuple<OpKind, std::string, Stream, std::size_t>;
struct Durations {
  std::vector<double> predicted, measured;  // s
};
using ByPlace = std::map<Place, Durations>;

void collect(const Timeline& timeline, std::vector<double> Durations::*side, ByPlace& by_place) {
  using CallOf = std::tuple<std::int64_t, Stream, std::string, std::optional<std::int64_t>,
                            std::optional<std::int64_t>>;
  std::map<CallOf, std::size_t> seen;
  for (const Interval& one : timeline.intervals) {
    if (!one.kind) continue;
    const std::size_t place =
        seen[CallOf{one.rank, one.stream, one.routine, one.layer, one.micro_batch}]++;
    (by_place[Place{*one.kind, one.routine, one.stream, place}].*side)
        .push_back((one.end - one.begin).seconds().value());
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Per step, mean over ranks.
std::map<OpKind, Seconds> time_by_term(const Timeline& timeline, const Calibration& calibration) {
  std::map<OpKind, Seconds> sums;
  const double share = 1.0 / double(std::max<std::size_t>(1, timeline.memory.size()));
  for (const Interval& one : timeline.intervals) {
    if (!one.kind) continue;
    sums[term_of(*one.kind, calibration)] += (one.end - one.begin).seconds() * share;
  }
  return sums;
}

Evaluation predict_plan(const Plan& plan, const CostBasis& basis, const Calibration& calibration) {
  const Target target(plan.job, CostModel(basis.cluster, calibration, plan.framework, basis.fitted),
                      plan.devices);
  return predict(target, plan.strategy, lay_out(target, plan.strategy, Proof::none));
}

/// Curves of one kind, that much longer.
void lengthen(Calibration& calibration, OpKind kind, double times) {
  const auto scale = [&](Sample& sample) {
    sample.median = sample.median * times;
    sample.spread = sample.spread * times;
  };
  if (kind == OpKind::matmul) {
    for (MatmulPoint& point : calibration.matmuls) scale(point.time);
  }
  for (OpPoint& point : calibration.ops) {
    if (point.kind == kind) scale(point.time);
  }
  for (CollectivePoint& point : calibration.collectives) {
    if (point.kind == kind && point.communicator == calibration.communicator) scale(point.time);
  }
}

}  // namespace

Job with_measured_load(Job job, const Measured& measured) {
  const std::optional<double> load = measured_load(measured);
  if (job.experts && load) job.experts->load = *load;
  return job;
}

Refit refit(const Plan& plan, const Measured& measured, const CostBasis& basis) {
  INVARIANT(basis.measured.has_value(), "a refit corrects what was measured");
  const Calibration& calibration = *basis.measured;
  const Seconds planned = predict_plan(plan, basis, calibration).prediction.step_time;
  Plan loaded = plan;
  loaded.job = with_measured_load(plan.job, measured);
  const Evaluation before = predict_plan(loaded, basis, calibration);
  ByPlace by_place;
  collect(before.timeline, &Durations::predicted, by_place);
  collect(measured.timeline, &Durations::measured, by_place);

  LogModel model;
  model.least_scale = kLeastRefitScale;
  model.most_scale = kMostRefitScale;
  std::map<OpKind, std::size_t> number_of;
  std::vector<std::size_t> numbers, places;
  std::vector<double> predicted;
  for (const auto& [place, durations] : by_place) {
    if (durations.predicted.empty() || durations.measured.empty()) continue;
    const OpKind kind = term_of(std::get<OpKind>(place), calibration);
    if (!has_curve(kind, calibration)) continue;
    const auto [number, added] = number_of.try_emplace(kind, model.numbers.size());
    if (added) {
      model.numbers.push_back(
          {std::string(to_text(kind)), 1, kPriorSpread, kLeastRefit, kMostRefit});
      places.push_back(0);
    }
    const double expected = median(durations.predicted), found = median(durations.measured);
    if (expected < kShortest.value() || found <= 0) continue;
    ++places[number->second];
    numbers.push_back(number->second);
    predicted.push_back(std::log(expected));
    model.measured.push_back(std::log(found));
  }
  model.predicted = [&](const std::vector<double>& factors) {
    std::vector<double> all = predicted;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += std::log(factors[numbers[i]]);
    return all;
  };

  Refit result;
  result.calibration = calibration;
  result.before = planned;
  result.job = loaded.job;
  result.measured = measured.median_step_time;
  std::vector<FittedValue> values;
  if (predicted.empty()) {
    for (const FitNumber& number : model.numbers) {
      const double factor = std::exp(kNormal90 * number.spread);
      values.push_back({number.name, 1, 1, 1 / factor, factor, false});
    }
  } else {
    const RobustSolution solution =
        solve_determined(model, std::vector<bool>(predicted.size(), true), model.priors(),
                         {.most_derivations = kIterations});
    values = fitted_values(model, solution, model.numbers.size());
  }
  auto times_predicted = time_by_term(before.timeline, calibration);
  auto times_measured = time_by_term(measured.timeline, calibration);
  std::string moved;
  for (const auto& [kind, number] : number_of) {
    RefitTerm& term = result.terms.emplace_back();
    term.factor = values[number];
    term.places = places[number];
    term.predicted = times_predicted[kind];
    term.measured = times_measured[kind];
    const FittedValue& factor = term.factor;
    term.moved = factor.determined && (factor.low > 1 || factor.high < 1);
    const double open = std::max(factor.high / factor.value, factor.value / factor.low);
    term.trusted = factor.determined && open <= kTrusted && !factor.at_bound();
    if (!factor.determined) continue;
    lengthen(result.calibration, kind, factor.value);
    moved += fmt::format("{}{} x {:.3f}", moved.empty() ? "" : ", ", factor.name, factor.value);
  }
  if (!moved.empty()) {
    result.calibration.versions.push_back(
        fmt::format("refitted by a run of {}: {}", measured.date, moved));
  }
  result.after = predict_plan(loaded, basis, result.calibration).prediction.step_time;
  return result;
}

std::string refit_text(const Refit& refit) {
  const auto error = [&](Seconds time) { return 100 * (time / refit.measured - 1); };
  std::string text = fmt::format(
      "refit: step time predicted {} ({:+.1f} %), with the refitted calibration {} ({:+.1f} %), "
      "measured {}\n",
      to_text(refit.before), error(refit.before), to_text(refit.after), error(refit.after),
      to_text(refit.measured));
  if (refit.job.experts)
    text += fmt::format("  load of experts: {:.3f}\n", refit.job.experts->load);
  text += fmt::format("  {:26}{:>8}{:>11}{:>11}{:>8}  90 %\n", "term", "ops", "predicted",
                      "measured", "factor");
  for (const RefitTerm& term : refit.terms) {
    const FittedValue& factor = term.factor;
    const std::string verdict = !factor.determined
                                    ? "not determined, stays"
                                    : fmt::format("{:.2f} to {:.2f}  {}, {}", factor.low,
                                                  factor.high, term.moved ? "moved" : "as it was",
                                                  factor.at_bound() ? "rests on its bound"
                                                  : term.trusted    ? "trusted"
                                                                    : "uncertain");
    text += fmt::format("  {:26}{:>8}{:>11}{:>11}{:>8.3f}  {}\n", factor.name, term.places,
                        to_text(term.predicted), to_text(term.measured), factor.value, verdict);
  }
  return text;
}

std::string refit_json(const std::string& comparison, const Refit& refit,
                       const std::string& output) {
  Json terms = Json::array();
  for (const RefitTerm& term : refit.terms) {
    const FittedValue& factor = term.factor;
    terms.push_back({{"name", factor.name},
                     {"ops", term.places},
                     {"predicted_s", term.predicted.value()},
                     {"measured_s", term.measured.value()},
                     {"factor", factor.value},
                     {"low", factor.low},
                     {"high", factor.high},
                     {"determined", factor.determined},
                     {"moved", term.moved},
                     {"trusted", term.trusted}});
  }
  Json whole = parse_json(comparison, "comparison");
  whole["refit"] = {{"step_time_s",
                     {{"before", refit.before.value()},
                      {"after", refit.after.value()},
                      {"measured", refit.measured.value()}}},
                    {"output", output.empty() ? Json(nullptr) : Json(output)},
                    {"terms", std::move(terms)}};
  return json_text(whole);
}

}  // namespace plimsoll
