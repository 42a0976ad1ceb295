// Reads the spreads that lab/spreads found and makes intervals of them.
#include "predict/step_interval.h"

#include <algorithm>
#include <cmath>

#include "models/presets/known_json.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kTimeBases> kBases = {"kernels", "typical", "fit",
                                                             "fit_of_model"};

constexpr std::array<std::string_view, kTimeCauses> kCauses = {
    "experts", "unfamiliar_framework", "unfamiliar_device", "communication", "bubble", "dispatch"};

/// The spreads by basis, and what causes add to them.
struct Spreads {
  std::array<SourceSpread, kTimeBases> steps;
  TimeCauses causes;
  std::array<DifferenceSpread, kTimeBases> differences;
  double repeated = 0;
};

SourceSpread source_spread_from(JsonObject object) {
  SourceSpread spread;
  spread.centre = object.number("centre", -1, 1);
  spread.half_width = object.number("half_width", 0, 2);
  spread.mean_error = object.number("mean_error", 0, 10);
  spread.documents = object.integer("documents", 1, 1 << 20);
  spread.runs = object.integer("runs", 1, 1 << 20);
  object.finish();
  return spread;
}

DifferenceSpread difference_spread_from(JsonObject object) {
  DifferenceSpread spread;
  spread.any = object.number("any", 0, 2);
  spread.other_shapes = object.number("other_shapes", 0, 2);
  spread.of_shares = object.number("shares", 0, 10);
  spread.documents = object.integer("documents", 1, 1 << 20);
  spread.pairs = object.integer("pairs", 1, 1 << 20);
  object.finish();
  return spread;
}

Spreads read_spreads() {
  const Json json = known_json(spread_presets(), "step-time");
  JsonObject object(json, "step-time.json");
  JsonObject steps = object.object("step_time"), differences = object.object("difference");
  JsonObject causes = object.object("causes");
  Spreads spreads;
  spreads.repeated = object.number("repeated", 0, 1);
  for (std::size_t i = 0; i < kTimeCauses; ++i)
    spreads.causes[i] = causes.number(kCauses[i], 0, 10);
  for (std::size_t i = 0; i < kTimeBases; ++i) {
    spreads.steps[i] = source_spread_from(steps.object(kBases[i]));
    spreads.differences[i] = difference_spread_from(differences.object(kBases[i]));
  }
  return spreads;
}

const Spreads& spreads() {
  static const Spreads read = read_spreads();
  return read;
}

}  // namespace

std::string_view to_text(TimeCause cause) { return kCauses[std::size_t(cause)]; }

std::string_view to_text(TimeBasis basis) { return kBases[std::size_t(basis)]; }

TimeBasis basis_of(const std::optional<FittedCalibration>& fitted, const ModelSize& size) {
  if (!fitted) return TimeBasis::kernels;
  if (fitted->runs == 0) return TimeBasis::typical;
  const auto parameters = [](const ModelSize& one) {
    return double(one.layers) * double(one.hidden) * double(one.hidden);
  };
  const bool seen = std::ranges::any_of(fitted->sizes, [&](const ModelSize& one) {
    const double apart = std::abs(std::log(parameters(one) / parameters(size)));
    return (one.experts > 0) == (size.experts > 0) && apart <= std::log(kAboutAsLarge);
  });
  return seen ? TimeBasis::fit_of_model : TimeBasis::fit;
}

double StepInterval::logarithm() const { return std::log(high / low) / 2; }

double StepInterval::half_width() const { return std::sqrt(high / low) - 1; }

StepInterval around(double logarithm) { return {std::exp(-logarithm), std::exp(logarithm)}; }

const SourceSpread& source_spread(TimeBasis basis) { return spreads().steps[std::size_t(basis)]; }

const TimeCauses& cause_spreads() { return spreads().causes; }

const DifferenceSpread& difference_spread(TimeBasis basis) {
  return spreads().differences[std::size_t(basis)];
}

