// Step tail: what a stage does around its micro-batches, once per step: before the first forward,
// and from the last backward to the end of the step. There gradients are reduced while they become
// complete, stages meet for tied embeddings and for the norm, and the update runs.
#pragma once

#include <vector>

#include "planner/call_path.h"

namespace plimsoll {

/// Times from something that happened before: [0] from the begin of the last micro-batch's
/// backward, [i] from the end of the stage's i-th meeting with other stages; kLongAgo where nothing
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
  Picoseconds dispatch;         ///< ... from the last backward's calls to the end of the step
  std::vector<Meeting> meetings;
  PathsFrom ends;
};

/// Read off a Program of one micro-batch.
StepTail step_tail(const Program& one_micro_batch, const LeastCosts& costs);

/// The latest of source + path.
Picoseconds latest(const PathsFrom& paths, const std::vector<Picoseconds>& sources);

}  // namespace plimsoll
