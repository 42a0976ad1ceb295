// bfloat16 of CUDA: conversions only, which is what the kernels use.
#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}
/// To nearest, ties to even; NaN becomes the canonical one.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (value != value) return {0x7fff};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
