// Estimate: a predicted time, what it leaves open, and how we know it.
#pragma once

#include "base/units.h"
#include "models/calibration.h"

namespace plimsoll {

struct Estimate {
  Seconds time;
  Seconds spread;  ///< half width of what the samples or the interpolation leave open
  Provenance provenance = Provenance::datasheet;
};

}  // namespace plimsoll
