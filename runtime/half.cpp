// Conversions as integer arithmetic, the same bits on every instruction set.
//
// bf16 is the upper half of an f32. f16 (binary16) has 5 bits of exponent, bias 15, and 10 of
// fraction against 8, bias 127, and 23: exponents differ by 112, fractions by 13 bits.
#include "runtime/half.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

using Half = std::uint16_t;
using Word = std::uint32_t;

constexpr Word kSign = 0x8000'0000, kInfinity = 0x7f80'0000;
constexpr Word kExponents = Word{112} << 23;  ///< f32 exponent minus f16 exponent

inline float bf16_value(Half half) { return std::bit_cast<float>(Word{half} << 16); }

inline Half bf16_of(float value) {
  const Word bits = std::bit_cast<Word>(value);
  const Word rounded = bits + 0x7fff + (bits >> 16 & 1);  // a carry into the exponent is right
  const bool nan = (bits & ~kSign) > kInfinity;
  return Half(nan ? (bits >> 16 | 0x40) : rounded >> 16);
}

inline float f16_value(Half half) {
  const Word magnitude = Word{half & 0x7fffu} << 13;
  const Word normal = magnitude + kExponents;
  // Subnormal: as a fraction of the smallest normal number, which is then taken away again.
  constexpr Word kSmallest = Word{113} << 23;
  const float subnormal =
      std::bit_cast<float>(magnitude + kSmallest) - std::bit_cast<float>(kSmallest);
  const Word special = magnitude + 2 * kExponents;  // exponent 31 becomes 255
  const Word value = magnitude < (Word{1} << 23)    ? std::bit_cast<Word>(subnormal)
                     : magnitude < (Word{31} << 23) ? normal
                                                    : special;
  return std::bit_cast<float>(value | Word{half & 0x8000u} << 16);
}

inline Half f16_of(float value) {
  const Word bits = std::bit_cast<Word>(value), magnitude = bits & ~kSign;
  const Word rounded = magnitude - kExponents + 0xfff + (magnitude >> 13 & 1);
  // Below the smallest normal number: adding 0.5 leaves the bits that count, rounded, at the end.
  constexpr float kHalf = 0.5f;
  const Word subnormal =
      std::bit_cast<Word>(std::bit_cast<float>(magnitude) + kHalf) - std::bit_cast<Word>(kHalf);
  Word result = rounded >> 13;  // one choice after the other: chains of them do not vectorise
  result = magnitude < (Word{113} << 23) ? subnormal : result;
  result = magnitude >= (Word{127 + 16} << 23) ? Word{0x7c00} : result;
  result = magnitude > kInfinity ? Word{0x7e00} : result;
  return Half(result | (bits >> 16 & 0x8000));
}

PLIMSOLL_VECTORIZE void bf16_to_f32(const Half* __restrict from, float* __restrict to,
                                    std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = bf16_value(from[i]);
}
PLIMSOLL_VECTORIZE void f32_to_bf16(const float* __restrict from, Half* __restrict to,
                                    std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = bf16_of(from[i]);
}
PLIMSOLL_VECTORIZE void f16_to_f32(const Half* __restrict from, float* __restrict to,
                                   std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = f16_value(from[i]);
}
PLIMSOLL_VECTORIZE void f32_to_f16(const float* __restrict from, Half* __restrict to,
                                   std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = f16_of(from[i]);
}

}  // namespace

void to_f32(DType type, const std::byte* from, float* to, std::int64_t count) {
  switch (type) {
    case DType::f32:
      std::memcpy(to, from, std::size_t(count) * sizeof(float));
      return;
    case DType::bf16:
      return bf16_to_f32(reinterpret_cast<const Half*>(from), to, count);
    case DType::f16:
      return f16_to_f32(reinterpret_cast<const Half*>(from), to, count);
    case DType::i32:
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      break;
  }
  INVARIANT(false, "not a floating type");
}

void from_f32(DType type, const float* from, std::byte* to, std::int64_t count) {
  switch (type) {
    case DType::f32:
      std::memcpy(to, from, std::size_t(count) * sizeof(float));
      return;
    case DType::bf16:
      return f32_to_bf16(from, reinterpret_cast<Half*>(to), count);
    case DType::f16:
      return f32_to_f16(from, reinterpret_cast<Half*>(to), count);
    case DType::i32:
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      break;
  }
  INVARIANT(false, "not a floating type");
}

}  // namespace plimsoll
