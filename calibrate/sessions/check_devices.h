// Each process of a calibration needs a separate device, and all of one kind.
#pragma once

#include <chrono>

#include "runtime/processes.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Every process calls it with the device that it uses. It throws UsageError, in all processes,
/// where two processes of a host use one device, or where devices differ.
void check_devices(Processes& processes, const DeviceFacts& own,
                   std::chrono::milliseconds deadline);

}  // namespace plimsoll
