// The share of a row of logits in the loss.
#pragma once

#include "graph/op.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

/// Rows of a token follow each other: its own, which counts in full, then those of MTP modules.
/// Depth d of these predicts the token d further on, and the last d tokens of a sequence have none
/// (DeepSeek-V3, arXiv 2412.19437, section 2.2, equation 24).
struct RowShares {
  SequencePart part;
  std::int64_t depths = 1;
  double depth_weight = 1;

  RowShares(const VocabularyParams& params, SequencePart tokens)
      : part(tokens), depths(params.depths), depth_weight(params.depth_weight) {}

  PLIMSOLL_ANYWHERE double of(std::int64_t row) const {
    const std::int64_t depth = row % depths;
    if (depth == 0) return 1;
    const std::int64_t position = part.position(row / depths % part.tokens);
    return position + depth < part.tokens * part.ranks ? depth_weight : 0;
  }
};

}  // namespace plimsoll
