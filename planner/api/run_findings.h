// Run findings: what the log of a run shows against its prediction, for a terminal and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "fitting/learn.h"
#include "planner/api/own_run.h"

namespace plimsoll {

/// Returns whether a run's median step is in the 90 % interval of the prediction before.
bool is_expected(const OwnRun& own, const LearnedRun& learned);

/// Returns some five lines: how long a step takes against its prediction, which numbers account for
/// the difference, and whether steps drift or are slow now and then. `learned` is of `own`.
std::string run_lines(const OwnRun& own, const LearnedRun& learned);
/// Returns this with the files of the run, as runs of learn.json, few-changes.json and drift.json.
Json run_json(const OwnRun& own, const LearnedRun& learned);

/// A run, and what is learned of it alone.
struct LearnedFrom {
  OwnRun own;
  Learned learned;
  const LearnedRun& run() const { return learned.runs[0]; }
};
/// Reads the runs and learns from each without the others.
std::vector<LearnedFrom> learn_one_by_one(const LearnQuestion& question);

/// Returns the target with learned numbers in place of its fit.
Target with_learned(const Target& target, FittedCalibration fitted);

}  // namespace plimsoll
