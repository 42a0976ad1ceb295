// Angles of rotary position embeddings (Su et al. 2021, arXiv 2104.09864): columns i and i + w/2 of
// a head are turned by position * base^(-2i/w), where w columns of it are turned. It is the pairing
// of GPT-NeoX and of LLaMA in Hugging Face.
#pragma once

#include <vector>

#include "graph/op.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

/// Cosines and sines of the rank's tokens of a sequence [tokens, width/2], times the amplitude.
/// There are none if nothing is turned.
struct RotaryAngles {
  std::vector<float> cosine, sine;
  std::vector<float> growth;  ///< factors of queries [tokens]; empty: they do not grow
};

/// Returns the angle of one position for each pair of columns [width/2]:
///
///   - linear: all are divided by the factor (Chen et al. 2023, arXiv 2306.15595, section 2.3);
///   - llama3: those that turn less than `low` times in `original` tokens are, those that turn more
///     than `high` times are not, and between the two the share that is grows with the number of
///     turns (meta-llama/llama-models models/llama3/model.py, apply_scaling);
///   - yarn: likewise, but the share grows with the column (Peng et al. 2023, arXiv 2309.00071,
///     section 3.2).
std::vector<double> rotary_frequencies(const RotaryParams& params, std::int64_t width);

/// `direction` is 1, or -1 to turn back.
RotaryAngles rotary_angles(const RotaryParams& params, const SequencePart& part, std::int64_t width,
                           double direction);

}  // namespace plimsoll
