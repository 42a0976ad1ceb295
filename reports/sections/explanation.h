// Explanation: the plan's step in more detail than a plan file holds, and what would change it. The
// report shows it where the plan's cluster and calibration are at hand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "plan/plan.h"

namespace plimsoll {

/// Tensors of one name.
struct NamedTensors {
  std::string name;
  TensorRole role = TensorRole::activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< of all of them together
};

/// The tensors that are alive at the peak of a class of ranks.
struct TensorsAtPeak {
  std::size_t stage = 0;              ///< index in Prediction::stages
  Bytes allocated;                    ///< the sum of all tensors
  std::vector<NamedTensors> tensors;  ///< largest first
};

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

/// The plan's step with one rate of the machine changed, all else being equal.
struct ChangedRate {
  std::string rate;                 ///< "network"
  Seconds slower, faster, doubled;  ///< with 10 % less, 10 % more, and twice the rate
};

/// The best plan that was found for devices with twice the memory.
struct MoreMemory {
  Strategy strategy;
  Seconds step_time;
  StepRatio ratio;
  bool proven = true;  ///< false: its search ended early
};

/// A plan that differs in one choice.
struct NeighbourPlan {
  Strategy strategy;
  std::string outcome;  ///< "runs", "does not fit", "takes too long", "illegal"
  std::string rule;     ///< illegal: the rule that it breaks
  Bytes need;           ///< taken of a device; not where it is illegal
  Seconds step_time;    ///< where it runs
  StepRatio ratio;      ///< where it runs: to the plan's step time
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
  std::vector<TensorsAtPeak> peaks;  ///< of stages that are alike, the fullest one
  std::vector<Communication> communication;
  std::vector<ChangedRate> rates;
  std::optional<MoreMemory> twice_memory;
  std::vector<NeighbourPlan> neighbours;  ///< best first
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

}  // namespace plimsoll
