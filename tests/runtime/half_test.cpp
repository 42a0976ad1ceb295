// Conversions of 16-bit floating types: every value of them, and every rounding near every value.
#include "runtime/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float value_of(DType type, std::uint16_t bits) {
  float value;
  to_f32(type, reinterpret_cast<const std::byte*>(&bits), &value, 1);
  return value;
}

std::uint16_t bits_of(DType type, float value) {
  std::uint16_t bits;
  from_f32(type, &value, reinterpret_cast<std::byte*>(&bits), 1);
  return bits;
}

/// The value by the definition of the format: sign, exponent, fraction.
double by_definition(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  const double one = exponent == 0 ? 0 : 1 << fraction_bits;
  return sign * std::ldexp(one + fraction, std::max(exponent, 1) - bias - fraction_bits);
}

class Half : public testing::TestWithParam<std::pair<DType, int>> {};

TEST_P(Half, EveryValueIsThatOfTheDefinitionAndComesBack) {
  const auto [type, exponent_bits] = GetParam();
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = std::uint16_t(i);
    const double expected = by_definition(bits, exponent_bits);
    const float value = value_of(type, bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(value_of(type, bits_of(type, value)))) << i;
      continue;
    }
    ASSERT_EQ(double(value), expected) << i;
    ASSERT_EQ(bits_of(type, value), bits) << i;
  }
}

TEST_P(Half, RoundsToNearestTiesToEven) {
  const auto [type, exponent_bits] = GetParam();
  for (std::uint32_t i = 0; i < 0x7fff; ++i) {  // between neighbours, subnormal ones too
    const double below = by_definition(std::uint16_t(i), exponent_bits);
    const double above = by_definition(std::uint16_t(i + 1), exponent_bits);
    if (!std::isfinite(below) || !std::isfinite(above)) continue;
    const auto middle = float((below + above) / 2);
    if (double(middle) != (below + above) / 2) continue;  // f32 has none in between
    const auto even = std::uint16_t(i % 2 == 0 ? i : i + 1);
    ASSERT_EQ(bits_of(type, middle), even) << i;
    ASSERT_EQ(bits_of(type, -middle), even | 0x8000) << i;
    ASSERT_EQ(bits_of(type, std::nextafter(middle, 0.0f)), i) << i;
    ASSERT_EQ(bits_of(type, std::nextafter(middle, kInfinity)), i + 1) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Half,
                         testing::Values(std::pair{DType::f16, 5}, std::pair{DType::bf16, 8}));

TEST(HalfLimits, BeyondTheLargestValueIsInfinity) {
  EXPECT_EQ(value_of(DType::f16, bits_of(DType::f16, 65519.0f)), 65504);
  EXPECT_EQ(value_of(DType::f16, bits_of(DType::f16, 65520.0f)), kInfinity);
  EXPECT_EQ(value_of(DType::f16, bits_of(DType::f16, -1e30f)), -kInfinity);
  EXPECT_EQ(value_of(DType::bf16, bits_of(DType::bf16, std::numeric_limits<float>::max())),
            kInfinity);
}

}  // namespace
}  // namespace plimsoll
