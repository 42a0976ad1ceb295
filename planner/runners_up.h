// Runners-up: the plans that lost, and the term by which each loses.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/evaluate.h"

namespace plimsoll {

/// An evaluated strategy, without its timeline.
struct Candidate {
  Strategy strategy;
  Score score;  ///< of one that does not fit: memory only, until it is to be shown
  /// Why no step time is known although it was asked for; such a one is never chosen or shown.
  std::string too_long = {};
  std::string programs = {};  ///< digests of its Programs, joined: equal programs are the same plan
};

/// The order of merit: what fits, by step time, then by peak bytes; then what does not fit, by the
/// arena it would need; then what takes too long. Equals keep their order.
bool better(const Candidate& a, const Candidate& b);

/// Indices of the plans worth showing beside `best`: the five next in merit whose Programs differ
/// from every plan shown before, then the best of each split (mp, pp, dp, sharding degree) not yet
/// shown; eight at most, none that takes too long. `ranked` holds indices into `candidates` in
/// order of merit, best first.
std::vector<std::size_t> choose_runners_up(std::span<const Candidate> candidates,
                                           std::span<const std::size_t> ranked);

/// How `loser` loses against `best`: the breakdown term that grows most; "memory" with the bytes
/// over capacity where it does not fit, or with the bytes more where time is equal; "tie" where
/// only the canonical order decides.
RunnerUp runner_up(const Candidate& loser, const Candidate& best, Bytes reserve);

}  // namespace plimsoll
