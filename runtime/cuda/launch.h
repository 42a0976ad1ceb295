// All kernels are launched here, so that tests can run their sources without a GPU
// (tests/cuda_on_cpu has a header of the same name).
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <tuple>

#include "runtime/cuda/device.h"

namespace plimsoll {

/// Enqueues kernel<<<grid, block, shared_bytes, stream>>>(arguments...). Throws EnvironmentError
/// where the launch is refused. Above 48 KiB of `shared_bytes` the kernel needs allow_shared().
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  const cudaError_t result = std::apply(
      [&](auto&... value) {
        std::array<void*, sizeof...(Parameters)> addresses = {&value...};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block,
                                addresses.data(), shared_bytes, stream);
      },
      values);
  check(result, "a kernel cannot be launched");
}

/// Lets the kernel use that much dynamic shared memory. It is called once, when the kernel is
/// prepared.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), std::size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
        "shared memory of a kernel");
}

#if defined(__CUDACC__)
/// Returns the dynamic shared memory of the block, 128-byte aligned.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char plimsoll_dynamic_shared[];
  return reinterpret_cast<T*>(plimsoll_dynamic_shared);
}
#endif

}  // namespace plimsoll
