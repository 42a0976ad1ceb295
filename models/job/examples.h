// Examples of unequal lengths fill the sequences of a step. One function draws them, so that
// kernels, FLOPs and predictions of steps have the same ones.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/job/job.h"
#include "models/job/philox.h"

namespace plimsoll {

/// ExampleRows lays out the examples of each step's global batch. Example e of a step has the
/// length that word e of the step's Philox stream draws from Job::lengths, but at most that of the
/// sequence. A packed sequence has examples in this order, up to the first that does not fit, with
/// which the next one begins. With Job::balanced the sequences of a step are then ordered so that
/// halves of the batch have about as many scores, halves of these too, and so on: whatever the
/// strategy, the sequences of a rank follow each other. Ranks that share a sequence then share each
/// of its examples, if they can (cuts_examples).
class ExampleRows {
 public:
  explicit ExampleRows(const Job& job);

  std::int64_t sequence() const { return sequence_; }
  /// Returns whether each of the ranks that share a sequence has an equal part of each example, in
  /// two chunks (Transformer Engine, thd_partition_indices). They do with Job::balanced if lengths
  /// are multiples of 2 ranks. Dropout, which is drawn by places in whole sequences, excludes it.
  bool cuts_examples(std::int64_t ranks) const;
  /// Calls visit(sequence, begin, tokens) for each example of the first `sequences` of a step, in
  /// order. It begins at position `begin` of its sequence.
  template <class Visit>
  void each(std::int64_t step, std::int64_t sequences, Visit visit) const {
    if (!balanced_) return in_order(step, sequences, visit);
    for (const Example& example : in_balance(step, sequences))
      visit(example.sequence, example.begin, example.tokens);
  }

 private:
  struct Example {
    std::int64_t sequence, begin, tokens;
  };
  /// Dropout has sites from 0 on, and predictions of masked tokens have -1.
  static constexpr std::int64_t kSite = -2;

  std::int64_t length(std::uint32_t word) const;
  std::vector<Example> in_balance(std::int64_t step, std::int64_t sequences) const;
  template <class Visit>
  void in_order(std::int64_t step, std::int64_t sequences, Visit visit) const {
    const PhiloxKey key = philox_key(seed_, step, kSite);
    std::array<std::uint32_t, 4> words = {};
    std::int64_t at = 0, begin = 0;
    for (std::uint64_t example = 0;; ++example) {
      if (example % 4 == 0)
        words = philox({std::uint32_t(example / 4), std::uint32_t(example >> 34), 0, 0}, key);
      const std::int64_t tokens = length(words[example % 4]);
      if (begin > 0 && (packing_ == Packing::padded || begin + tokens > sequence_)) ++at, begin = 0;
      if (at == sequences) return;
      visit(at, begin, tokens);
      begin += tokens;
    }
  }

  struct Length {
    double below;  ///< words below this, and not below that of the length before, draw it
    std::int64_t tokens;
  };
  std::vector<Length> lengths_;
  Packing packing_;
  bool balanced_, cuts_ = false;
  std::int64_t sequence_, seed_;
};

/// The most examples that a sequence may have on average, since costs are averages of draws.
inline constexpr double kMostExamples = 16384;
/// Returns how many it has on average if none is padding.
double examples_per_sequence(const Job& job);
/// Returns the share of a sequence's tokens that are of examples, on average.
double share_of_tokens(const Job& job);
/// Returns the scores within examples as a share of those of whole sequences, on average.
double share_of_scores(const Job& job, const AttentionParams& params);

/// How ranks share the sequences of a step.
struct ExampleRanks {
  std::int64_t replicas = 1;     ///< ranks that read different sequences
  std::int64_t micro_batch = 1;  ///< sequences
  std::int64_t parts = 1;        ///< ranks of cp, each with the scores of its part of the queries
  bool waits = false;            ///< replicas wait for each other in every micro-batch
};
/// The scores that the slowest rank computes in a step, over those of the mean rank.
struct SlowestRank {
  double mean = 1;       ///< over steps
  double deviation = 0;  ///< standard deviation from step to step
};
/// Returns it for the first steps of the job. Ranks that share sequences wait for each other in
/// every micro-batch, replicas at the end of a step or there, too.
SlowestRank slowest_rank(const Job& job, const ExampleRanks& ranks);

}  // namespace plimsoll
