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
  /// The step of the last learned run of its layout over the prediction of that step; absent if no
  /// such run was learned from, or the question is not `on_learned`.
  std::optional<double> ran_before = {};
};

/// Asks for runs of one cluster. Each has a script and a log, in the same order. The first ones may
/// have traces of PyTorch's profiler, too.
struct LearnQuestion {
  std::vector<std::string> scripts, logs, traces = {};
  TargetOptions target = {};
  bool on_learned =
      false;  ///< without a calibration, predictions rest on a learned file if there is one
};

/// Reads the runs. Without a calibration in the question their predictions rest on what is built
/// in, unless `on_learned`, so that nothing is learned from the same runs twice. A trace counts
/// instead of timers that the log prints. Throws InputError if a log is of another run than its
/// script, or if the frameworks of the scripts have different numbers.
std::vector<OwnRun> read_runs(const LearnQuestion& question);

}  // namespace plimsoll
