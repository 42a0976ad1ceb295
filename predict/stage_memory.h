// Stage memory: what each class of ranks takes of its device, and what is alive at the peak.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"
#include "plan/check.h"
#include "plan/filling.h"
#include "plan/plan.h"
#include "simulator/memory/allocation_replay.h"

namespace plimsoll {

/// A class of ranks, as `planner simulate` shows it.
struct StageMemory {
  StagePrediction stage;
  Filling filling;                  ///< of its device
  BytesByRole by_role;              ///< of stage.allocated, at its first peak; sums to it
  std::vector<AliveTensors> alive;  ///< then, largest first; sums to it
};
/// `stage`: as lay_out has it; `reserve`: bytes kept free on its device.
StageMemory memory_at_peak(const Program& program, const Framework& framework,
                           const StagePrediction& stage, Bytes outside, Bytes reserve);

/// One table of all stages, and what is alive at the peak of the one that has least room left.
std::string describe(std::span<const StageMemory> stages, const Framework& framework);

/// The rule of allocator peaks for `planner check`, which knows no reserve: under pressure an
/// allocator may have given back some of what the replay keeps.
extern const Rule kAllocatorPeaks;
/// Whether a plan's allocated and reserved bytes are those of the replay of its Programs.
std::vector<Violation> check_allocators(const Plan& plan);

}  // namespace plimsoll
