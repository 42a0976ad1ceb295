// Runners-up: picks the best plans and the Pareto front, and says by which term a plan loses.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "predict/evaluate.h"

namespace plimsoll {

/// The number of runners-up that are shown, unless a request says another.
inline constexpr std::size_t kRunnersUp = 5;
/// Which differences make two plans one among those that are shown.
enum class Likeness : std::uint8_t {
  details,   ///< same_but_details()
  switches,  ///< same_but_switches()
};
/// The plans that a search shows beside the best one.
struct Shown {
  std::size_t runners_up = kRunnersUp;
  Likeness likeness = Likeness::details;
};
/// The Pareto front ends where a step takes this many times the best step. A slower plan trades too
/// much time for memory to be of interest, and proving it would take most of a search.
inline constexpr double kFrontTimes = 1.5;

/// A strategy that a search assessed. Its prediction has step time and stages only, and for a
/// strategy that does not fit the stages only.
struct Candidate {
  std::size_t index = 0;  ///< in canonical order
  Strategy strategy;
  Prediction prediction;
  bool fits = false;
  bool too_long = false;  ///< the step is longer than kLongestTimeline
  bool replayed = false;  ///< the allocator was replayed, so `allocated` and `reserved` are known
  /// Unusual choices that count against it: weigh() finds them.
  std::vector<Unusual> unusual = {};
};

bool feasible(const Candidate& candidate);
/// Returns the step time by which a candidate is compared, with what its unusual choices count.
Seconds merit(const Candidate& candidate);
/// The order of merit of feasible candidates: merit(), then peak bytes, then canonical order.
bool better(const Candidate& a, const Candidate& b);
/// Whether two strategies differ at most in details, so that they are one plan among the
/// runners-up. Details of memory are the sizes of gradient buckets, the number of recomputed layers
/// of a chunk, how early parameters are gathered, and how many replicas share their optimizer
/// states. Details of experts are what computes while tokens travel. Details of the cut are the
/// number of chunks of each stage, and the layers that the model's ends count as.
bool same_but_details(const Strategy& a, const Strategy& b);

/// Whether two strategies split the job alike. They have the same mp, pp, cp and data-parallel
/// ranks (dp x sharding degree), the same sharding stage, micro-batch, form of recompute and
/// schedule, and the same values of keys that --try varies. All else is a switch of such a plan: it
/// does not change which part of the work a rank has.
bool same_but_switches(const Strategy& a, const Strategy& b);
bool are_alike(const Strategy& a, const Strategy& b, Likeness likeness);

/// Returns indices into `candidates` in order of merit: the best plan, then the others that are
/// shown. No two of them are alike. Only feasible candidates count.
std::vector<std::size_t> best_plans(std::span<const Candidate> candidates, const Shown& shown = {});

/// Returns the index of the feasible candidate with the shortest step, then the fewest peak bytes,
/// then the first in canonical order. Returns nothing where none is feasible.
std::optional<std::size_t> fastest_plan(std::span<const Candidate> candidates);

/// Returns indices into `candidates`, in order of merit, up to kFrontTimes times the best merit().
/// They are the best plan, then each plan whose live bytes are at least kFrontSaving below those of
/// the plan before it.
std::vector<std::size_t> pareto_front(std::span<const Candidate> candidates);

/// Says how a plan with the prediction `loser` loses against `best`: by the breakdown term that
/// grows most. If it is not slower, the term is "unusual choice" where it has some, "memory" with
/// the bytes more, or "tie" where only the canonical order decides. Both predictions must have
/// breakdowns.
RunnerUp runner_up(OtherPlan plan, const Prediction& loser, const Prediction& best);

}  // namespace plimsoll
