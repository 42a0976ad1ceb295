// Step tail: the times of a stage's work around its micro-batches, once per step. It is the work
// before the first forward, and the work from the last action to the end of the step: reductions of
// gradients, meetings of stages for tied embeddings and for the norm, and the update.
#pragma once

#include <vector>

#include "planner/bounds/call_path.h"

namespace plimsoll {

/// Longest paths from earlier events: [0] from the begin of the stage's last action, [i] from the
/// end of the stage's i-th meeting with other stages. A path is kLongAgo where nothing leads from
/// there.
using PathsFrom = std::vector<Picoseconds>;

/// A collective that ranks of several stages take part in.
struct Meeting {
  bool pipeline_ends = false;  ///< only the two stages with a tied table take part
  Picoseconds duration;
  PathsFrom posted;
};

/// Least times of one stage.
struct StepTail {
  Picoseconds begins;           ///< from the begin of the step to the first forward
  Picoseconds begins_dispatch;  ///< host time of the same part
  Picoseconds dispatch;         ///< host time from the last action's calls to the step's end
  std::vector<Meeting> meetings;
  PathsFrom ends;
};

/// Reads the tail off a Program of few micro-batches. `last_calls` is the number of block calls in
/// the stage's last action.
StepTail step_tail(const Program& program, std::int64_t last_calls, const LeastCosts& costs);

/// Returns the latest time of a source plus its path.
Picoseconds latest(const PathsFrom& paths, const std::vector<Picoseconds>& sources);

}  // namespace plimsoll
