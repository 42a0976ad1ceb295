// The schedule is the list of tests that a calibration of a cluster's processes measures. The
// groups follow from the shape of the cluster, and their number grows with the logarithm of its
// nodes and of the ranks on each node.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "calibrate/schedule/sweep.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Every node of a ClusterShape runs equally many ranks.
struct ClusterShape {
  std::int64_t nodes = 1, ranks_per_node = 1;
};

/// A DispatchTest measures the host time of ops, calls and waking up.
struct DispatchTest {};
/// A LaunchTest measures the host time to launch a kernel of a device.
struct LaunchTest {};

/// A CommunicatorMemoryTest measures how much memory of its process or device a communicator over a
/// group of this shape keeps.
struct CommunicatorMemoryTest {
  CollectivePoint shape;
};

/// An OverlapTest measures a communication beside an op that every rank repeats meanwhile.
struct OverlapTest {
  OpKind compute = OpKind::matmul;
  CollectivePoint communication;
};

/// A TestSubject says what is measured: a point with all but its time.
using TestSubject = std::variant<DispatchTest, CommunicatorMemoryTest, CollectivePoint, OverlapTest,
                                 OpPoint, MatmulPoint, LaunchTest, CopyPoint>;

struct CalibrationTest {
  /// The test in words, e.g. "all_reduce ranks=8 nodes=4 groups_per_node=2 bytes=65536". The key is
  /// equal in every run over one cluster shape, and unique among its tests.
  std::string key;
  TestSubject subject;
  bool essential = false;  ///< measured whatever the budget says
};

/// Return the keys of single points, with which results are looked up.
std::string test_key(const CollectivePoint& point);
std::string test_key(const OpPoint& point);
std::string test_key(const MatmulPoint& point);

/// Returns the shapes of the groups that a plan over such a cluster can ask for, by ranks, nodes
/// and groups_per_node. Inside a node they are 2, 4, ... and all of its ranks, as one group and as
/// many as fit. Over 2, 4, ... and all nodes they are one rank of each node, alone and with all
/// other such groups, and all ranks of each. Other shapes are interpolated.
std::vector<CollectivePoint> group_shapes(const ClusterShape& cluster);
/// Returns the shapes of transfers: inside a node and to the next node, one and as many at once as
/// possible.
std::vector<CollectivePoint> transfer_shapes(const ClusterShape& cluster);

/// Returns every test, grouped by kind in the order of TestSubject. Within a kind every prefix of
/// the order is spread over the whole range, with essential tests first and the longest last.
/// Ranks communicate over `communicator`: local measures threads of one process, nccl devices in
/// the sizes of their training.
std::vector<CalibrationTest> schedule(const ClusterShape& cluster, SweepSize size, DType precision,
                                      CommunicatorKind communicator = CommunicatorKind::mpi);

}  // namespace plimsoll
