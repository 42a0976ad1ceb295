// A comparison subtracts a measured Timeline from a predicted one.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/measured.h"
#include "plan/plan.h"

namespace plimsoll {

struct TimePair {
  Seconds predicted, measured;
};
struct BytesPair {
  Bytes predicted, measured;
};

struct RankComparison {
  std::int64_t rank = 0;
  BytesPair peak;
  std::array<BytesPair, kTensorRoles> by_role;
};

/// The bytes that a rank sends in a step over one group of ranks, summed over all kinds of
/// communication.
struct TrafficComparison {
  std::int64_t rank = 0;
  Group group;
  BytesPair sent;
};

struct KindComparison {
  OpKind kind;
  TimePair time;  ///< per step, mean over ranks
};

/// Returns |predicted - measured| / measured.
double prediction_error(const TimePair& time);

struct Comparison {
  TimePair step_time;
  double time_error = 0;  ///< |predicted - measured| / measured
  std::vector<RankComparison> ranks;
  std::vector<TrafficComparison> traffic;   ///< by rank and group
  std::vector<KindComparison> ops;          ///< kinds that occur on either side
  TimePair exposed_wait, exposed_transfer;  ///< per step, mean over ranks
  /// Jobs with experts, where the run read what routers chose: each layer, and the load for which
  /// times are predicted.
  std::vector<MeasuredExperts> experts;
  double predicted_load = 1;
  /// Whether peak memory, every class of memory and the bytes sent over each group are equal on
  /// every rank.
  bool bytes_equal = false;
  bool time_within = false;  ///< time_error <= tolerance; true when the plan makes no timing claim
  /// False where the plan is oversubscribed, or where another communicator ran than the calibrated
  /// one. Then bytes alone decide.
  bool makes_timing_claim = true;
  std::string no_claim_reason;  ///< a clause after "because"; empty where the plan makes a claim
  double tolerance = 0.30;
  bool timeline_calls = false;  ///< the plan shows whole calls, no ops inside them
  std::string verdict;          ///< one sentence, also shown by the report
  /// Says from which costs the prediction was made, and what ran.
  std::string provenance;
  std::string predicted_communicator, measured_communicator;
};

/// The names of the two inputs in messages.
struct ComparedFiles {
  std::string plan = "plan", measured = "measurement";
};

/// Compares rank r with the plan's representative of its stage. Throws InputError when the
/// measurement is of another plan, or of other ranks than the plan's.
Comparison compare(const Plan& plan, const Measured& measured, double tolerance,
                   const ComparedFiles& files = {});
std::string comparison_text(const Comparison& comparison);  ///< tables for a terminal
std::string comparison_json(const Comparison& comparison);  ///< docs/reference/other-results.md

}  // namespace plimsoll
