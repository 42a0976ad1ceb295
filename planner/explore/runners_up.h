// Runners-up: the plans that lost, the term by which each loses, and the Pareto front.
#pragma once

#include <span>
#include <vector>

#include "predict/evaluate.h"

namespace plimsoll {

/// Runners-up that are shown.
inline constexpr std::size_t kRunnersUp = 5;
/// The Pareto front ends where a step takes this many times the best one's: what is slower trades
/// too much time for its memory to be of interest, and proving it would take most of a search.
inline constexpr double kFrontTimes = 1.5;

/// An evaluated strategy, without its timeline. Of one that does not fit: memory only.
struct Candidate {
  std::size_t index = 0;  ///< in canonical order
  Strategy strategy;
  Score score;
  bool too_long = false;  ///< its step is longer than kLongestTimeline
  bool replayed = false;  ///< what its allocator takes is known
};

bool feasible(const Candidate& candidate);
/// The order of merit of feasible ones: step time, then peak bytes, then canonical order.
bool better(const Candidate& a, const Candidate& b);
/// Whether two strategies differ at most in details: the sizes of gradient buckets, how many layers
/// of a chunk are recomputed, how early parameters are gathered, in how many chunks each stage has
/// its layers, what the ends of the model count as, and how many of the replicas share their
/// optimizer states. They are one plan among the runners-up.
bool same_but_details(const Strategy& a, const Strategy& b);

/// Indices into `candidates` in order of merit: the best plan, then the kRunnersUp next that differ
/// from all before in more than details. Only feasible ones; fewer where there are fewer.
std::vector<std::size_t> best_plans(std::span<const Candidate> candidates);

/// Indices into `candidates`, in order of merit, up to kFrontTimes times the best step: the best
/// plan, then each whose live bytes are at least kFrontSaving below those of the one before it.
std::vector<std::size_t> pareto_front(std::span<const Candidate> candidates);

/// How `loser` loses against `best`: the breakdown term that grows most; "memory" with the bytes
/// more where time is equal; "tie" where only the canonical order decides. Both with breakdowns.
RunnerUp runner_up(const Strategy& strategy, const Score& loser, const Score& best);

/// Puts those that are tied with the best plan first, the simplest of them first, of equally simple
/// ones the better; `runners_up` are in order of merit.
void tied_first(std::vector<RunnerUp>& runners_up);

}  // namespace plimsoll
