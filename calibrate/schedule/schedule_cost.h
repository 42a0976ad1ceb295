// The schedule's cost says, before a calibration of a cluster is started, how long it would take.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/schedule/schedule.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// A SchedulePart has the tests of one kind, and the time to measure each once.
struct SchedulePart {
  std::string what;  ///< "collectives"
  std::size_t tests = 0, essential = 0;
  Seconds time, essential_time;
};

/// Returns the time to measure a test. A communication takes the cost model's time for the cluster,
/// as often as it is sampled in two rounds. Each sample also writes its payload, displaces the
/// caches (32 MiB) and synchronises all ranks, and each group has to be formed. Ops do not depend
/// on the cluster's size: a test takes the time that it took on two cores of an EPYC (journal of
/// 2026-11-21). On devices a test takes eight samples of two replays of 2 ms each, which is close.
/// NCCL is assumed to connect a group in about a second.
Seconds simulated_time(const CalibrationTest& test, const Cluster& cluster, SweepSize size);

/// Returns the parts by kind, in the order of the schedule.
std::vector<SchedulePart> schedule_parts(std::span<const CalibrationTest> tests,
                                         const Cluster& cluster, SweepSize size);

/// Returns the table of `planner-calibrate --schedule`: how far `budget` reaches, and how large the
/// journal gets, which is the only file.
std::string schedule_text(const ClusterShape& shape, const Cluster& cluster, SweepSize size,
                          DType precision, Seconds budget,
                          CommunicatorKind communicator = CommunicatorKind::mpi);
std::string schedule_json(const ClusterShape& shape, const Cluster& cluster, SweepSize size,
                          DType precision, Seconds budget,
                          CommunicatorKind communicator = CommunicatorKind::mpi);

}  // namespace plimsoll
