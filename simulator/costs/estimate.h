// Estimate: a predicted time, how far it may be off, and how it is known.
#pragma once

#include "base/log_statistics.h"
#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// How far a time from datasheet rates may be off, relative to the time. It is chosen above the
/// mean errors of published runs predicted without any fit, 7 to 43 %
/// (docs/how-it-works/intervals.md).
inline constexpr double kDatasheetHalfWidth = 0.45;

/// Half width of the interval that holds nine in ten timings, in interquartile ranges. In a normal
/// distribution an interquartile range is 1.349 standard deviations, and 90 % lie within 1.645.
inline constexpr double kHalfWidth90 = kNormal90 / 1.349;

struct Estimate {
  Seconds time;
  Seconds spread;  ///< half width of the 90 % interval around `time`
  Provenance provenance = Provenance::datasheet;
  /// Whether points of a Calibration, measured on the machine itself, gave the estimate.
  bool of_calibration = false;
};

}  // namespace plimsoll
