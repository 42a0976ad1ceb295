// A rank's GPU: what kernels are enqueued on and with, device memory, and how errors are told.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"

namespace plimsoll {

struct RunPosition;

/// One rank's share of a GPU. Several ranks may share one: each has streams of its own.
struct CudaDevice {
  int index = 0;                  ///< among those that the driver shows
  cudaStream_t stream = nullptr;  ///< compute: all kernels of the rank run in its order
  /// Where the call is that a kernel belongs to. In device memory: written on `stream` before a
  /// call's kernels run, so that captured graphs stay valid.
  const RunPosition* position = nullptr;
  /// Library scratch in device memory, of the Framework's size; any kernel may use all of it while
  /// it runs, none keeps anything there.
  std::span<std::byte> workspace;
  int multiprocessors = 0;
  int compute_capability = 0;    ///< 10 * major + minor: 90 on Hopper
  std::size_t shared_bytes = 0;  ///< dynamic shared memory that a block may opt in to
};

/// Throws EnvironmentError: "WHAT: the driver's reason (its name)".
void check(cudaError_t result, std::string_view what);

/// Device memory of one owner; freed with it. Not for what a step allocates: kernels keep their
/// small tables in it, the arena is one.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// On the current device; not initialised. Throws EnvironmentError naming the bytes.
  explicit DeviceMemory(Bytes size);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
};

/// A copy of `values` in device memory, complete when it returns.
DeviceMemory upload(std::span<const std::byte> values);
template <class T>
DeviceMemory upload_values(const T& values) {
  return upload(std::as_bytes(std::span(values)));
}

/// GPUs that the driver shows. Throws EnvironmentError with the driver's reason where it shows none
/// or none is installed.
int device_count();
/// E.g. "NVIDIA H200".
std::string device_name(int index);
/// The newest CUDA version that the driver supports, e.g. "13.0".
std::string driver_version();

/// Makes `index` the calling thread's device and describes it; no stream, position or workspace.
CudaDevice open_device(int index);

/// Returns when all that was enqueued on `stream` is over. Looks instead of blocking, so that a
/// kernel that never ends is reported: EnvironmentError naming `what` after `deadline`.
void finish(cudaStream_t stream, std::chrono::milliseconds deadline, std::string_view what);

}  // namespace plimsoll
