// Devices, memory, streams, events and graphs of the emulation.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "host_emulation.h"

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;
using cuda_on_cpu::Together;

struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<Work>> nodes;
};
struct CUevent_st {
  bool timed = true;
  std::shared_ptr<Together> reached;  ///< null: never recorded
};

namespace {

/// An Item of a stream does its work when the stream comes to it, and holds the stream until all
/// of `until` is done.
struct Item {
  std::function<std::vector<std::shared_ptr<Together>>()> work;
  std::vector<std::shared_ptr<Together>> until;
  bool begun = false;
};

}  // namespace

struct CUstream_st {
  std::thread::id owner;  ///< the thread that used it last, and lets it go on
  cudaGraph_t capture = nullptr;
  std::deque<Item> items;
  int promised = 0;  ///< items that somebody still enqueues in his own time
  std::exception_ptr failure;
};

namespace {

std::atomic<int> device_count{1};
std::atomic<std::int64_t> launches{0};
std::atomic<unsigned> seed{[] {
  const char* given = std::getenv("PLIMSOLL_EMULATION_SEED");
  return given == nullptr ? 1u : unsigned(std::atoi(given));
}()};
thread_local int current_device = 0;
thread_local int captures = 0;  ///< of this thread's streams
thread_local cudaError_t last_error = cudaSuccess;
/// The streams that this thread has used, until they are empty.
thread_local std::vector<std::shared_ptr<CUstream_st>> busy;

/// Every stream, until it is destroyed.
struct Streams {
  std::mutex lock;
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> all;
};
Streams& streams() {
  static Streams streams;
  return streams;
}

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

/// Numbers of this thread, the same in every run.
unsigned draw(unsigned below) {
  thread_local unsigned seeded = 0;
  thread_local std::minstd_rand numbers;
  if (const unsigned now = seed; seeded != now) numbers.seed(seeded = now);
  return unsigned(numbers() >> 8) % below;
}

/// From now on this thread lets the stream go on.
void adopt(cudaStream_t stream) {
  if (stream->owner == std::this_thread::get_id() &&
      std::ranges::any_of(busy, [&](const auto& one) { return one.get() == stream; })) {
    return;
  }
  stream->owner = std::this_thread::get_id();
  const std::lock_guard guard(streams().lock);
  busy.push_back(streams().all.at(stream));
}

void push(cudaStream_t stream, Item item) {
  if (stream->promised > 0) {
    throw std::logic_error(
        "a stream is used before NCCL has enqueued on it: ncclCommGetAsyncError has not said so");
  }
  stream->items.push_back(std::move(item));
  adopt(stream);
}

/// Begins the first item unless it has begun, and takes it out where nothing holds the stream.
/// Returns whether anything happened.
bool advance(cudaStream_t stream) {
  if (stream->items.empty()) return false;
  Item& item = stream->items.front();
  const bool begins = !item.begun;
  if (begins) {
    item.begun = true;
    try {
      if (item.work) std::ranges::move(item.work(), std::back_inserter(item.until));
    } catch (...) {
      stream->items.clear();
      stream->failure = std::current_exception();
      return true;
    }
  }
  if (!std::ranges::all_of(item.until, [](const auto& one) { return one->done.load(); })) {
    return begins;
  }
  stream->items.pop_front();
  return true;
}

/// Lets one of this thread's streams that can go on do so. Returns false where none can.
bool advance_any() {
  std::erase_if(busy, [](const auto& stream) {
    return stream->owner != std::this_thread::get_id() ||
           (stream->items.empty() && !stream->failure);
  });
  const auto count = unsigned(busy.size());
  const unsigned first = count > 0 ? draw(count) : 0;
  for (unsigned i = 0; i < count; ++i) {
    if (advance(busy[(first + i) % count].get())) return true;
  }
  return false;
}

/// The host has asked how far its device is: it may have come some way.
void progress() {
  constexpr unsigned kMost = 16;
  for (unsigned i = draw(kMost) + 1; i > 0 && advance_any(); --i) {
  }
}

/// Throws what a stream of this thread has thrown.
void rethrow_failure() {
  for (const auto& stream : busy) {
    if (stream->failure) std::rethrow_exception(std::exchange(stream->failure, nullptr));
  }
}

/// Returns whether this thread captures a stream (mode thread-local), so that some calls are
/// forbidden.
bool unsafe() { return captures > 0; }

}  // namespace

namespace cuda_on_cpu {

void enqueue(cudaStream_t stream, Work work) {
  if (stream == nullptr) return work();
  if (stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(work));
  } else {
    push(stream, {[work = std::move(work)] {
                    work();
                    return std::vector<std::shared_ptr<Together>>();
                  },
                  {}});
  }
}

void promise(cudaStream_t stream) { ++stream->promised; }

void enqueue_promised(cudaStream_t stream,
                      std::function<std::vector<std::shared_ptr<Together>>()> begin) {
  --stream->promised;
  if (begin) push(stream, {std::move(begin), {}});
}

void finish(Together& together) {
  together.end = Clock::now();
  together.done = true;
}

int current_device() { return ::current_device; }

void set_device_count(int count) { device_count = count; }
void set_stream_order(unsigned of_seed) { seed = of_seed; }
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
  // Enqueued work may still use it: a device is waited for, as far as it goes on by itself.
  while (advance_any()) {
  }
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

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  cuda_on_cpu::enqueue(stream, [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto made = std::make_shared<CUstream_st>();
  const std::lock_guard guard(streams().lock);
  streams().all[made.get()] = made;
  *stream = made.get();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::erase_if(busy, [&](const auto& one) { return one.get() == stream; });
  const std::lock_guard guard(streams().lock);
  streams().all.erase(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const bool captured = stream != nullptr && stream->capture != nullptr;
  if (unsafe() || captured) return fail(cudaErrorStreamCaptureUnsupported);
  if (stream != nullptr) adopt(stream);
  progress();
  rethrow_failure();
  return stream == nullptr || stream->items.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Clock::time_point until = Clock::now() + std::chrono::minutes(1);
  while (true) {
    const cudaError_t result = cudaStreamQuery(stream);
    if (result != cudaErrorNotReady) return result;
    if (Clock::now() > until) throw std::logic_error("a stream waits for what does not come");
    std::this_thread::yield();
  }
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event == nullptr) return fail(cudaErrorInvalidResourceHandle);
  if (event->reached && !event->reached->done) push(stream, {{}, {event->reached}});
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
  event->reached = std::make_shared<Together>();
  cuda_on_cpu::enqueue(stream, [reached = event->reached] { cuda_on_cpu::finish(*reached); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (unsafe()) return fail(cudaErrorStreamCaptureUnsupported);
  progress();
  rethrow_failure();
  return !event->reached || event->reached->done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->timed || !end->timed || !begin->reached || !end->reached) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!begin->reached->done || !end->reached->done) return fail(cudaErrorNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->reached->end - begin->reached->end).count();
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
  *executable = new CUgraphExec_st{std::make_shared<const std::vector<Work>>(graph->nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (stream->capture != nullptr) return fail(cudaErrorStreamCaptureUnsupported);
  ++launches;
  cuda_on_cpu::enqueue(stream, [nodes = executable->nodes] {
    for (const Work& work : *nodes) work();
  });
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
