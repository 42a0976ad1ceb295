// Group bench: communications among processes, over groups that lie on the nodes as asked for.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/crew.h"
#include "calibrate/schedule.h"
#include "graph/program.h"
#include "models/calibration.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Throws UsageError where hosts do not run as many processes each, host by host.
ClusterShape shape_of(const Processes& processes);

/// What one group (or pair) measured, on process 0 only.
struct GroupTimings {
  std::vector<std::int64_t> ranks;  ///< ascending
  std::vector<Seconds> timings;     ///< from the last arrival to the last completion
};

/// How a communication and ops slow each other, on process 0 only; a value per sample and group,
/// or per sample and rank.
struct OverlapTimings {
  std::vector<double> communication_slowdowns, compute_slowdowns;
};

/// Every process calls every function, with the same arguments.
class GroupBench {
 public:
  GroupBench(Processes& processes, const ClusterShape& cluster, Bytes footprint,
             std::chrono::milliseconds deadline);
  ~GroupBench();

  /// By groups, those of all nodes (or spans of nodes) at once. Every rank writes its operand, and
  /// then touches more memory as a producing op would; what arrives is checked, and wrong data ends
  /// the calibration (EnvironmentError).
  std::vector<GroupTimings> measure(const CollectivePoint& point, std::int64_t samples);
  /// First each alone, then every rank of the groups runs `work` from before its post until well
  /// after the communication may have ended. `alone`: of the communication.
  OverlapTimings measure_overlap(const CollectivePoint& point, const TimedWork& work,
                                 std::int64_t samples);
  /// How much the memory of each process grew by a communicator over such groups and its first
  /// use, by rank that takes part.
  std::vector<Bytes> measure_memory(const CollectivePoint& shape);

 private:
  struct Groups;
  struct Operand;
  Groups& groups_for(const CollectivePoint& shape);
  void leave_groups();
  CommunicationTimes communicate(const CollectivePoint& point, Operand& operand, std::int64_t i);
  std::vector<std::vector<Picoseconds>> by_rank(const std::vector<Picoseconds>& own);

  Processes& processes_;
  ClusterShape cluster_;
  Bytes footprint_;
  std::chrono::milliseconds deadline_;
  std::unique_ptr<Groups> groups_;  ///< of the last shape
};

}  // namespace plimsoll
