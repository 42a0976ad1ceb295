// Values are rounded to 16 bits at random, up or down, so that their mean is the value.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "graph/tensor.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

/// Returns one of the two neighbours of `value` in bf16 or f16, by the low bits of `word`. Each has
/// the probability by which `value` is nearer to it. Infinity and NaN stay, and so do f32 values.
PLIMSOLL_ANYWHERE inline float rounded_at_random(DType type, float value, std::uint32_t word) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (type == DType::f32 || magnitude >= 0x7f800000u) return value;
  if (type == DType::f16 && magnitude < 113u << 23) {  // subnormal: multiples of 2^-24
    const float units = fabsf(value) * 0x1p24f, whole = floorf(units);
    const bool up = (units - whole) * 0x1p16f > float(word & 0xffffu);
    return copysignf((whole + (up ? 1.0f : 0.0f)) * 0x1p-24f, value);
  }
  const std::uint32_t lost = type == DType::bf16 ? 0xffffu : 0x1fffu;  // bits of the fraction
  bits = (bits + (word & lost)) & ~lost;  // a carry into the exponent is right
  memcpy(&value, &bits, sizeof bits);
  return value;
}

}  // namespace plimsoll
