// A framework's memory is completed by what a calibration measured.
#pragma once

#include "models/calibration/calibration.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns the bundled runtime's framework with the memory that a calibration measured and that no
/// tensor shows: the context, and communicators of two ranks and of the largest group measured.
/// Other frameworks are returned unchanged, since the measurement is not of them.
Framework with_measured_memory(Framework framework, const Calibration& calibration);

}  // namespace plimsoll
