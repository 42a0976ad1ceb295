// The CUDA backend has its own kernels, and cuBLASLt for products. f32 products are f32 throughout,
// never TF32. Products of bf16 and f16 are summed in f32. Arithmetic is f32 for all types, and each
// result is rounded once, as on the cpu backend.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/backend.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Makes the backend on the GPU of the `local_rank`-th rank of this host. Ranks share GPUs where
/// there are more ranks. Throws EnvironmentError with the driver's reason where there is no GPU.
std::unique_ptr<Backend> make_cuda_backend(std::int64_t local_rank);

/// Adds the backend to make_backend() as "cuda". A program that links it calls this once.
void add_cuda_backend();

/// Returns the facts of the GPU that the `local_rank`-th rank of this host uses. Throws
/// EnvironmentError where there is none.
DeviceFacts cuda_device_facts(std::int64_t local_rank);

}  // namespace plimsoll
