// binary16 of CUDA: conversions only, which is what the kernels use.
#pragma once

#include <bit>
#include <cstdint>

struct __half {
  std::uint16_t bits;
};

inline float __half2float(__half value) { return float(std::bit_cast<_Float16>(value.bits)); }
/// To nearest, ties to even.
inline __half __float2half_rn(float value) {
  return {std::bit_cast<std::uint16_t>(_Float16(value))};
}
