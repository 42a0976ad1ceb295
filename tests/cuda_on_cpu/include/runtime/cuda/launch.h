// runtime/cuda/launch.h of the emulation: a launch runs the kernel's source in fibers.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>

namespace plimsoll {

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            void (*kernel)(Parameters...), Arguments... arguments) {
  const std::tuple<Parameters...> values{static_cast<Parameters>(arguments)...};
  cuda_on_cpu::enqueue(stream, [=] {
    cuda_on_cpu::run_grid(grid, block, shared_bytes, [&] { std::apply(kernel, values); });
  });
}

template <class... Parameters>
void allow_shared(void (*)(Parameters...), std::size_t) {}

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(cuda_on_cpu::dynamic_shared());
}

}  // namespace plimsoll
