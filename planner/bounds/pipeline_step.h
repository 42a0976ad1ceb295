// Pipeline step: one step of all stages, an action at a time. Each stage is a rank of the
// simulator's stream engine: its actions are calls, and its transfers are rendezvous.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/bounds/time_bound.h"
#include "simulator/ranks/shortened_step.h"

namespace plimsoll {

/// The step of a pipeline. If few micro-batches show how all stages repeat themselves
/// (shorter_step.h, shortened_step.h), only these are run. The result is the same.
class PipelineStep {
 public:
  /// Whether cycles of micro-batches may be left out of a run.
  enum class Cycles : bool { leave_out, run_all };
  PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
               std::int64_t micro_batches, Cycles cycles = Cycles::leave_out);

  /// Runs a step, and a second one that begins where the first ended. Returns the least advance of
  /// any stage in a step. If `enough` accepts the bound of the first step, the second is not run.
  Picoseconds bound(const std::function<bool(Picoseconds)>& enough = {});
  /// Returns when each stage's step ends if it begins at its start.
  std::vector<Picoseconds> run(std::span<const Picoseconds> starts);
  /// Whether the last run left cycles out.
  bool left_cycles_out() const { return shortened_.has_value(); }

 private:
  const Strategy strategy_;
  std::span<const StageSpans> stages_;
  const std::int64_t micro_batches_;
  std::optional<ShortenedStep> shortened_;
  std::optional<StreamRanks> whole_;
};

}  // namespace plimsoll
