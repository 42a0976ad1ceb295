// Simulate: from the Programs of a job and a cost model to a step time and a Timeline.
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
#include "simulator/critical_op.h"
#include "simulator/ranks/call_cycles.h"
#include "simulator/ranks/rank_choice.h"
#include "simulator/ranks/step_account.h"

namespace plimsoll {

/// The parts of a Simulation that are wanted beside its step time.
enum class Detail : std::uint8_t {
  none,                ///< none: for candidates of a search
  critical,            ///< the ops of the critical rank
  calls,               ///< these, and the timeline of every simulated rank call by call
  calls_and_critical,  ///< as `calls`, and `critical_intervals`
  ops,  ///< the ops of the critical rank, and the timeline of every simulated rank op by op
};

/// Steps of 10 days: longer than anybody trains with, and short enough for the clock to hold
/// several of them.
inline constexpr Picoseconds kLongestStep{std::int64_t{864'000'000'000'000'000}};

struct Simulation {
  Seconds step_time;  ///< steady-state period; the mean where steps of different length alternate
  /// A step in steady state that starts at time 0, with its memory: of one rank for each class of
  /// ranks (folded), or of all ranks (unfolded).
  Timeline timeline;
  /// The critical rank computes longest (of equals, the lowest). `critical` is its step op by op,
  /// in the order of its Program.
  std::int64_t critical_rank = 0;
  std::vector<CriticalOp> critical;
  std::vector<std::string> groups;  ///< "", then "mp", "sharding,dp", "pp", as they first appear
  /// With Detail::calls_and_critical: the critical rank's step as intervals, in order of time.
  std::vector<Interval> critical_intervals;
  /// The time that each representative rank computes in the step.
  std::vector<Picoseconds> computes;
  /// By rank of the grid: the rank of the timeline that stands for it (unfolded: itself).
  std::vector<std::int64_t> represented_by;
  Provenance worst = Provenance::measured;  ///< weakest provenance of any op's cost
  /// Seconds of the step by provenance, over the ops of the rank that computes longest.
  std::array<Seconds, kProvenances> by_provenance;
  /// Half width of the 90 % interval of the sum of the same ops (step_account.h), and those of them
  /// that were extrapolated (not with Detail::none).
  Seconds open;
  std::vector<OutOfRange> out_of_range;
  MeasuredShares measured;  ///< of the same ops
};

/// Simulates steps one after the other. `programs` are those of all classes of ranks of a job. A
/// rank starts a step when everything that it issued for the step before has ended. Simulation
/// stops when a step begins as an earlier one did (steady_state.h), when the period repeats, or
/// after 8 steps; after 8, the mean of the last two is the period. The last step is the result.
/// Throws InfeasibleError for a step longer than kLongestStep.
///
/// With Detail::none a step of many micro-batches may be run from a few of them (shortened_step.h).
/// On Execution::streams, calls that no other class of ranks enters run as composed routines
/// (routine_map.h). Both give the same times to the picosecond, in less time.
Simulation simulate(std::span<const Program> programs, const CostModel& costs,
                    Folding folding = Folding::folded, Detail detail = Detail::ops);

/// Returns the step time that simulate() with Detail::none has for Programs of many micro-batches,
/// from Programs of fewer that stand for them (shortened_step.h). Returns nothing where the shorter
/// step does not show that it repeats. Throws what simulate() throws.
std::optional<Seconds> step_time(std::span<const Program> fewer, const FewerMicroBatches& stand_for,
                                 const CostModel& costs);

/// Returns one rank's memory over a step: its peak, and a curve with a point for each call that
/// changes it. `call_begins` times the points; a call that begins before an earlier one has the
/// earlier one's time.
RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins);

}  // namespace plimsoll
