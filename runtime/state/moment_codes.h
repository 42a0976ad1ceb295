// Moments in 8 bits: codes of dynamic quantization, and a scale for each block of kMomentBlock
// elements (Dettmers et al. 2022, arXiv 2110.02861).
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "graph/op.h"

namespace plimsoll {

/// The values of the 256 codes, ascending.
using MomentCode = std::array<float, 256>;

/// Returns the values of first moments (`negative`), or of second ones, which have no sign. Decade
/// i of 7, the values from 10^(i-7) to 10^(i-6), is cut into 2^i equal parts, without a sign into
/// twice as many. A code is the middle of a part, or 0, or 1 (the paper's sections 1.3 and 2.2;
/// bitsandbytes functional.py, create_dynamic_map). So code 0 of first moments is above -1.
const MomentCode& moment_code(bool negative);

/// Sets a block's values: those of its codes times its scale.
void decode_moments(bool negative, const std::byte* codes, float scale, std::span<float> values);
/// Sets the nearest codes and returns the scale, the block's largest absolute value.
float encode_moments(bool negative, std::span<const float> values, std::byte* codes);
/// Sets a block's values as checkpoints keep them: code 0 of first moments is -scale, which it
/// stands for if no value is as large. So encode_moments() gives these codes and this scale again.
void decode_kept_moments(bool negative, const std::byte* codes, float scale,
                         std::span<float> values);

}  // namespace plimsoll
