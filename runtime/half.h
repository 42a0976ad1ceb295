// Floating-point types of tensors are converted to and from f32: bf16, and f16 (binary16 of IEEE
// 754-2019).
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/tensor.h"

namespace plimsoll {

/// Converts `count` elements of a floating type at `from` to f32.
void to_f32(DType type, const std::byte* from, float* to, std::int64_t count);
/// Rounds to nearest, ties to even (IEEE 754-2019, 4.3.1). Values beyond the largest finite value
/// of the type become infinity, and NaN stays NaN.
void from_f32(DType type, const float* from, std::byte* to, std::int64_t count);

inline std::int64_t element_bytes(DType type) { return bytes_of(type).count(); }

}  // namespace plimsoll
