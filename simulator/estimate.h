// Estimate: a predicted time, what it leaves open, and how we know it.
#pragma once

#include "base/units.h"
#include "models/calibration.h"

namespace plimsoll {

/// How far a time from datasheet rates may be off, relative to it: chosen above the mean errors of
/// published runs predicted without any fit, 7 to 43 % (docs/accuracy.md).
inline constexpr double kDatasheetHalfWidth = 0.45;

struct Estimate {
  Seconds time;
  Seconds spread;  ///< half width of what the samples or the interpolation leave open
  Provenance provenance = Provenance::datasheet;
};

}  // namespace plimsoll
