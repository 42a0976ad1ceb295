// The driver is asked for the facts of a GPU.
#include "runtime/cuda/facts.h"

#include <array>

#include "runtime/cuda/device.h"

namespace plimsoll {

DeviceFacts cuda_device_facts(std::int64_t local_rank) {
  const CudaDevice device = open_device(int(local_rank % device_count()));
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "memory of the GPU");
  std::array<char, 32> bus = {};
  check(cudaDeviceGetPCIBusId(bus.data(), int(bus.size()), device.index), "where the GPU is");
  return {device_name(device.index), bus.data(), Bytes(std::int64_t(total)), device.multiprocessors,
          device.compute_capability};
}

}  // namespace plimsoll
