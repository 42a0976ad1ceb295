// Crossing buffers hold what one call of a micro-batch writes for another.
#pragma once

#include "passes/cut/program_builder.h"
#include "passes/layout/arena_layout.h"
#include "passes/owners/owned_cuts.h"
#include "passes/schedule/stage_borders.h"

namespace plimsoll {

class CrossingBuffers {
 public:
  CrossingBuffers(const ArenaLayout& layout, const OwnedCuts& cuts, const StageBorders& borders,
                  ProgramBuilder& build)
      : layout_(layout), cuts_(cuts), borders_(borders), build_(build) {}

  /// Adds the buffer for a slot of an instance's call in this action, alive from the next call on.
  BufferId add(const Slot& slot, const Action& action, std::size_t instance);

 private:
  TensorRole border_role(std::size_t reader, SlotKind kind) const;

  const ArenaLayout& layout_;
  const OwnedCuts& cuts_;
  const StageBorders& borders_;
  ProgramBuilder& build_;
};

}  // namespace plimsoll
