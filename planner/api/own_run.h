// A run of one's own: a launch script and the log that its trainer printed, read together.
#pragma once

#include <string>
#include <vector>

#include "fitting/fit_model.h"
#include "interop/logs/training_log.h"
#include "planner/api/target.h"

namespace plimsoll {

/// A run of one's own: its script and its log, and what was read of both.
struct OwnRun {
  std::string script, file;
  TrainingLog log;
  SteadyPart steady;
  FitRun run;
  std::string basis;  ///< what its prediction rests on before
};

/// Asks for runs of one cluster. Each has a script and a log, in the same order.
struct LearnQuestion {
  std::vector<std::string> scripts, logs;
  TargetOptions target;
};

/// Reads the runs. Without a calibration in the question their predictions rest on what is built
/// in, so that nothing is learned from the same runs twice. Throws InputError if a log is of
/// another run than its script, or if the frameworks of the scripts have different numbers.
std::vector<OwnRun> read_runs(const LearnQuestion& question);

}  // namespace plimsoll
