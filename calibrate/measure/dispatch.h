// Dispatch cost: what the executor adds to the ops it walks.
#pragma once

#include <cstdint>

#include "models/calibration/calibration.h"

namespace plimsoll {

struct DispatchCost {
  Sample op;    ///< host time per op
  Sample call;  ///< on top for each call
};

/// Times steps of lowered Programs of small GPT jobs on the null backend, where nothing but the
/// walk is left, and splits the time by the numbers of ops and calls (least squares over Programs
/// that differ in ops per call).
DispatchCost measure_dispatch(std::int64_t samples);

}  // namespace plimsoll
