// Calibration of an accelerator: its ops, its attention, its copies, and what a launch costs.
#pragma once

#include "calibrate/calibrate.h"
#include "runtime/backend.h"
#include "runtime/device_facts.h"

namespace plimsoll {

/// Of the backend's device, which must have one; one device, alone. Peak rates of the cluster are
/// of the datasheet, as far as the device's generation is known, else the best measured ones; the
/// fractions of them that attention reaches are fitted on measurements.
MachineCalibration calibrate_device(const CalibrationRequest& request, Backend& backend,
                                    const DeviceFacts& facts);

/// Sweeps in the sizes that GPUs train: GPT-2 345M and 1.3B, LLaMA 1B to 7B. `quick`: of
/// calibrate/sweep.h.
std::vector<MatmulPoint> device_matmul_sweep(SweepSize size, DType dtype);
std::vector<OpPoint> device_memory_sweep(SweepSize size, DType dtype);

}  // namespace plimsoll
