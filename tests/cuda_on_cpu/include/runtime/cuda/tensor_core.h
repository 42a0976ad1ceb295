// runtime/cuda/tensor_core.h of the emulation: the same functions by what the documentation of the
// instructions says about which lane holds which value. Copies arrive no sooner than the wait for
// them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace plimsoll {

/// It is compiled in tensor_core.cpp.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

inline void load_matrices(std::uint32_t (&values)[4], const void* row) {
  const std::byte* all = cuda_on_cpu::meet_warp(0xffffffffu, &row, sizeof(row));
  const unsigned lane = cuda_on_cpu::lane();
  for (unsigned i = 0; i < 4; ++i) {
    const auto* from = cuda_on_cpu::lane_value<const std::byte*>(all, 8 * i + lane / 4);
    std::memcpy(&values[i], from + lane % 4 * 4, 4);
  }
}

inline void load_matrices_transposed(std::uint32_t (&values)[4], const void* row) {
  const std::byte* all = cuda_on_cpu::meet_warp(0xffffffffu, &row, sizeof(row));
  const unsigned lane = cuda_on_cpu::lane();
  for (unsigned i = 0; i < 4; ++i) {
    std::array<std::uint16_t, 2> two;
    for (unsigned j = 0; j < 2; ++j) {
      const auto* from = cuda_on_cpu::lane_value<const std::byte*>(all, 8 * i + lane % 4 * 2 + j);
      std::memcpy(&two[j], from + lane / 4 * 2, 2);
    }
    std::memcpy(&values[i], two.data(), 4);
  }
}

inline void start_copy(void* shared, const void* global, bool valid) {
  cuda_on_cpu::defer_copy(shared, valid ? global : nullptr, 16);
}
inline void commit_copies() { cuda_on_cpu::commit_copies(); }
inline void wait_for_copies() { cuda_on_cpu::finish_copies(); }

inline float fast_exp2(float x) { return std::exp2(x); }

template <class T>
std::uint32_t pack_two(float low, float high);
template <>
inline std::uint32_t pack_two<__nv_bfloat16>(float low, float high) {
  return __float2bfloat16_rn(low).bits | std::uint32_t{__float2bfloat16_rn(high).bits} << 16;
}
template <>
inline std::uint32_t pack_two<__half>(float low, float high) {
  return __float2half_rn(low).bits | std::uint32_t{__float2half_rn(high).bits} << 16;
}

}  // namespace plimsoll
