// A rank's GPU has a stream for kernels, device memory, and functions that report errors.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"
#include "runtime/cuda/examples.h"

namespace plimsoll {

struct RowOverflow;

/// A CudaDevice is one rank's share of a GPU. Several ranks may share a GPU, and each has streams
/// of its own.
struct CudaDevice {
  int index = 0;                  ///< among the GPUs that the driver shows
  cudaStream_t stream = nullptr;  ///< compute: all kernels of the rank run in its order
  /// The position of the call to which a kernel belongs. It is in device memory and written on
  /// `stream` before a call's kernels run, so that captured graphs stay valid.
  const RunPosition* position = nullptr;
  /// The examples of the step, if the job states their lengths.
  ExampleTable examples;
  /// In host memory: the first kernel that finds more rows than fit says so here.
  RowOverflow* overflow = nullptr;
  /// Scratch memory of libraries in device memory, with the Framework's size. A kernel may use all
  /// of it while it runs, and keeps nothing in it.
  std::span<std::byte> workspace;
  int multiprocessors = 0;
  int compute_capability = 0;    ///< 10 * major + minor: 90 on Hopper
  std::size_t shared_bytes = 0;  ///< dynamic shared memory that a block may opt in to
};

/// Throws EnvironmentError: "WHAT: the driver's reason (its name)".
void check(cudaError_t result, std::string_view what);

/// DeviceMemory has one owner and is freed with it. Kernels keep their small tables in it, and the
/// arena is one. It is not for memory that a step allocates.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Allocates memory on the current device and does not initialise it. Throws EnvironmentError
  /// naming the bytes.
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

/// Returns a copy of `values` in device memory, which is complete on return.
DeviceMemory upload(std::span<const std::byte> values);
template <class T>
DeviceMemory upload_values(const T& values) {
  return upload(std::as_bytes(std::span(values)));
}

/// Returns the number of GPUs that the driver shows. Throws EnvironmentError with the driver's
/// reason where it shows none or is not installed.
int device_count();
/// Returns the name, e.g. "NVIDIA H200".
std::string device_name(int index);
/// Returns the newest CUDA version that the driver supports, e.g. "13.0".
std::string driver_version();

/// Makes `index` the calling thread's device and describes it. Stream, position and workspace are
/// not set.
CudaDevice open_device(int index);

/// Returns whether the stream on which the event was recorded has come so far. Throws
/// EnvironmentError naming `what`.
bool is_reached(cudaEvent_t event, std::string_view what);

/// A StreamWatch knows what a rank's stream waits for: other ranks, or its own kernels.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  /// The host waits for the stream. Called again and again until ends().
  virtual void waits() = 0;
  /// The wait is over. Not called where it fails: ranks that give up later still see that this one
  /// has waited.
  virtual void ends() = 0;
  /// Returns why the stream is not done.
  virtual std::string reason() = 0;
};

/// Returns when all that was enqueued on `stream` is over. It polls and does not block, so that a
/// kernel that never ends is reported: EnvironmentError after `deadline`, naming `what` and the
/// reason of `watch`, which may be null.
void finish(cudaStream_t stream, std::chrono::milliseconds deadline, std::string_view what,
            StreamWatch* watch = nullptr);

}  // namespace plimsoll
