// The device side of CUDA, emulated on the CPU so that tests run the very sources of the kernels.
//
// One fiber per CUDA thread of a block, blocks one after another, all on the calling thread. A
// fiber runs until it meets a barrier that others have not reached; the order of fibers is drawn.
// These faults, which a GPU leaves undefined, are errors here (std::logic_error from the launch): a
// barrier that some thread of the block never reaches, a warp operation that lanes of its mask
// never reach, a race (races.h). Nothing is known here about speed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
// Kernels are compiled with flags of their own: their functions must not be those of other sources.
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// The state of one block at a time, and of one rank's thread.
#define __shared__ static thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline constinit thread_local uint3 threadIdx = {}, blockIdx = {};
inline constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace cuda_on_cpu {

/// In which order this thread's next launches run the threads of a block between barriers: each
/// seed gives another, 0 the ascending order. Results that differ come from a race.
/// PLIMSOLL_EMULATION_SEED is the first.
void set_thread_order(unsigned seed);

/// Runs `thread` for every thread of every block. Dynamic shared memory holds NaN at the start of
/// each block. Throws std::logic_error naming the block where threads diverge at a barrier, and
/// where the block writes behind its dynamic shared memory.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

/// Dynamic shared memory of the running block.
std::byte* dynamic_shared();
std::size_t dynamic_shared_bytes();

/// Meets the lanes of `mask` of the calling thread's warp. `value`: what this lane hands over;
/// returns what all lanes handed over (64 bytes per lane), valid until the warp's next meeting but
/// one.
constexpr std::size_t kHandOver = 64;
const std::byte* meet_warp(unsigned mask, const void* value, std::size_t bytes);
unsigned lane();

/// A copy of the calling thread into shared memory: happens when it waits for those that it has
/// committed. `from` null: zeros.
void defer_copy(void* to, const void* from, std::size_t bytes);
void commit_copies();
void finish_copies();

/// The copies that this thread's kernels have waited for, and those during which their threads went
/// on with products or other operations of a warp: only such copies take no time of their own.
struct CopyCounts {
  std::int64_t all = 0, hidden = 0;
};
CopyCounts copy_counts();

template <class T>
T lane_value(const std::byte* values, unsigned lane) {
  T value;
  std::memcpy(&value, values + lane * kHandOver, sizeof(T));
  return value;
}

}  // namespace cuda_on_cpu

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const std::byte* all = cuda_on_cpu::meet_warp(mask, &value, sizeof(T));
  const unsigned lane = cuda_on_cpu::lane(), first = lane / unsigned(width) * unsigned(width);
  return cuda_on_cpu::lane_value<T>(all, first + unsigned(source) % unsigned(width));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const std::byte* all = cuda_on_cpu::meet_warp(mask, &value, sizeof(T));
  const unsigned lane = cuda_on_cpu::lane(), other = lane ^ unsigned(lane_mask);
  const bool within = other / unsigned(width) <= lane / unsigned(width);
  return cuda_on_cpu::lane_value<T>(all, within ? other : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const std::byte* all = cuda_on_cpu::meet_warp(mask, &value, sizeof(T));
  const unsigned lane = cuda_on_cpu::lane();
  const bool within = lane % unsigned(width) + delta < unsigned(width);
  return cuda_on_cpu::lane_value<T>(all, within ? lane + delta : lane);
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const std::byte* all = cuda_on_cpu::meet_warp(mask, &predicate, sizeof(predicate));
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0 && cuda_on_cpu::lane_value<int>(all, lane) != 0)
      result |= 1u << lane;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

template <class T>
T __ldg(const T* address) {
  return *address;
}
// The fast functions of the device have larger errors than these; tests of accuracy say nothing
// about that.
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned(std::uint64_t{a} * std::uint64_t{b} >> 32);
}
inline std::size_t __cvta_generic_to_shared(const void* address) {
  return reinterpret_cast<std::size_t>(address);
}
