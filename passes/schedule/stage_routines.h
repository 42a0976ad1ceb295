// Stage routines are what the instances of a stage run in each kind of action.
#pragma once

#include <array>
#include <map>
#include <span>
#include <vector>

#include "passes/cut/program_builder.h"
#include "passes/owners/owned_cuts.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

/// The routines of instances, added to the Program once for all instances of one cut.
class StageRoutines {
 public:
  StageRoutines(const OwnedCuts& cuts, ProgramBuilder& build) : cuts_(cuts), build_(build) {}

  /// Adds the routines of an instance, whose backward is called `backwards` times for a
  /// micro-batch. To be called for each instance in order.
  void add(std::size_t instance, std::int64_t backwards);

  /// Returns the routine that an instance runs in an action, or the parts that are called one after
  /// the other. There are none where the action has no work for the instance.
  const std::vector<RoutineId>& of(ActionKind kind, std::size_t instance) const;
  bool has(ActionKind kind, std::size_t instance) const { return !of(kind, instance).empty(); }
  /// Returns whether the first calls of an instance for a micro-batch are in such an action.
  bool begins(ActionKind kind, std::size_t instance) const;
  /// Returns the whole routine.
  const Routine& whole(ActionKind kind, std::size_t instance) const;
  /// Returns for which ports of the parts before it a part waits.
  std::span<const RoutinePart::Awaited> waits(ActionKind kind, std::size_t instance,
                                              std::size_t part) const;

 private:
  using OfCut = std::array<std::vector<RoutineId>, 4>;  // by ActionKind

  const OwnedCuts& cuts_;
  ProgramBuilder& build_;
  std::map<const CutBlock*, OfCut> ids_;  // looked up only
  std::vector<const OfCut*> by_instance_;
};

}  // namespace plimsoll
