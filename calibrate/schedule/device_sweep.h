// The sweep of an accelerator: shapes and sizes that GPUs train, GPT-2 345M and 1.3B, LLaMA 1B to
// 7B. `quick`: of calibrate/schedule/sweep.h.
#pragma once

#include <vector>

#include "calibrate/schedule/sweep.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// The products of jobs of that precision, and one product in f32.
std::vector<MatmulPoint> device_matmul_sweep(SweepSize size, DType precision);
/// The memory-bound ops of such jobs in that type. In f32 they are those that mixed precision keeps
/// there, and adds, whose rate is the memory bandwidth.
std::vector<OpPoint> device_memory_sweep(SweepSize size, DType precision);
/// Between pageable host memory and the device, and on the device.
std::vector<CopyPoint> copy_sweep(SweepSize size);

/// Measured whatever the budget says: linear layers of 8192 tokens and hidden sizes of 1024 and
/// 2048, forward and backward; the peak in f32; the bandwidth.
bool is_essential_on_device(const MatmulPoint& point);
bool is_essential_on_device(const OpPoint& point);

}  // namespace plimsoll
