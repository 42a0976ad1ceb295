// Learn question: what runs of one's own teach, as `planner learn` and Python ask it.
#pragma once

#include <string>
#include <vector>

#include "fitting/learn.h"
#include "planner/api/own_run.h"

namespace plimsoll {

struct LearnAnswer {
  std::vector<OwnRun> runs;
  Learned learned;  ///< with a run for each of `runs`
};

/// Reads the runs and learns from them. Writes the calibration to a file, and makes its folder if
/// that is .plimsoll; an empty `output` writes none. Throws as read_runs() does, and UsageError if
/// `output` is one of the inputs.
LearnAnswer learn_runs(const LearnQuestion& question, const std::string& output);

std::string learned_text(const LearnAnswer& answer);
/// Returns what `planner learn --json` prints (schema `learn`).
std::string learned_json(const LearnAnswer& answer, const std::string& output);

}  // namespace plimsoll
