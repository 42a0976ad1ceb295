// Who wrote and who read each place of shared and of device memory, and since which barrier. The
// sources of kernels are compiled so that each of their loads and stores calls a function of
// races.cpp. Shared memory must have been written by the block that reads it. Blocks of a launch
// have nothing in common but what all of them read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

/// Every thread of a block has such a stack.
inline constexpr std::size_t kStackBytes = std::size_t{128} << 10;

/// The thread of a block that runs, and the barriers that it has passed.
struct Runner {
  unsigned thread = 0;
  std::uint32_t block_barriers = 0;  ///< of all blocks so far
  std::uint32_t warp_barriers = 0;   ///< of the thread: __syncwarp
  const std::byte* stack = nullptr;  ///< its lowest byte; what lies there is the thread's own
};

enum class Access { read, write, start_of_copy, end_of_copy };

/// Accesses of the calling thread's kernels from now on are those of `runner`; null: no kernel
/// runs. Shared memory are the `bytes` from `shared` on, and all variables that are __shared__.
void observe(const Runner* runner, const std::byte* shared, std::size_t bytes);
/// A block starts: nothing in shared memory has been written.
void forget_accesses(std::uint32_t block_barriers);
void note_access(const void* address, std::size_t bytes, Access access);
/// Whether accesses are looked at, from the next launch on; at first they are. A calibration over
/// NCCL takes a third of the time without.
void look_for_races(bool look);
/// Returns the first fault since the last call, for instance "thread 3 writes byte 64 of dynamic
/// shared memory, which thread 40 has read since the last barrier"; empty where nothing was.
std::string take_race();
/// Whether kernels were compiled so that races are seen; not with a sanitizer, which needs the
/// same.
bool sees_races();

}  // namespace cuda_on_cpu
