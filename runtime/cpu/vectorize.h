// Own loops are compiled for several instruction sets, and one is chosen when the program starts.
#pragma once

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

}  // namespace plimsoll
