// binary16 of CUDA: conversions only, which is what the kernels use.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

struct __half {
  std::uint16_t bits;
};

/// From a table: the compiler's own conversion is a call that takes longer than what else a kernel
/// does with an element.
inline float __half2float(__half value) {
  static const auto table = [] {
    std::array<float, 1 << 16> floats;
    for (std::size_t i = 0; i < floats.size(); ++i)
      floats[i] = float(std::bit_cast<_Float16>(std::uint16_t(i)));
    return floats;
  }();
  return table[value.bits];
}
/// To nearest, ties to even.
inline __half __float2half_rn(float value) {
  return {std::bit_cast<std::uint16_t>(_Float16(value))};
}
