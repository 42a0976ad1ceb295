// The calibration of an accelerator measures its ops, its attention, its copies, and the cost of a
// launch.
#pragma once

#include <chrono>

#include "calibrate/sessions/calibrate.h"
#include "runtime/backend.h"
#include "runtime/processes.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Calibrates the device of a backend that has one. It is a single device (see
/// calibrate/schedule/sweep.h and device_description.h).
MachineCalibration calibrate_device(const CalibrationRequest& request, Backend& backend,
                                    const DeviceFacts& facts);

/// Every process calls it with the device that it uses. It throws UsageError, in all processes,
/// where two processes of a host use one device, or where devices differ.
void check_devices(Processes& processes, const DeviceFacts& own,
                   std::chrono::milliseconds deadline);

}  // namespace plimsoll
