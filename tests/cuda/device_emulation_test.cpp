// The device side of the emulation itself: it must show what it is there to show.
#include "device_emulation.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/cuda/reduce.h"
#include "runtime/half.h"
#include "tests/cuda_on_cpu/include/runtime/cuda/tensor_core.h"

namespace plimsoll {
namespace {

using cuda_on_cpu::ThreadOrder;

std::string error_of(unsigned threads, std::size_t shared, const std::function<void()>& thread) {
  try {
    cuda_on_cpu::run_grid(2, threads, shared, thread);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "none";
}

TEST(Emulation, NamesABarrierThatNotAllThreadsReach) {
  EXPECT_EQ(error_of(64, 0,
                     [] {
                       if (threadIdx.x < 40) __syncthreads();
                     }),
            "block (0, 0, 0): of 64 threads 24 are over, 40 wait in __syncthreads and 0 in a warp "
            "operation");
  EXPECT_EQ(error_of(64, 0,
                     [] {
                       if (threadIdx.x % 2 == 0) warp_sum(1.0f);
                     }),
            "block (0, 0, 0): of 64 threads 32 are over, 0 wait in __syncthreads and 32 in a warp "
            "operation");
  EXPECT_EQ(error_of(64, 0, [] { __syncthreads(); }), "none");  // and it is usable again
}

TEST(Emulation, NamesAWriteBehindSharedMemory) {
  const auto write = [](int i) {
    return [i] { reinterpret_cast<float*>(cuda_on_cpu::dynamic_shared())[i] = 1; };
  };
  EXPECT_EQ(error_of(32, 64, write(15)), "none");
  EXPECT_EQ(error_of(32, 64, write(16)),
            "a block writes behind its 64 bytes of dynamic shared memory");
}

TEST(Emulation, ShowsARaceByTheOrderOfThreads) {
  std::array<float, 64> seen;
  const auto shift = [&](bool barrier) {
    return [&seen, barrier] {
      auto* shared = reinterpret_cast<float*>(cuda_on_cpu::dynamic_shared());
      shared[threadIdx.x] = float(threadIdx.x);
      if (barrier) __syncthreads();
      seen[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
    };
  };
  for (const bool barrier : {true, false}) {
    std::vector<std::array<float, 64>> results;
    for (const auto order : {ThreadOrder::descending, ThreadOrder::ascending}) {
      cuda_on_cpu::set_thread_order(order);
      cuda_on_cpu::run_grid(1, 64, 256, shift(barrier));
      results.push_back(seen);
    }
    EXPECT_EQ(results[0] == results[1], barrier);
  }
}

TEST(Emulation, CopiesArriveWithTheWaitForThem) {
  alignas(16) const std::array<float, 4> from = {1, 2, 3, 4};
  std::array<float, 2> seen;
  cuda_on_cpu::run_grid(1, 1, 16, [&] {
    auto* shared = reinterpret_cast<float*>(cuda_on_cpu::dynamic_shared());
    start_copy(shared, from.data(), true);
    commit_copies();
    seen[0] = shared[3];
    wait_for_copies();
    seen[1] = shared[3];
  });
  EXPECT_TRUE(std::isnan(seen[0]));
  EXPECT_EQ(seen[1], 4);
}

TEST(Emulation, SumsOverABlock) {
  std::array<float, 96> sums;
  std::array<double, 96> wide;
  cuda_on_cpu::run_grid(1, 96, 0, [&] {
    sums[threadIdx.x] = block_sum(float(threadIdx.x));
    wide[threadIdx.x] = block_sum(double(threadIdx.x) + 0.5);
    sums[threadIdx.x] += block_max(float(threadIdx.x % 50));
  });
  for (const float sum : sums) EXPECT_EQ(sum, 4560 + 49);
  for (const double sum : wide) EXPECT_EQ(sum, 4608);
}

TEST(Emulation, RoundsAsTheHostDoes) {
  std::vector<float> values = {0.0f,     -0.0f,   1e-8f,     65504.0f,
                               65520.0f, 1e30f,   -3.14159f, std::numeric_limits<float>::infinity(),
                               6.1e-5f,  5.96e-8f};
  for (int i = 0; i < 2000; ++i) values.push_back(std::ldexp(1.0f + float(i) / 2048, i % 30 - 15));
  const auto count = std::int64_t(values.size());
  std::vector<std::uint16_t> expected(values.size());
  auto* stored = reinterpret_cast<std::byte*>(expected.data());
  from_f32(DType::bf16, values.data(), stored, count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(__float2bfloat16_rn(values[i]).bits, expected[i]) << values[i];
  }
  from_f32(DType::f16, values.data(), stored, count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(__float2half_rn(values[i]).bits, expected[i]) << values[i];
  }
}

}  // namespace
}  // namespace plimsoll
