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

#include "races.h"
#include "runtime/cuda/reduce.h"
#include "runtime/half.h"
#include "tests/cuda/small_kernels.h"
#include "tests/cuda_on_cpu/include/runtime/cuda/tensor_core.h"

namespace plimsoll {
namespace {

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
  std::array<float, 64> written, seen;
  for (const bool barrier : {true, false}) {
    std::vector<std::array<float, 64>> results;
    for (const unsigned seed : {0, 7}) {
      cuda_on_cpu::set_thread_order(seed);
      written = {};
      cuda_on_cpu::run_grid(1, 64, 0, [&] {
        written[threadIdx.x] = 1;
        if (barrier) __syncthreads();
        seen[threadIdx.x] = written[(threadIdx.x + 1) % 64];
      });
      results.push_back(seen);
    }
    EXPECT_EQ(results[0] == results[1], barrier);
  }
}

class Races : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_on_cpu::sees_races()) GTEST_SKIP() << "a sanitizer sees to accesses";
  }

  /// Whether threads that run in any of some orders end without an error, or with one that says so.
  void expect(const std::string& said, const std::function<void()>& kernel) {
    for (const unsigned seed : {0, 1, 2, 3}) {
      cuda_on_cpu::set_thread_order(seed);
      const std::string error = error_of(64, 2 * 64 * 16, kernel);
      EXPECT_NE(error.find(said), std::string::npos) << said << ", order " << seed << ": " << error;
    }
    cuda_on_cpu::set_thread_order(1);
  }
};

TEST_F(Races, ReadsAndWritesOfABlockNeedItsBarrier) {
  std::array<float, 128> seen;
  expect("none", [&] { shift_in_block(true, true, seen.data()); });
  EXPECT_EQ(seen[67], 4);
  expect("dynamic shared memory, which", [&] { shift_in_block(false, true, seen.data()); });
  cuda_on_cpu::set_thread_order(0);
  EXPECT_EQ(error_of(64, 256, [&] { shift_in_block(false, true, seen.data()); }),
            "block (0, 0, 0): thread 0 reads byte 4 of dynamic shared memory, which its block has "
            "not written");
}

TEST_F(Races, BlocksDoNotWriteToOnePlace) {
  std::array<float, 64> seen;
  expect("writes device memory, which another block of the launch has written",
         [&] { shift_in_block(true, false, seen.data()); });
}

TEST_F(Races, ABarrierOfAWarpIsEnoughForItsThreads) {
  expect("none", [] { shift_in_warp(true); });
  expect("has written since the last barrier", [] { shift_in_warp(false); });
}

TEST_F(Races, SharedVariablesAreLookedAtToo) {
  expect("none", [] { tell(true, true); });
  expect("of shared variables, which", [] { tell(false, true); });
  expect("of shared variables, which", [] { tell(true, false); });
}

TEST_F(Races, CopiesAreRacesFromTheirStartUntilTheyAreWaitedFor) {
  std::vector<float> values(4 * 64 * 4);
  expect("none", [&] { copy_tiles(values.data(), true, true, true); });
  expect("copies to, and has not waited", [&] { copy_tiles(values.data(), false, true, true); });
  expect("copies to, and has not waited", [&] { copy_tiles(values.data(), true, false, true); });
  expect("dynamic shared memory", [&] { copy_tiles(values.data(), true, true, false); });
}

TEST_F(Races, WhatABlockReadsItHasWritten) {
  expect("which its block has not written", [] { read_first(); });
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
