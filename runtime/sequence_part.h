// A SequencePart says which tokens of a sequence lie where, on one rank of those that share it. By
// their positions ALiBi biases scores.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define PLIMSOLL_ANYWHERE __host__ __device__
#else
#define PLIMSOLL_ANYWHERE
#endif

namespace plimsoll {

/// Where cp ranks share sequences, a sequence is cut into 2 cp chunks, and rank r has chunk r and
/// chunk 2 cp - 1 - r (passes/graph/context_exchange.cpp). A SequencePart lists tokens of each
/// sequence in ascending order of their positions: those of one rank, or all, as they lie after an
/// all-gather, where the tokens of the first rank come first, those of all sequences.
struct SequencePart {
  std::int64_t tokens = 0;  ///< of a sequence in this list
  std::int64_t ranks = 1;   ///< that share it
  std::int64_t rank = 0;    ///< whose tokens they are; -1: all ranks'
  std::int64_t batch = 1;   ///< sequences

  /// Returns the tokens of a chunk; whole sequences are one.
  PLIMSOLL_ANYWHERE std::int64_t chunk() const {
    return ranks == 1 ? tokens : rank < 0 ? tokens / (2 * ranks) : tokens / 2;
  }
  /// Returns the position in its sequence of the i-th token of the list.
  PLIMSOLL_ANYWHERE std::int64_t position(std::int64_t i) const {
    if (ranks == 1 || rank < 0) return i;
    const std::int64_t half = tokens / 2;
    return i < half ? rank * half + i : (2 * ranks - 2 - rank) * half + i;
  }
  /// Returns how many tokens of the list have a position below this one.
  PLIMSOLL_ANYWHERE std::int64_t before(std::int64_t position) const {
    if (position <= 0) return 0;
    if (ranks == 1 || rank < 0) return position < tokens ? position : tokens;
    const std::int64_t half = tokens / 2;
    const std::int64_t front = position - rank * half;
    const std::int64_t back = position - (2 * ranks - 1 - rank) * half;
    if (back > 0) return half + (back < half ? back : half);
    return front <= 0 ? 0 : front < half ? front : half;
  }
  /// Returns the row of memory of the i-th token of sequence `of`.
  PLIMSOLL_ANYWHERE std::int64_t row(std::int64_t of, std::int64_t i) const {
    if (ranks == 1 || rank >= 0) return of * tokens + i;
    const std::int64_t half = tokens / (2 * ranks), chunk = i / half;
    const bool back = chunk >= ranks;
    const std::int64_t owner = back ? 2 * ranks - 1 - chunk : chunk;
    return ((owner * batch + of) * 2 + (back ? 1 : 0)) * half + i % half;
  }

  // Where each example is cut as a sequence is (ExampleRows::cuts_examples), the tokens from
  // `begin` to `end` of a sequence are cut by themselves, and a rank has its part of the first ones
  // first.
  /// Returns the position of the i-th token of the list, which is one of these tokens.
  PLIMSOLL_ANYWHERE std::int64_t position(std::int64_t i, std::int64_t begin,
                                          std::int64_t end) const {
    return begin + cut(begin, end).position(i - begin / ranks);
  }
  /// Returns how many tokens of the list have a position below this one, which is one of these.
  PLIMSOLL_ANYWHERE std::int64_t before(std::int64_t position, std::int64_t begin,
                                        std::int64_t end) const {
    return begin / ranks + cut(begin, end).before(position - begin);
  }
  /// Returns the row of memory of the i-th token of a list of all ranks' tokens, one of these.
  PLIMSOLL_ANYWHERE std::int64_t row(std::int64_t of, std::int64_t i, std::int64_t begin,
                                     std::int64_t end) const {
    const std::int64_t half = (end - begin) / (2 * ranks), chunk = (i - begin) / half;
    const bool back = chunk >= ranks;
    const std::int64_t owner = back ? 2 * ranks - 1 - chunk : chunk;
    const std::int64_t within = begin / ranks + (back ? half : 0) + (i - begin) % half;
    return (owner * batch + of) * (tokens / ranks) + within;
  }

 private:
  PLIMSOLL_ANYWHERE SequencePart cut(std::int64_t begin, std::int64_t end) const {
    return {(end - begin) / ranks, ranks, rank, batch};
  }
};

/// Returns the slope of a head of `heads` ones. A score has slope (j - i) added, where i and j are
/// the positions of query and key (ALiBi, arXiv 2108.12409, section 3). With p the largest power
/// of 2 that is not above `heads`, the first p slopes are 2^(-8 (h + 1) / p). The rest has every
/// second slope of 2 p heads (ofirpress/attention_with_linear_biases). All are multiplied by
/// `scale`.
PLIMSOLL_ANYWHERE inline float alibi_slope(std::int64_t head, std::int64_t heads, float scale) {
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const float share = head < power ? 8.0f * float(head + 1) : 4.0f * float(2 * (head - power) + 1);
  return scale * exp2f(-share / float(power));
}

}  // namespace plimsoll
