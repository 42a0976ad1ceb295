// Step interval: the 90 % interval of a predicted step time, by what the prediction rests on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "models/calibration/fitted_calibration.h"
#include "predict/target.h"

namespace plimsoll {

/// The kind of numbers that a predicted step time rests on.
enum class TimeBasis : std::uint8_t {
  kernels,       ///< rates of kernels and collectives alone: the cluster's own, or measured
  typical,       ///< rates typical of training (predict/default_efficiency.h)
  fit,           ///< runs of other models on the device with the framework
  fit_of_model,  ///< such runs of a model that is about as large and has experts or none alike
};
inline constexpr std::size_t kTimeBases = 4;
std::string_view to_text(TimeBasis basis);
TimeBasis basis_of(const std::optional<FittedCalibration>& fitted, const ModelSize& size);

/// Models are about as large if layers x hidden^2 is within this factor. Other
/// people's runs of models without experts spread, by moments, by 0.24 at equal sizes and by 0.25
/// within this factor (10 documents). Within a factor of 1.5 they spread by 0.30 (12 documents),
/// and beyond 1.3 by 0.39 (13 documents). lab/spreads printed this with other factors.
inline constexpr double kAboutAsLarge = 1.3;

/// A 90 % interval, with its ends as multiples of the predicted step time.
struct StepInterval {
  double low = 1, high = 1;
  /// Returns the half width as a logarithm.
  double logarithm() const;
  /// Returns the relative half width of the interval around 1 whose ends have the same ratio.
  double half_width() const;
  bool holds(double measured_over_predicted) const {
    return low <= measured_over_predicted && measured_over_predicted <= high;
  }
};

/// A TimeCause makes a step time more open than its basis does. Its value is a share of the step,
/// or 0 or 1. Its half width times its value is added in quadrature.
enum class TimeCause : std::uint8_t {
  experts,               ///< whether the model has experts
  unfamiliar_framework,  ///< whether typical rates rest on no fit of the framework
  unfamiliar_device,     ///< whether they rest on no fit of the device
  communication,         ///< share of exposed communication
  bubble,                ///< share of the bubble
  dispatch,              ///< share of the host's time
};
inline constexpr std::size_t kTimeCauses = 6;
using TimeCauses = std::array<double, kTimeCauses>;  ///< a number for each TimeCause
std::string_view to_text(TimeCause cause);

/// A StepOpen lists what leaves a step time open if its basis contains no run of the same people,
/// program or network.
struct StepOpen {
  TimeBasis basis = TimeBasis::kernels;
  double own = 0;  ///< what the basis leaves open in addition to its spread; a logarithm
  TimeCauses causes{};
};

/// Returns the interval of a half width that is a logarithm: from 1 / exp to exp.
StepInterval around(double logarithm);

/// The spread of natural logarithms of measured over predicted step times. lab/spreads found it
/// by predicting published runs. Runs of a document (document_of) were predicted with calibrations
/// that had seen none of them, and each document counts as much as any other.
struct SourceSpread {
  double centre = 0;      ///< 0 except for TimeBasis::kernels, which predicts too fast
  double half_width = 0;  ///< of the 90 % interval; for fits beside the fit's own interval
  double mean_error = 0;  ///< |predicted / measured - 1|, mean over documents
  std::int64_t documents = 0, runs = 0;
};
/// The spread of the ratio of two step times: half widths of the 90 % interval of its logarithm.
/// lab/spreads found it from pairs of published runs of one source, model, cluster and
/// framework.
struct DifferenceSpread {
  double any = 0;           ///< between any two runs
  double other_shapes = 0;  ///< added by layers of other shapes
  double of_shares = 0;     ///< added by shares of the step that are 1 apart
  std::int64_t documents = 0, pairs = 0;
};

/// Return the numbers of models/presets/spreads/step-time.json.
const SourceSpread& source_spread(TimeBasis basis);
const TimeCauses& cause_spreads();  ///< half widths at the value 1
const DifferenceSpread& difference_spread(TimeBasis basis);
/// Returns the standard deviation of the logarithm of a step if the same program runs again: of
/// published runs that have one prediction, the median over documents.
double repeated_deviation();

/// The error of a step whose ops were measured one by one, beside the errors of these ops, as a
/// logarithm. It stands for caches that the op before left, and for the machine some minutes later.
/// For CPU cores one run of lab/own-accuracy chose it: ops left 4 % open, and nine of ten of 30
/// strategies were within 6.6 % (docs/results/kernels.md). For GPUs nothing was measured.
inline constexpr double kBesideOps = 0.055;

/// Returns the interval for people, a program and a network that the basis has no run of. Every run
/// of a user is such a run.
StepInterval unseen_source(const StepOpen& open);

/// The shares of a step that rest on measurements of the machine itself.
struct MeasuredParts {
  double kernels = 0;              ///< share of the step
  double communications = 0;       ///< share of the step that is exposed and measured
  double communications_open = 0;  ///< relative half width of their 90 % interval
};

/// Returns the interval of a step whose measured parts are `parts` and whose other parts have the
/// interval `rest`. Kernels were measured alone, and training runs take longer by the spread of
/// TimeBasis::kernels. That error and the error of the rest add up, since both are of a program
/// that nobody has seen. Measured communications have the error of their timings only, which adds
/// as squares.
StepInterval with_measured(const StepInterval& rest, const MeasuredParts& parts);

/// Returns the half width, a logarithm, that the fit of these costs leaves open of steps of this
/// job: what runs needed that were left out of it by layout and by model size. It is wider where
/// the network is another (predict/fit_transfer.h). Returns nothing unless the fit has runs of a
/// model of this size by the same people.
std::optional<double> own_half_width(const CostModel& costs, const Job& job,
                                     const LayerShape& shape, std::int64_t devices);

/// A step that an interval is for.
struct TimedStep {
  LayerShape shape;
  std::int64_t devices = 0;
  Seconds time;
  Breakdown breakdown;  ///< all 0: shares are not known, and causes that are shares add nothing
};

/// Returns what leaves a step open. `open` is what datasheet rates leave open, relative.
StepOpen step_open(const CostModel& costs, const Job& job, const TimedStep& step, double open);

/// Returns the interval of a step of which no part was measured on the machine itself.
StepInterval training_interval(const CostModel& costs, const Job& job, const TimedStep& step,
                               double open);

/// Returns the interval of a step. `open` is what the costs of its ops leave open, relative. There
/// is one rule for all commands:
///
///   - ops of CPU cores that were measured leave `open`, and kBesideOps;
///   - a fit of the same people's runs of a model of this size leaves own_half_width();
///   - all else leaves the spread of documents that the basis had not seen, and what the causes of
///     the step add to it (unseen_source()).
///
/// Parts that were measured on the machine itself are joined by with_measured().
StepInterval step_interval(const CostModel& costs, const Job& job, const TimedStep& step,
                           double open, const MeasuredParts& measured);

}  // namespace plimsoll
