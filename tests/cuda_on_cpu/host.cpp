// Devices, memory, streams, events and graphs of the emulation.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "host_emulation.h"

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;
using Waits = std::vector<std::shared_ptr<cuda_on_cpu::Together>>;

struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};
struct CUstream_st {
  cudaGraph_t capture = nullptr;
  Waits waits;  ///< for other devices, before what comes next
};
struct CUevent_st {
  bool timed = true, recorded = false;
  Clock::time_point at;
  Waits waits;
};

namespace {

std::atomic<int> device_count{1};
std::atomic<std::int64_t> launches{0};
thread_local int current_device = 0;
thread_local int captures = 0;  ///< of this thread's streams
thread_local cudaError_t last_error = cudaSuccess;

/// Every device's allocations, by address.
struct Allocations {
  std::mutex lock;
  std::map<void*, std::size_t> sizes;
  std::size_t used = 0;
};
Allocations& allocations() {
  static Allocations all;
  return all;
}

cudaError_t fail(cudaError_t error) { return last_error = error; }
bool all_done(const Waits& waits) {
  return std::ranges::all_of(waits, [](const auto& one) { return one->done.load(); });
}

/// Until the stream waits for nothing any more.
void catch_up(cudaStream_t stream) {
  if (stream == nullptr || stream->waits.empty()) return;
  const Clock::time_point until = Clock::now() + std::chrono::minutes(1);
  while (!all_done(stream->waits)) {
    if (Clock::now() > until) throw std::logic_error("a stream waits for devices that do not come");
    std::this_thread::yield();
  }
  stream->waits.clear();
}

/// When an event was reached.
Clock::time_point reached(const CUevent_st& event) {
  Clock::time_point at = event.at;
  for (const auto& one : event.waits) at = std::max(at, one->end);
  return at;
}

/// Returns whether this thread captures a stream (mode thread-local), so that some calls are
/// forbidden.
bool unsafe() { return captures > 0; }

}  // namespace

namespace cuda_on_cpu {

void enqueue(cudaStream_t stream, Work work) {
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(work));
  } else {
    catch_up(stream);
    work();
  }
}

void enqueue(cudaStream_t stream, std::shared_ptr<Together> together) {
  stream->waits.push_back(std::move(together));
}

int current_device() { return ::current_device; }

void set_device_count(int count) { device_count = count; }
std::int64_t graph_launches() { return launches; }

}  // namespace cuda_on_cpu

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "invalid argument";
  }
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "cudaErrorInvalidValue";
  }
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  if (device_count == 0) return fail(cudaErrorNoDevice);
  *count = device_count;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= device_count) return fail(cudaErrorInvalidDevice);
  std::strcpy(properties->name, "emulated on the CPU");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count) return fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 163 << 10;
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (device < 0 || device >= device_count) return fail(cudaErrorInvalidDevice);
  std::snprintf(id, std::size_t(size), "0000:%02x:00.0", unsigned(device) + 1);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard guard(allocations().lock);
  *total = cuda_on_cpu::kDeviceMemory;
  *free = *total - allocations().used;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t size) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  constexpr std::size_t kAlignment = 256;
  const std::lock_guard guard(allocations().lock);
  if (allocations().used + size > cuda_on_cpu::kDeviceMemory) {
    return fail(cudaErrorMemoryAllocation);
  }
  const std::size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  *memory = std::aligned_alloc(kAlignment, rounded);
  if (*memory == nullptr) return fail(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xFF, rounded);
  allocations().sizes[*memory] = size;
  allocations().used += size;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard guard(allocations().lock);
  const auto found = allocations().sizes.find(memory);
  if (found == allocations().sizes.end()) return fail(cudaErrorInvalidValue);
  allocations().used -= found->second;
  allocations().sizes.erase(found);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  *memory = std::malloc(size);
  return *memory == nullptr ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  std::memcpy(to, from, size);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, std::size_t size) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  std::memset(to, value, size);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  cuda_on_cpu::enqueue(stream, [=] { std::memcpy(to, from, size); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size, cudaStream_t stream) {
  cuda_on_cpu::enqueue(stream, [=] { std::memset(to, value, size); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const bool captured = stream != nullptr && stream->capture != nullptr;
  if (unsafe() || captured) return fail(cudaErrorStreamCaptureUnsupported);
  return stream == nullptr || all_done(stream->waits) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaStreamQuery(stream); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event == nullptr) return fail(cudaErrorInvalidResourceHandle);
  for (const auto& one : event->waits) {
    if (!one->done) stream->waits.push_back(one);
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// An event of a captured stream belongs to the graph; nothing here uses that.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capture != nullptr) return fail(cudaErrorStreamCaptureUnsupported);
  event->recorded = true;
  event->at = Clock::now();
  event->waits = stream->waits;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  return all_done(event->waits) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->timed || !end->timed || !begin->recorded || !end->recorded) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!all_done(begin->waits) || !all_done(end->waits)) return fail(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(reached(*end) - reached(*begin)).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture != nullptr) return fail(cudaErrorInvalidValue);
  stream->capture = new CUgraph_st;
  ++captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->capture == nullptr) return fail(cudaErrorInvalidValue);
  *graph = std::exchange(stream->capture, nullptr);
  --captures;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (stream->capture != nullptr) return fail(cudaErrorStreamCaptureUnsupported);
  ++launches;
  catch_up(stream);
  for (const Work& work : executable->nodes) work();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
