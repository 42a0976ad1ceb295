// Explained step: one strategy lowered and simulated, with all that an explanation says of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "predict/evaluate.h"
#include "predict/plan_difference.h"
#include "predict/stage_memory.h"

namespace plimsoll {

/// A step of the critical rank, with its memory.
struct ExplainedStep {
  Strategy strategy;
  Prediction prediction;
  /// The terms of the step, which sum to it. Communication is by kind and group: "all_gather over
  /// mp".
  StepParts parts;
  /// For each entry of parts.communication, the level of the cluster that the group spans.
  std::vector<std::string> links;
  /// The part of compute (forward, recompute, backward, optimizer) in ops that only move data.
  Picoseconds memory_traffic;
  std::int64_t critical_stage = 0;  ///< stage of the critical rank, which computes longest
  std::vector<Filling> fillings;    ///< by class of ranks
  StageMemory fullest;              ///< the stage with least room, and what is alive at its peak
  bool fits = false;
};

/// Lowers a legal strategy, simulates all its micro-batches and replays its allocators. Throws
/// InfeasibleError where a step takes longer than the simulator's clock holds.
ExplainedStep explain_step(const Target& target, const Strategy& strategy);

/// Returns the compute of a step: forward, recompute, backward and optimizer.
Picoseconds compute_of(const StepParts& parts);
/// Returns the exposed communication of a step: waits and transfers of all groups.
Picoseconds exposed_of(const StepParts& parts);
/// Returns what plan_difference.h compares.
PlanTime time_of(const Target& target, const ExplainedStep& step);
/// Returns the name of the innermost level of the cluster that holds the ranks of a group. The
/// group has the name that Simulation::groups gives it; "pp" stands for transfers between stages.
std::string link_of(const CostModel& costs, std::span<const Program> programs,
                    const std::string& group, std::int64_t rank);

}  // namespace plimsoll
