// Estimate: a predicted time, what it leaves open, and how we know it.
#pragma once

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// How far a time from datasheet rates may be off, relative to it: chosen above the mean errors of
/// published runs predicted without any fit, 7 to 43 % (docs/accuracy.md).
inline constexpr double kDatasheetHalfWidth = 0.45;

/// Half width of the interval that nine in ten timings lie in, in interquartile ranges: of a normal
/// distribution these are 1.349 standard deviations, and 90 % lie within 1.645.
inline constexpr double kHalfWidth90 = 1.645 / 1.349;

struct Estimate {
  Seconds time;
  Seconds spread;  ///< half width at 90 % of what the samples or the interpolation leave open
  Provenance provenance = Provenance::datasheet;
  /// By points of a Calibration: of the machine itself, whether at them, between or beyond.
  bool of_calibration = false;
};

}  // namespace plimsoll
