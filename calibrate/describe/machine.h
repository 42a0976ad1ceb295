// These functions describe the device and the network on which a calibration was measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "runtime/backend.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Returns the machine's memory. Throws EnvironmentError where the machine does not say how much it
/// has.
Bytes memory_of_machine();

/// Sets device, backend, date and versions.
void describe_machine(Calibration& calibration, const std::string& backend);

/// Describes a backend's device, and how much of its memory is taken now.
void describe_machine(Calibration& calibration, const DeviceFacts& facts, Backend& backend);

/// Returns the largest f32 add, whose operands come from memory. The points must hold one.
const OpPoint& largest_add(std::span<const OpPoint> points);
BytesPerSecond memory_bandwidth(std::span<const OpPoint> points);

/// Returns a CPU core as a device. Its peaks are the best matmul rates (in f32 and in `precision`),
/// and its memory bandwidth is that of the largest add.
Device measured_device(const Calibration& calibration, DType precision, Bytes memory);

/// The smallest and the largest of some sends.
struct SendRange {
  CollectivePoint smallest, largest;
};
/// Returns a level whose bandwidth follows from the largest send and whose latency from the
/// smallest.
Level measured_level(const std::string& name, std::int64_t devices, const SendRange& sends);

}  // namespace plimsoll
