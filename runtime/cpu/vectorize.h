// Own loops are compiled for several instruction sets, and one is chosen when the program starts.
// It has an exponential that compilers can vectorise.
#pragma once

#include <bit>
#include <cstdint>

/// PLIMSOLL_VECTORIZE goes before the definition of a function and makes variants for AVX-512, AVX2
/// and the baseline. Reductions in such functions keep explicit lanes, so all variants give the
/// same bits. Sanitizers instrument the resolver, which runs before they are set up, so with them
/// only the baseline is built.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(PLIMSOLL_SANITIZED)
#define PLIMSOLL_VECTORIZE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLIMSOLL_VECTORIZE
#endif

namespace plimsoll {

/// Fills with a value. std::fill at -O2 stores one element at a time.
void fill_floats(float* values, std::int64_t count, float value);
/// Computes sum = a + b, where `sum` may be `a` or `b`.
void add_rows(const float* a, const float* b, float* sum, std::int64_t count);
/// Returns the sum of a b.
float dot(const float* a, const float* b, std::int64_t count);

/// Returns exp(x) in two ulp: 2^n times a polynomial of the rest (constants of Cephes expf, Moshier
/// 1992).
inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float n = (x * 1.44269504f + kRound) - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>((std::int32_t(n) + 127) << 23);
}

}  // namespace plimsoll
