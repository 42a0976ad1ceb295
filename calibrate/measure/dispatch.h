// The dispatch cost is the host time that the executor adds to the ops that it issues.
#pragma once

#include <cstdint>

#include "models/calibration/calibration.h"

namespace plimsoll {

struct DispatchCost {
  Sample op;            ///< host time per op
  Sample call;          ///< additional host time for each call
  Sample wake_up = {};  ///< as in Calibration
};

/// Times steps of lowered Programs of small GPT jobs on the null backend, where only the executor's
/// own time is left. It splits this time by the numbers of ops and calls (least squares over
/// Programs that differ in ops per call). It does not measure `wake_up`.
DispatchCost measure_dispatch(std::int64_t samples);

}  // namespace plimsoll
