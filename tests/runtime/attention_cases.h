// Cases of flash attention.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/runtime/op_cases.h"

namespace plimsoll {

struct AttentionSizes {
  std::int64_t batch, sequence, heads, key_heads, depth;
  bool causal = true;
  std::int64_t window = 0;  ///< keys that a query sees; 0: all before it
  bool apart = false;       ///< keys and values are operands of their own
  /// The width of values that are apart, or else lie beside the key in each head; 0: as keys.
  std::int64_t value_depth = 0;
  double soft_cap = 0;
  bool chunks = false;  ///< of the window's length
  std::int64_t alibi_heads = 0;
  bool examples = false;  ///< within the sequences
};

/// Sizes with ALiBi over all heads.
inline AttentionSizes with_alibi(AttentionSizes sizes) {
  sizes.alibi_heads = sizes.heads;
  return sizes;
}

inline AttentionSizes with_examples(AttentionSizes sizes) {
  sizes.examples = true;
  return sizes;
}

/// Forward, then backward fed with what the reference makes of it. Of one packed operand where
/// there are as many key heads as heads, else of two.
std::vector<OpCase> flash_attention_cases(const AttentionSizes& sizes);

/// In f32 and bf16, every third size in f16 too: tiles that are full, cut and empty; heads that
/// fill a tile, and that do not; more than one query head per key head; heads too wide for tensor
/// cores. With `examples` the causal ones, within examples.
std::vector<OpCase> attention_cases(bool examples = false);

}  // namespace plimsoll
