// The calibration of an accelerator measures its ops, its attention, its copies, and the cost of a
// launch.
#pragma once

#include "calibrate/sessions/calibrate.h"
#include "runtime/backend.h"
#include "runtime/device_facts.h"

namespace plimsoll {

/// Calibrates the device of a backend that has one. It is a single device (see device_sweep.h and
/// device_description.h).
MachineCalibration calibrate_device(const CalibrationRequest& request, Backend& backend,
                                    const DeviceFacts& facts);

}  // namespace plimsoll
