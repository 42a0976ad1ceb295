// Stage memory: shows how much of its device each class of ranks takes, and which tensors are alive
// at the peak.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "plan/check.h"
#include "plan/filling.h"
#include "plan/plan.h"
#include "predict/target.h"
#include "simulator/memory/allocation_replay.h"

namespace plimsoll {

/// A class of ranks, as `planner simulate` shows it.
struct StageMemory {
  StagePrediction stage;
  Filling filling;                  ///< of the stage's device
  BytesByRole by_role;              ///< at the first peak; sums to stage.allocated
  std::vector<AliveTensors> alive;  ///< at that peak, largest first; sums to stage.allocated
};
/// Returns the memory of the stage that lay_out() made of this Program.
StageMemory memory_at_peak(const Target& target, const Strategy& strategy, const Program& program,
                           const StagePrediction& stage);

/// Returns a table of all stages, and the tensors alive at the peak of the stage with least room.
std::string describe(std::span<const StageMemory> stages, const Framework& framework);

/// The rule of allocator peaks for `planner check`. The check knows no reserve, so the allocator of
/// the plan may have given back memory that the replay keeps.
extern const Rule kAllocatorPeaks;
/// Checks that a plan's allocated and reserved bytes are those that a replay of its Programs finds.
std::vector<Violation> check_allocators(const Plan& plan);

}  // namespace plimsoll
