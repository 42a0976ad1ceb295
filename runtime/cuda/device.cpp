// GPUs by the CUDA runtime: errors, memory, waiting with a deadline.
#include "runtime/cuda/device.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/comm/waited.h"

namespace plimsoll {

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  // An error that is not sticky must not be reported by the next call, too.
  static_cast<void>(cudaGetLastError());
  throw EnvironmentError(
      fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

DeviceMemory::DeviceMemory(Bytes size) {
  if (size == Bytes(0)) return;
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::size_t(size.count())),
        fmt::format("cannot allocate {} bytes of device memory", size.count()));
  data_ = static_cast<std::byte*>(memory);
}

// A failed cudaFree has nobody to tell: the context is lost, and whoever uses it next finds out.
DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

DeviceMemory upload(std::span<const std::byte> values) {
  DeviceMemory memory(Bytes(std::int64_t(values.size())));
  if (values.empty()) return memory;
  check(cudaMemcpy(memory.data(), values.data(), values.size(), cudaMemcpyHostToDevice),
        "cannot copy to device memory");
  // A copy from pageable memory may still be on its way, and streams that do not block do not wait
  // for it.
  check(cudaStreamSynchronize(nullptr), "cannot copy to device memory");
  return memory;
}

int device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);  // leaves it untouched when it fails
  check(result, "no GPU can be used");
  if (count == 0) throw EnvironmentError("no GPU can be used: the driver shows none");
  return count;
}

std::string device_name(int index) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), fmt::format("GPU {}", index));
  return properties.name;
}

std::string driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "the driver's version");
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

CudaDevice open_device(int index) {
  const int count = device_count();
  if (index < 0 || index >= count) {
    throw EnvironmentError(fmt::format("GPU {} does not exist: the driver shows {}", index, count));
  }
  check(cudaSetDevice(index), fmt::format("GPU {} cannot be used", index));
  CudaDevice device;
  device.index = index;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, index), fmt::format("GPU {}", index));
    return value;
  };
  device.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  device.compute_capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                              attribute(cudaDevAttrComputeCapabilityMinor);
  device.shared_bytes = std::size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  if (device.compute_capability < 80) {
    throw EnvironmentError(
        fmt::format("GPU {} ({}) is older than compute capability 8.0", index, device_name(index)));
  }
  return device;
}

bool is_reached(cudaEvent_t event, std::string_view what) {
  const cudaError_t result = cudaEventQuery(event);
  if (result != cudaSuccess && result != cudaErrorNotReady) check(result, what);
  return result == cudaSuccess;
}

void finish(cudaStream_t stream, std::chrono::milliseconds deadline, std::string_view what,
            StreamWatch* watch) {
  Waited waited;
  while (true) {
    const cudaError_t result = cudaStreamQuery(stream);
    if (result == cudaSuccess) break;
    if (result != cudaErrorNotReady) check(result, what);
    if (watch != nullptr) watch->waits();
    if (waited.so_far() > deadline) {
      throw EnvironmentError(fmt::format("{}: the GPU is not done after the deadline of {} s{}",
                                         what, std::chrono::duration<double>(deadline).count(),
                                         watch == nullptr ? "" : ": " + watch->reason()));
    }
    std::this_thread::yield();
  }
  if (watch != nullptr) watch->ends();
}

}  // namespace plimsoll
