// Pipeline rhythm: finds whether the stages of a pipeline repeat themselves. If they do, a step of
// few micro-batches tells when a step of many ends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "passes/strategy/strategy.h"
#include "simulator/ranks/kernel_delays.h"

namespace plimsoll {

/// The cycles that every stage repeats between filling and draining the pipeline.
struct PipelineCycles {
  std::int64_t micro_batches = 1;  ///< of one cycle: 1, or pp where stages have several chunks
  std::int64_t actions = 0;        ///< of one cycle, on each stage
  std::int64_t left_out = 0;       ///< cycles; 0: all micro-batches are run
  std::int64_t in_flight = 0;      ///< no action waits for an action more cycles before it
  /// Returns the place of the first cycle's first action in the order of a stage.
  std::int64_t first_action(const Strategy& strategy, std::int64_t stage) const;
};

/// Returns the cycles that can be left out of so many micro-batches: none where they would be few,
/// and none in GPipe, which has no cycles.
PipelineCycles pipeline_cycles(const Strategy& strategy, std::int64_t micro_batches);

/// The times of one action of a stage. Equal actions of different cycles differ by the same time in
/// each.
struct ActionTimes {
  Picoseconds began, ended;
  Picoseconds received;  ///< the transfer into it ended; `began` where there is none
  Picoseconds clock;     ///< later than `ended` where the host issues late
  Picoseconds issued;    ///< by a host that waits for ops; otherwise `clock`
  bool operator==(const ActionTimes&) const = default;
};
ActionTimes later(const ActionTimes& times, Picoseconds by);

/// The actions of a stage in a run.
struct StageRecord {
  std::vector<ActionTimes> actions;             ///< in the order of the stage
  std::vector<KernelDelays::Lost> lost;         ///< behind the last action of each cycle
  std::optional<Picoseconds> issued_per_cycle;  ///< host time, if the host waits for no op
  void clear();
};

/// Returns the time of a cycle, the same on every stage. The run shows it if, for a span of time,
/// all that happens on any stage happens again a cycle later. The span must be longer than any
/// action reaches back. Then a step of more cycles goes on in this way, and ends as this one does.
/// A host that is late must be late at the same pace. Returns nothing where the run does not show
/// it.
std::optional<Picoseconds> rhythm(const Strategy& strategy, const PipelineCycles& cycles,
                                  std::span<const StageRecord> stages);

}  // namespace plimsoll