double repeated_deviation() { return spreads().repeated; }

StepInterval unseen_source(const StepOpen& open) {
  const SourceSpread& spread = source_spread(open.basis);
  double square = spread.half_width * spread.half_width + open.own * open.own;
  for (std::size_t i = 0; i < kTimeCauses; ++i) {
    const double added = cause_spreads()[i] * open.causes[i];
    square += added * added;
  }
  const double half = std::sqrt(square);
  return {std::exp(spread.centre - half), std::exp(spread.centre + half)};
}

std::optional<double> own_half_width(const CostModel& costs, const Job& job,
                                     const LayerShape& shape, std::int64_t devices) {
  const auto& fitted = costs.fitted();
  if (!fitted || !fitted->of_same_people || !has_runs_of(*fitted, model_size(job)))
    return std::nullopt;
  const bool across_nodes = devices > costs.cluster().devices_per_node;
  return std::log1p(interval90_half_width(*fitted, shape, across_nodes));
}

StepInterval with_measured(const StepInterval& rest, const MeasuredParts& parts) {
  if (parts.kernels == 0 && parts.communications == 0) return rest;
  const double others = 1 - parts.kernels - parts.communications;
  const SourceSpread& alone = source_spread(TimeBasis::kernels);
  const double centre = others * std::log(rest.low * rest.high) / 2 + parts.kernels * alone.centre;
  const double program =
      others * std::log(rest.high / rest.low) / 2 + parts.kernels * alone.half_width;
  const double network = parts.communications * std::log1p(parts.communications_open);
  const double half = std::hypot(program, network);
  return {std::exp(centre - half), std::exp(centre + half)};
}

// If the cluster states an efficiency, errors of published runs include the error of its numbers.
// If it has datasheet rates alone, that error is added. The interval of typical rates includes the
// spread of unseen sources (typical_calibration()), which unseen_source() adds: it is taken out
// here, and the error of an efficiency that the cluster does not state remains. The spread of fits
// was measured in addition to each fit's own interval, so that a wider fit of another network adds
// to it once.
StepOpen step_open(const CostModel& costs, const Job& job, const TimedStep& step, double open) {
  const auto& fitted = costs.fitted();
  StepOpen result;
  result.basis = basis_of(fitted, model_size(job));
  if (fitted) {
    const bool across_nodes = step.devices > costs.cluster().devices_per_node;
    const double own = std::log1p(interval90_half_width(*fitted, step.shape, across_nodes));
    const bool typical = result.basis == TimeBasis::typical;
    const double included = typical ? source_spread(TimeBasis::typical).half_width : 0;
    result.own = std::sqrt(std::max(0.0, own * own - included * included));
  } else if (!costs.cluster().efficiency) {
    result.own = std::log1p(open);
  }
  const auto share = [&](Seconds part) { return step.time > Seconds(0) ? part / step.time : 0.0; };
  const Breakdown& parts = step.breakdown;
  result.causes = {job.experts ? 1.0 : 0.0,
                   fitted && fitted->unfamiliar_framework ? 1.0 : 0.0,
                   fitted && fitted->unfamiliar_device ? 1.0 : 0.0,
                   share(parts.exposed_communication),
                   share(parts.bubble),
                   share(parts.dispatch)};
  return result;
}

StepInterval training_interval(const CostModel& costs, const Job& job, const TimedStep& step,
                               double open) {
  if (const auto own = own_half_width(costs, job, step.shape, step.devices)) return around(*own);
  return unseen_source(step_open(costs, job, step, open));
}

StepInterval step_interval(const CostModel& costs, const Job& job, const TimedStep& step,
                           double open, const MeasuredParts& measured) {
  if (costs.host_executes())
    return around(std::log1p(std::hypot(open, costs.dispatch_is_measured() ? kBesideOps : 0)));
  return with_measured(training_interval(costs, job, step, open), measured);
}

}  // namespace plimsoll
