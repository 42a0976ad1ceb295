#include "runtime/cuda/facts.h"

#include "runtime/cuda/device.h"

namespace plimsoll {

DeviceFacts cuda_device_facts(std::int64_t local_rank) {
  const CudaDevice device = open_device(int(local_rank % device_count()));
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "memory of the GPU");
  return {device_name(device.index), Bytes(std::int64_t(total)), device.multiprocessors,
          device.compute_capability};
}

}  // namespace plimsoll
