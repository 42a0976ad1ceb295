// A framework with what a calibration measured of its memory.
#pragma once

#include "models/calibration/calibration.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// The bundled runtime's framework with what a calibration measured of the memory that no tensor
/// shows: the context, and communicators of two ranks and of the most that were measured. Others
/// are returned as they are: what was measured is not theirs.
Framework with_measured_memory(Framework framework, const Calibration& calibration);

}  // namespace plimsoll
