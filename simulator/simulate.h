// simulate(Programs, CostModel) -> Timeline and step time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "graph/timeline.h"
#include "simulator/costs/cost_model.h"
#include "simulator/ranks/fewer_micro_batches.h"
#include "simulator/ranks/rank_choice.h"
#include "simulator/ranks/step_account.h"

namespace plimsoll {

/// The parts that a Simulation keeps beside its step time.
enum class Detail : std::uint8_t {
  none,      ///< for candidates of a search
  critical,  ///< the critical rank, op by op
  calls,     ///< that, and every simulated rank, call by call
  ops,       ///< that, and every simulated rank, op by op
};

/// Nobody trains with steps of 10 days; several of them still fit the clock.
inline constexpr Picoseconds kLongestStep{std::int64_t{864'000'000'000'000'000}};

struct Simulation {
  Seconds step_time;  ///< steady-state period; the mean where steps of different length alternate
  /// Steady-state step of the representative ranks (folded) or of all ranks (unfolded), starting
  /// at time 0; memory of the same ranks.
  Timeline timeline;
  /// The rank that computes longest (the lowest of equals), and its part of the step op by op.
  std::int64_t critical_rank = 0;
  std::vector<Interval> critical;
  /// By op of `critical`: which of `groups` it communicates over; 0, "", of a local op.
  std::vector<std::uint16_t> critical_group;
  std::vector<std::string> groups;  ///< "", then "mp", "sharding,dp", "pp": as they first appear
  /// How long each representative rank computes in the step.
  std::vector<Picoseconds> computes;
  /// Which rank of the timeline stands for each rank of the grid (itself when unfolded).
  std::vector<std::int64_t> represented_by;
  Provenance worst = Provenance::measured;  ///< weakest provenance of any op's cost
  /// Seconds of the step by provenance, over the ops of the rank that computes longest.
  std::array<Seconds, kProvenances> by_provenance;
  /// For the same ops: the half width of the 90 % interval of their sum (step_account.h), and which
  /// of them were extrapolated (not with Detail::none).
  Seconds open;
  std::vector<OutOfRange> out_of_range;
  MeasuredShares measured;  ///< of the same ops
};

/// `programs` are all classes of a job. Steps are simulated one after the other, each rank starting
/// the next when all it issued has ended, until a step begins as an earlier one did
/// (steady_state.h) or the period repeats, at most 8; then the last two count. The last step is the
/// result. Throws InfeasibleError for a step longer than kLongestStep.
///
/// With Detail::none a step of many micro-batches may be run from a few of them (shortened_step.h);
/// on Execution::streams the calls that no other class of ranks enters are run as composed routines
/// (routine_map.h): the same times to the picosecond, at a cost per call instead of per op.
Simulation simulate(std::span<const Program> programs, const CostModel& costs,
                    Folding folding = Folding::folded, Detail detail = Detail::ops);

/// The step time that Detail::none finds of Programs, from Programs of fewer micro-batches that
/// stand for them (shortened_step.h). Nothing where these do not show it. Throws as simulate.
std::optional<Seconds> step_time(std::span<const Program> fewer, const FewerMicroBatches& stand_for,
                                 const CostModel& costs);

/// The step's memory of one rank: peak and curve, a point for each call that changes it, timed by
/// `call_begins` (of calls that begin before an earlier one: the earlier one's).
RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins);

}  // namespace plimsoll
