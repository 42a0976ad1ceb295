// Group bench: communications among processes, over groups that lie on the nodes as asked for.
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

/// Throws UsageError where hosts do not run as many processes each, host by host.
ClusterShape shape_of(const Processes& processes);

/// The timings of one group (or pair), on process 0 only.
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
  /// Operands lie in the memory of `device`, or of the host where it is null. Communicators of
  /// devices are kept until the end: connecting takes long.
  GroupBench(Processes& processes, const ClusterShape& cluster, Bytes footprint,
             std::chrono::milliseconds deadline, RankDevice* device = nullptr);
  ~GroupBench();

  /// Connects the ranks of one group shape. Throws EnvironmentError where they cannot.
  void connect(const CollectivePoint& shape) { groups_for(shape); }
  /// Names the library that moves the data, once connected. It is empty where the launcher's own
  /// library does.
  std::string library() const;

  /// By groups, those of all nodes (or spans of nodes) at once. Every rank writes its operand, and
  /// then touches more memory as a producing op would; what arrives is checked, and wrong data ends
  /// the calibration (EnvironmentError).
  /// Hosts are timed on their common clock. Devices have none: a small communication of the same
  /// group just before, on the same stream, lines them up, and each times its own from there; the
  /// median rank's counts, of a transfer the receiver's.
  std::vector<GroupTimings> measure(const CollectivePoint& point, std::int64_t samples);
  /// First each alone, then every rank of the groups runs `work` from its post until well after the
  /// communication may have ended.
  OverlapTimings measure_overlap(const CollectivePoint& point, RepeatedWork& work,
                                 std::int64_t samples);
  /// How much the memory of each process, or device, grew by a communicator over such groups and
  /// its first use, by rank that takes part. Of devices: by another one beside the first, with
  /// which they connected.
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
  Picoseconds now() const;

  Processes& processes_;
  ClusterShape cluster_;
  Bytes footprint_;
  std::chrono::milliseconds deadline_;
  RankDevice* device_;
  DeviceBlock signal_;                           ///< what lines devices up, once needed
  std::vector<std::unique_ptr<Groups>> groups_;  ///< by grid; of hosts the last one only
};

}  // namespace plimsoll
