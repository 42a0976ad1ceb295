// The CUDA backend: own kernels, cuBLASLt for products. f32 products are f32 throughout, never
// TF32; products of bf16 and f16 are summed in f32. Whatever the type, arithmetic is f32 and each
// result is rounded once, as on the cpu backend.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/backend.h"

namespace plimsoll {

/// The GPU of the `local_rank`-th rank of this host: ranks share GPUs where they are more. Throws
/// EnvironmentError with the driver's reason where there is none.
std::unique_ptr<Backend> make_cuda_backend(std::int64_t local_rank);

/// Makes it known to make_backend() as "cuda"; once, from a program that links it.
void add_cuda_backend();

}  // namespace plimsoll
