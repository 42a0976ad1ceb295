// Step interval: between which times nine in ten steps lie, by what their prediction rests on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// The basis of predicted step times.
enum class TimeBasis : std::uint8_t {
  kernels,  ///< what kernels and collectives reach alone: a cluster's own numbers, or measured ones
  typical,  ///< rates typical of training (predict/typical_calibration.h)
  fit,      ///< published runs of the device and the framework
};
inline constexpr std::size_t kTimeBases = 3;
std::string_view to_text(TimeBasis basis);
TimeBasis basis_of(const std::optional<FittedCalibration>& fitted);

/// A 90 % interval: its ends as multiples of the predicted step time.
struct StepInterval {
  double low = 1, high = 1;
  /// Relative half width of an interval with as many times between its ends around 1.
  double half_width() const;
  bool holds(double measured_over_predicted) const {
    return low <= measured_over_predicted && measured_over_predicted <= high;
  }
};

/// Half width as a logarithm: from 1 / exp to exp.
StepInterval around(double logarithm);

/// The spread that scripts/spreads found by predicting published runs, all runs of a document
/// (document_of) with calibrations that had seen none of them, each document counting as much as
/// any other. All of natural logarithms of measured over predicted step times.
struct SourceSpread {
  double centre = 0;      ///< 0 but for TimeBasis::kernels, which are predicted too fast
  double half_width = 0;  ///< of the 90 % interval; of fits beside what the fit itself leaves open
  double mean_error = 0;  ///< of |predicted / measured - 1|, mean over documents
  std::int64_t documents = 0, runs = 0;
};
/// The spread that scripts/spreads found for pairs of published runs of one source, model, cluster
/// and framework: half widths of the 90 % interval of the logarithm of the ratio of their step
/// times.
struct DifferenceSpread {
  double any = 0;           ///< of any two runs
  double other_shapes = 0;  ///< beside: of layers of other shapes
  double of_shares = 0;     ///< beside: of shares of the step that are 1 apart
  std::int64_t documents = 0, pairs = 0;
};

/// models/presets/spreads/step-time.json.
const SourceSpread& source_spread(TimeBasis basis);
const DifferenceSpread& difference_spread(TimeBasis basis);

/// Part of the 90 % interval of a step whose ops were measured one by one: how far the step is off
/// beside them (caches that the op before left, the machine a few minutes later), as a logarithm.
/// For CPU cores it was chosen by one run of scripts/own-accuracy: ops left 4 % open, nine of ten
/// of 30 strategies were within 6.6 % (docs/results/own-runs.md); of GPUs nothing was measured.
inline constexpr double kBesideOps = 0.055;

/// The interval for people, a program and a network of which the basis saw no run. Every run of a
/// user is such a run. `own`: what the basis leaves open by itself, as a logarithm.
StepInterval unseen_source(TimeBasis basis, double own);

/// The parts of a step's time that rest on points of a calibration of the machine itself.
struct MeasuredParts {
  double kernels = 0;              ///< share of the step
  double communications = 0;       ///< share of the step: of what is exposed
  double communications_open = 0;  ///< half width of their 90 % interval, relative to them
};

/// The interval of a step of which these parts were measured, and the rest has `rest`. Kernels were
/// measured alone, and training runs take longer by what is known of TimeBasis::kernels; that and
/// the rest are off alike, since both are of a program that nobody has seen. How far the network is
/// from what was stated of it is no longer open where it was measured: what its timings leave open
/// adds as squares.
StepInterval with_measured(const StepInterval& rest, const MeasuredParts& parts);

}  // namespace plimsoll
