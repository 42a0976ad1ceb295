// Schedule cost: how long a calibration of a cluster would take, simulated before it is started.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/schedule/schedule.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// Tests of one kind, and what measuring each once takes.
struct SchedulePart {
  std::string what;  ///< "collectives"
  std::size_t tests = 0, essential = 0;
  Seconds time, essential_time;
};

/// A communication takes what the cost model says of the cluster, as often as it is sampled in two
/// rounds; each sample also writes its payload, displaces the caches (32 MiB) and brings all ranks
/// together; a group takes what forming it does. Ops do not depend on the cluster's size: a test
/// takes what one took on two cores of an EPYC (journal of 2026-11-21); of devices, eight samples
/// of two replays of 2 ms each, that is close. That NCCL connects a group in about a second is
/// assumed.
Seconds simulated_time(const CalibrationTest& test, const Cluster& cluster, SweepSize size);

/// By kind, in the order of the schedule.
std::vector<SchedulePart> schedule_parts(std::span<const CalibrationTest> tests,
                                         const Cluster& cluster, SweepSize size);

/// `planner-calibrate --schedule`: a table, with what `budget` reaches and how large the journal,
/// the one file, gets.
std::string schedule_text(const ClusterShape& shape, const Cluster& cluster, SweepSize size,
                          DType precision, Seconds budget,
                          CommunicatorKind communicator = CommunicatorKind::mpi);
std::string schedule_json(const ClusterShape& shape, const Cluster& cluster, SweepSize size,
                          DType precision, Seconds budget,
                          CommunicatorKind communicator = CommunicatorKind::mpi);

}  // namespace plimsoll
