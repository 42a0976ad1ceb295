// Step tail: what a stage does around its micro-batches, once per step: before the first forward,
// and from the last action of its order to the end of the step. There gradients are reduced while
// they become complete, stages meet for tied embeddings and for the norm, and the update runs.
#pragma once

#include <vector>

#include "planner/bounds/call_path.h"

namespace plimsoll {

/// Times from something that happened before: [0] from the begin of the stage's last
/// action, [i] from the end of the stage's i-th meeting with other stages; kLongAgo where nothing
/// leads from there.
using PathsFrom = std::vector<Picoseconds>;

/// A collective that ranks of several stages take part in.
struct Meeting {
  bool pipeline_ends = false;  ///< of the first and the last stage only, else of all
  Picoseconds duration;
  PathsFrom posted;
};

struct StepTail {
  Picoseconds begins;           ///< from the begin of the step to the first forward
  Picoseconds begins_dispatch;  ///< host time for that
  Picoseconds dispatch;         ///< ... from the last action's calls to the end of the step
  std::vector<Meeting> meetings;
  PathsFrom ends;
};

/// Read off a Program of few micro-batches. `last_calls`: calls of blocks in the stage's last
/// action.
StepTail step_tail(const Program& program, std::int64_t last_calls, const LeastCosts& costs);

/// The latest of source + path.
Picoseconds latest(const PathsFrom& paths, const std::vector<Picoseconds>& sources);

}  // namespace plimsoll
