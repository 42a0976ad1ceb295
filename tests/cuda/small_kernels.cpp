// Kernels with faults and without.
#include "tests/cuda/small_kernels.h"

#include <cuda_runtime.h>

#include "tests/cuda_on_cpu/include/runtime/cuda/tensor_core.h"

namespace plimsoll {

namespace {

float* shared() { return reinterpret_cast<float*>(cuda_on_cpu::dynamic_shared()); }

}  // namespace

void shift_in_block(bool barrier, bool apart, float* seen) {
  shared()[threadIdx.x] = float(threadIdx.x);
  if (barrier) __syncthreads();
  seen[(apart ? blockIdx.x * blockDim.x : 0) + threadIdx.x] =
      shared()[(threadIdx.x + 1) % blockDim.x];
}

void shift_in_warp(bool barrier) {
  shared()[threadIdx.x] = float(threadIdx.x);
  // A shuffle orders no memory.
  barrier ? __syncwarp() : static_cast<void>(__shfl_sync(0xffffffffu, 1, 0));
  const float next = shared()[threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32];
  __syncwarp();
  shared()[threadIdx.x] = next;
}

void tell(bool before_reads, bool before_writes) {
  __shared__ float told;
  float sum = 0;
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x == 0) told = float(i);
    if (before_reads) __syncthreads();
    sum += told;
    if (before_writes) __syncthreads();
  }
  shared()[threadIdx.x] = sum;
}

void copy_tiles(const float* from, bool starts_after_barrier, bool waits, bool barrier) {
  constexpr unsigned kTiles = 4;
  const unsigned count = blockDim.x * 4;  // values of a tile
  const auto tile = [&](unsigned i) { return shared() + i % 2 * count; };
  const auto start = [&](unsigned i) {
    if (i < kTiles) start_copy(tile(i) + 4 * threadIdx.x, from + i * count + 4 * threadIdx.x, true);
    commit_copies();
  };
  float sum = 0;
  start(0);
  for (unsigned i = 0; i < kTiles; ++i) {
    if (waits) wait_for_copies();
    if (!starts_after_barrier) start(i + 1);
    if (barrier) __syncthreads();
    if (starts_after_barrier) start(i + 1);
    for (unsigned j = 0; j < count; ++j) sum += tile(i)[j];
  }
  wait_for_copies();
  __syncthreads();
  shared()[threadIdx.x] = sum;
}

void read_first() { shared()[threadIdx.x] += 1; }

}  // namespace plimsoll
