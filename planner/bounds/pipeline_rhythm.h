// Pipeline rhythm: whether the stages of a pipeline repeat themselves, so that a step of few
// micro-batches tells when one of many ends.
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
  std::int64_t left_out = 0;       ///< 0: all micro-batches are run
  std::int64_t in_flight = 0;      ///< no action waits for one that is more cycles before it
  /// The first cycle's first action, in the order of a stage.
  std::int64_t first_action(const Strategy& strategy, std::int64_t stage) const;
};

/// How many cycles can be left out of so many micro-batches; 0 where few would be, or where there
/// are none (GPipe).
PipelineCycles pipeline_cycles(const Strategy& strategy, std::int64_t micro_batches);

/// The times of one action of a stage. Two equal actions at different times differ by that time in
/// all of them.
struct ActionTimes {
  Picoseconds began, ended;
  Picoseconds received;  ///< what it begins from; `began` where it receives nothing
  Picoseconds clock;     ///< later than `ended` where the host issues late
  bool operator==(const ActionTimes&) const = default;
};
ActionTimes later(const ActionTimes& times, Picoseconds by);

struct StageRecord {
  std::vector<ActionTimes> actions;      ///< in the order of the stage
  std::vector<KernelDelays::Lost> lost;  ///< behind the last action of each cycle
  Picoseconds issued_per_cycle;          ///< host time
  void clear();
};

/// How long a cycle takes on every stage; nothing where the run does not show that more cycles
/// would do the same. It shows it where there is a span of time in which all that happens on any
/// stage happens again a cycle later, and which is longer than anything reaches back: then a step
/// of more cycles goes on so, and ends as this one does. Hosts that are late must be so at this
/// pace.
std::optional<Picoseconds> rhythm(const Strategy& strategy, const PipelineCycles& cycles,
                                  std::span<const StageRecord> stages);

}  // namespace plimsoll
