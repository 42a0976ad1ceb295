// A group bench times communications among processes, over groups with a given place on the nodes.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/measure/comm_operands.h"
#include "calibrate/measure/rank_bench.h"
#include "calibrate/schedule/schedule.h"
#include "models/calibration/calibration.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Returns the shape of the processes. Throws UsageError where hosts do not run equally many
/// processes each, host by host.
ClusterShape shape_of(const Processes& processes);

/// GroupTimings has the timings of one group (or pair), on process 0 only.
struct GroupTimings {
  std::vector<std::int64_t> ranks;  ///< ascending
  std::vector<Seconds> timings;     ///< from the last arrival to the last completion
};

/// OverlapTimings says how a communication and ops slow each other, on process 0 only. There is one
/// value per sample and group, or per sample and rank.
struct OverlapTimings {
  std::vector<double> communication_slowdowns, compute_slowdowns;
};

/// Every process calls every function of a GroupBench, with the same arguments.
class GroupBench {
 public:
  /// Operands lie in the memory of `device`, or of the host where it is null. Communicators of
  /// devices are kept until the end, since connecting takes long.
  GroupBench(Processes& processes, const ClusterShape& cluster, Bytes footprint,
             std::chrono::milliseconds deadline, RankDevice* device = nullptr);
  ~GroupBench();

  /// Connects the ranks of one group shape. Throws EnvironmentError where they cannot.
  void connect(const CollectivePoint& shape) { groups_for(shape); }
  /// Returns the name of the library that moves the data, once connected. It is empty where the
  /// launcher's own library does it.
  std::string library() const;

  /// Times a communication in each group; the groups of all nodes (or spans of nodes) communicate
  /// at once. Every rank writes its operand, and then touches more memory as an op that computes it
  /// would do. Received data is checked, and wrong data ends the calibration (EnvironmentError).
  /// Hosts are timed on their common clock. Devices have no common clock: a small communication of
  /// the group just before, on the same stream, aligns them, and each device measures its own time
  /// from there. The median rank's time counts, and for a transfer the receiver's.
  std::vector<GroupTimings> measure(const CollectivePoint& point, std::int64_t samples);
  /// Times the communication and `work` first alone. Then every rank of the groups runs `work` from
  /// its post until well after the communication may have ended.
  OverlapTimings measure_overlap(const CollectivePoint& point, RepeatedWork& work,
                                 std::int64_t samples);
  /// Returns, by rank that takes part, how much the memory of its process or device grew by a
  /// communicator over such groups and its first use. For devices it is the growth by a second
  /// communicator beside the one with which they connected.
  std::vector<Bytes> measure_memory(const CollectivePoint& shape);

 private:
  struct Groups;
  struct Operand;
  struct Timed;
  Groups& groups_for(const CollectivePoint& shape);
  std::unique_ptr<Groups> connected(const CollectivePoint& shape, std::int64_t streams);
  Bytes memory_taken() const;
  void post(const CollectivePoint& point, Operand& operand, std::int64_t i, Timed& timed,
            RepeatedWork* beside = nullptr);
  void finish(const CollectivePoint& point, Operand& operand, Timed& timed);

  Processes& processes_;
  ClusterShape cluster_;
  Bytes footprint_;
  std::chrono::milliseconds deadline_;
  RankDevice* device_;
  DeviceBlock signal_;  ///< the operand of the communication that aligns devices, once needed
  std::vector<std::unique_ptr<Groups>> groups_;  ///< by grid; for hosts only the last one
};

}  // namespace plimsoll
