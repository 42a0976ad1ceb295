// Own loops compiled for several instruction sets, chosen when the program starts.
#pragma once

#include <cstdint>

/// Goes before the definition of a function: variants for AVX-512, AVX2 and the baseline.
/// Reductions in such functions keep explicit lanes, so all variants give the same bits. Sanitizers
/// instrument the resolver that runs before they are set up, so there only the baseline is built.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(PLIMSOLL_SANITIZED)
#define PLIMSOLL_VECTORIZE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLIMSOLL_VECTORIZE
#endif

namespace plimsoll {

/// std::fill at -O2 stores one element at a time.
void fill_floats(float* values, std::int64_t count, float value);
/// sum = a + b; may be one of them.
void add_rows(const float* a, const float* b, float* sum, std::int64_t count);

}  // namespace plimsoll
