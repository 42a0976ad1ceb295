// The sweep of a machine has the shapes, sizes and payloads of transformer training.
#pragma once

#include <utility>
#include <vector>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

inline constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

enum class SweepSize : std::uint8_t {
  full,   ///< under a minute on two cores
  quick,  ///< a few points of everything, for tests
};

/// Returns the matmuls to be timed, without their `time`. For weights they are hidden sizes h with
/// h, 3h, 4h and 256 outputs: forward (with bias, the output layer without), input gradients and
/// weight gradients. For attention they are the six products over heads.
std::vector<MatmulPoint> matmul_sweep(SweepSize size, DType dtype = DType::f32);

/// Returns the kinds, bytes and rows of memory-bound ops to be timed.
std::vector<OpPoint> memory_sweep(SweepSize size, DType dtype = DType::f32);
/// Returns whether an op is measured whatever the budget is. The smallest size is, because no other
/// size tells its time. So is the size whose rate stands for larger ones.
bool is_essential_on_core(const OpPoint& point);

/// Returns collectives among 2 and 4 ranks, among 8 and 16 where there are as many cores, and
/// sends.
std::vector<CollectivePoint> collective_sweep(SweepSize size);

/// Return the payloads of one collective or transfer, ascending, and the payloads that are measured
/// next to compute. Devices (nccl) need larger ones to reach their bandwidth.
std::vector<std::int64_t> communication_payloads(SweepSize size, CommunicatorKind communicator);
std::vector<std::int64_t> overlap_payloads(SweepSize size, CommunicatorKind communicator);

/// Returns 0..count-1 in an order in which every prefix is spread over the whole range: multiples
/// of a stride near the golden section that is coprime to count.
std::vector<std::size_t> spread_order(std::size_t count);

Flops flops_of(const MatmulShape& shape);

/// The sweep of an accelerator has the shapes and sizes of GPU training: GPT-2 345M and 1.3B, LLaMA
/// 1B to 7B, gpt-oss. Returns the products of jobs of that precision, and one product in f32.
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
