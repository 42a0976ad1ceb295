// The sweep of an accelerator has the shapes and sizes of GPU training: GPT-2 345M and 1.3B, LLaMA
// 1B to 7B, gpt-oss. calibrate/schedule/sweep.h defines `quick`.
#pragma once

#include <vector>

#include "calibrate/schedule/sweep.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Returns the products of jobs of that precision, and one product in f32.
std::vector<MatmulPoint> device_matmul_sweep(SweepSize size, DType precision);
/// Returns the memory-bound ops of such jobs in that type. In f32 they are the ops that mixed
/// precision keeps in f32, and adds, whose rate is the memory bandwidth.
std::vector<OpPoint> device_memory_sweep(SweepSize size, DType precision);
/// Returns copies between pageable host memory and the device, and on the device.
std::vector<CopyPoint> copy_sweep(SweepSize size);

/// Returns whether a point is measured whatever the budget is: linear layers of 8192 tokens and
/// hidden sizes of 1024 and 2048, forward and backward; the peak in f32; the memory bandwidth.
bool is_essential_on_device(const MatmulPoint& point);
bool is_essential_on_device(const OpPoint& point);

}  // namespace plimsoll
