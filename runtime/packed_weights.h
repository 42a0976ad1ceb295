// Frozen weights in 4 bits are packed, and unpacked where a product reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/op.h"

namespace plimsoll {

/// NormalFloat: 16 values between -1 and 1, dense where those of a normal distribution are
/// (Dettmers et al. 2023, arXiv 2305.14314, section 3 and appendix E).
inline constexpr std::array<float, 16> kNormalFloat = {
    -1.0f,           -0.69619280099f, -0.52507305145f, -0.39491748809f,
    -0.28444138169f, -0.18477343023f, -0.09105003625f, 0.0f,
    0.07958029956f,  0.16093020141f,  0.24611230195f,  0.33791524172f,
    0.44070982933f,  0.56261700392f,  0.72295683622f,  1.0f};

/// Packs a weight into as many bytes as packed_bytes() returns. Each element becomes the nearest of
/// the 16 values times its block's scale.
void pack_weight(std::span<const float> weight, bool nested, std::byte* packed);
/// Unpacks elements [first, first + values.size()) of a weight with `elements` elements.
void unpack_weight(const std::byte* packed, std::int64_t elements, bool nested, std::int64_t first,
                   std::span<float> values);

}  // namespace plimsoll
