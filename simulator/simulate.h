// simulate(Programs, CostModel) -> Timeline and step time.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "graph/timeline.h"
#include "simulator/cost_model.h"

namespace plimsoll {

enum class Folding : std::uint8_t {
  folded,    ///< one simulated rank per class of ranks that behave alike
  unfolded,  ///< every rank by itself
};

/// Nobody trains with steps of 10 days; several of them still fit the clock.
inline constexpr Picoseconds kLongestStep{std::int64_t{864'000'000'000'000'000}};

struct Simulation {
  Seconds step_time;  ///< steady-state period
  /// Steady-state step of the representative ranks (folded) or of all ranks (unfolded), starting
  /// at time 0; memory of the same ranks.
  Timeline timeline;
  /// Which rank of the timeline stands for each rank of the grid (itself when unfolded).
  std::vector<std::int64_t> represented_by;
  Provenance worst = Provenance::measured;  ///< weakest provenance of any op's cost
  /// Seconds of the step by provenance, over the ops of the rank that computes longest.
  std::array<Seconds, 4> by_provenance;
};

/// programs[i] is the class of stage i. Steps are simulated one after the other, each rank starting
/// the next when all it issued has ended, until a step begins as the one before did or the period
/// repeats, at most 8. The last is the result. Throws InfeasibleError for a step longer than
/// kLongestStep.
Simulation simulate(std::span<const Program> programs, const CostModel& costs,
                    Folding folding = Folding::folded);

/// The step's memory of one rank: peak and curve, a point for each call that changes it, timed by
/// `call_begins` (of calls that begin before an earlier one: the earlier one's).
RankMemory memory_over_time(const Program& program, std::int64_t rank,
                            std::span<const Picoseconds> call_begins);

}  // namespace plimsoll
