// simulate(Programs, CostModel) -> Timeline and step time.
#pragma once

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

struct Simulation {
  Seconds step_time;  ///< steady-state period
  /// Steady-state step of the representative ranks (folded) or of all ranks (unfolded), starting
  /// at time 0; memory of the same ranks.
  Timeline timeline;
  Provenance worst = Provenance::measured;  ///< weakest provenance of any op's cost
  /// Seconds of the step by provenance, over the critical rank's ops.
  std::array<Seconds, 4> by_provenance;
};

/// programs[i] is the class of stage i.
Simulation simulate(std::span<const Program> programs, const CostModel& costs,
                    Folding folding = Folding::folded);

}  // namespace plimsoll
