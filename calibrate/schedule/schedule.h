// Schedule: what a calibration of a cluster's processes measures, as a list of tests. Which groups
// there are follows from the shape of the cluster; their number grows with the logarithm of its
// nodes and of the ranks on each.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "calibrate/schedule/sweep.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Every node runs as many ranks.
struct ClusterShape {
  std::int64_t nodes = 1, ranks_per_node = 1;
};

/// Host time of ops, calls and waking up.
struct DispatchTest {};
/// Host time to launch a kernel of a device.
struct LaunchTest {};

/// A test of how much memory of its process or device a communicator over a group of this shape
/// keeps.
struct CommunicatorMemoryTest {
  CollectivePoint shape;
};

/// A communication, and an op that every rank runs again and again meanwhile.
struct OverlapTest {
  OpKind compute = OpKind::matmul;
  CollectivePoint communication;
};

/// All but the time is set.
using TestSubject = std::variant<DispatchTest, CommunicatorMemoryTest, CollectivePoint, OverlapTest,
                                 OpPoint, MatmulPoint, LaunchTest, CopyPoint>;

struct CalibrationTest {
  /// The test in words: the same in every run over the same cluster shape, and of no other test:
  /// "all_reduce ranks=8 nodes=4 groups_per_node=2 bytes=65536".
  std::string key;
  TestSubject subject;
  bool essential = false;  ///< measured whatever the budget says
};

/// Keys of single points, as they are asked for.
std::string test_key(const CollectivePoint& point);
std::string test_key(const OpPoint& point);
std::string test_key(const MatmulPoint& point);

/// Shapes of the groups that a plan over such a cluster can ask for, by ranks, nodes and
/// groups_per_node: inside a node 2, 4, ... and all of its ranks, one group and all that fit at
/// once; over 2, 4, ... and all nodes one rank of each, alone and with all others at once, and all
/// ranks of each. Others are interpolated.
std::vector<CollectivePoint> group_shapes(const ClusterShape& cluster);
/// ... of transfers: inside a node and to the next one, one and as many at once as there can be.
std::vector<CollectivePoint> transfer_shapes(const ClusterShape& cluster);

/// Every test, kind of test by kind of test (the order of TestSubject); of one kind in an order in
/// which every prefix is spread over the whole range, essential ones first, the longest last. Of
/// processes over `communicator`: nccl measures devices, in the sizes that these train.
std::vector<CalibrationTest> schedule(const ClusterShape& cluster, SweepSize size, DType precision,
                                      CommunicatorKind communicator = CommunicatorKind::mpi);

}  // namespace plimsoll
