// This check makes sure that every process of a cluster has a device of its own.
#pragma once

#include <chrono>

#include "runtime/device_facts.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Every process calls it with the device that it uses. It throws UsageError, in all processes,
/// where two processes of a host use one device, or where devices differ.
void check_devices(Processes& processes, const DeviceFacts& own,
                   std::chrono::milliseconds deadline);

}  // namespace plimsoll
