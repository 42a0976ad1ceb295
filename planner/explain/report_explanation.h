// Report explanation: what a report shows of a plan in addition to its file, found by the means of
// `planner explain`, and how well the points of a calibration foretell each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "planner/explain/sensitivity.h"

namespace plimsoll {

/// One collective over one group of axes, or the transfers between stages, in a step of the
/// critical rank.
struct Communication {
  std::string kind;  ///< "all_gather"
  std::string axes;  ///< "mp", "sharding,dp", "pp"
  std::string link;  ///< level of the cluster that the group spans
  std::int64_t count = 0;
  Bytes sent;                          ///< by the rank; 0 for receives
  Picoseconds wait, transfer, hidden;  ///< as GroupTime's
};

/// Measured points of one kind, which foretell each other.
struct MeasuredCurve {
  std::string what;  ///< "all_reduce of 4"
  std::int64_t points = 0;
  double spread = 0;  ///< interquartile range over median of a point's timings; the median of all
  /// Points that were left out: time as the others foretell it over measured time, ascending.
  std::vector<double> left_out;
};

/// The measurements of one machine.
struct MeasuredMachine {
  std::string device, backend, date;
  std::vector<std::string> versions;  ///< of libraries
  std::vector<MeasuredCurve> curves;
};

struct Explanation {
  std::int64_t critical_rank = 0, critical_stage = 0;
  std::vector<StageMemory> peaks;  ///< of stages that are alike, the fullest one
  std::vector<Communication> communication;
  Sensitivity sensitivity;
  std::optional<FittedCalibration> fitted;
  std::optional<MeasuredMachine> measured;
  /// One rank of each class, in finer steps than the plan's timeline.
  Timeline timeline;
  Picoseconds resolution;          ///< shorter intervals are merged; 0: none are
  std::vector<Interval> critical;  ///< the step of the critical rank, op by op
  Picoseconds critical_resolution;
};

/// The most intervals of `timeline`, and of `critical`, that a page shows.
inline constexpr std::size_t kMostShownIntervals = 24'000;

/// Simulates the plan of the request again, and finds what would change its step (sensitivity()).
/// The result does not depend on the number of threads.
Explanation explanation_for_report(const ExplainRequest& request);

/// Returns a curve for each form of matmul, each memory-bound op and each shape of collective that
/// was measured. Each point is left out and foretold from the others of its curve, as the cost
/// model does between points. The smallest and the largest size of ops and collectives are kept,
/// because nothing on one side of them is known.
MeasuredMachine measured_machine(const Calibration& calibration);

}  // namespace plimsoll
