// The schedule combines group shapes with payloads, and adds the sweeps of ops.
#include "calibrate/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "calibrate/schedule/sweep.h"
#include "graph/op_table.h"

namespace plimsoll {

std::string test_key(const CollectivePoint& point) {
  return fmt::format("{} ranks={} nodes={} groups_per_node={} bytes={}", to_text(point.kind),
                     point.ranks, point.nodes, point.groups_per_node, point.payload.count());
}
std::string test_key(const OpPoint& point) {
  return fmt::format("{} {} bytes={} row={}", to_text(point.kind), to_text(point.dtype),
                     point.moved.count(), point.row);
}
std::string test_key(const MatmulPoint& point) {
  const MatmulShape& shape = point.shape;
  return fmt::format("matmul {} {}x{}x{}x{}{}{}{}{}", to_text(point.dtype), shape.batch, shape.m,
                     shape.n, shape.k, point.transpose_a ? " a^T" : "",
                     point.transpose_b ? " b^T" : "", point.accumulate ? " accumulate" : "",
                     point.bias ? " bias" : "");
}

namespace {

/// Returns whether the budget may not leave out a payload: one for latency, one between, one for
/// bandwidth.
bool is_essential_payload(std::int64_t bytes, CommunicatorKind communicator) {
  const bool devices = communicator == CommunicatorKind::nccl;
  return bytes == kKiB || bytes == 64 * kKiB || bytes == (devices ? 64 * kMiB : 4 * kMiB);
}
/// Above this size a collective takes long, and says little more about bandwidth than 16 MiB does.
constexpr std::int64_t kLong = 64 * kMiB;

/// 2, 4, ... and `most`.
std::vector<std::int64_t> doubling(std::int64_t most) {
  std::vector<std::int64_t> values;
  for (std::int64_t value = 2; value < most; value *= 2) values.push_back(value);
  if (most >= 2) values.push_back(most);
  return values;
}

CollectivePoint shape_of(std::int64_t nodes, std::int64_t per_node, std::int64_t at_once) {
  CollectivePoint shape;
  shape.ranks = nodes * per_node;
  shape.nodes = nodes;
  shape.groups_per_node = at_once;
  shape.communicator = CommunicatorKind::mpi;
  return shape;
}

/// Adds a shape alone, and with as many groups at once as there can be.
void add_shapes(std::vector<CollectivePoint>& to, std::int64_t nodes, std::int64_t per_node,
                std::int64_t most_at_once) {
  to.push_back(shape_of(nodes, per_node, 1));
  if (most_at_once > 1) to.push_back(shape_of(nodes, per_node, most_at_once));
}

/// Returns the next larger payload that divides into a float for each rank.
Bytes payload_of(std::int64_t bytes, std::int64_t ranks) {
  const std::int64_t unit = ranks * std::int64_t(sizeof(float));
  return Bytes((bytes + unit - 1) / unit * unit);
}

std::string test_key(const OverlapTest& test) {
  return fmt::format("{} during {}", to_text(test.compute), test_key(test.communication));
}
std::string test_key(const DispatchTest&) { return "dispatch"; }
std::string test_key(const LaunchTest&) { return "launch"; }
std::string test_key(const CopyPoint& point) {
  return fmt::format("copy {}{} bytes={}", to_text(point.direction),
                     point.pinned ? "" : " pageable", point.size.count());
}
std::string test_key(const CommunicatorMemoryTest& test) {
  return fmt::format("memory of a communicator ranks={}", test.shape.ranks);
}

template <class Subject>
CalibrationTest test_of(const Subject& subject, bool essential) {
  return {test_key(subject), subject, essential};
}

/// Appends the essential tests first, then the others spread over their range, then the long ones.
void append(std::vector<CalibrationTest>& to, std::vector<CalibrationTest> tests,
            const std::vector<bool>& is_long) {
  std::vector<std::size_t> order = spread_order(tests.size());
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(!tests[a].essential, bool(is_long[a])) <
           std::pair(!tests[b].essential, bool(is_long[b]));
  });
  for (std::size_t i : order) to.push_back(std::move(tests[i]));
}

void append_collectives(std::vector<CalibrationTest>& to, const ClusterShape& cluster,
                        SweepSize size, CommunicatorKind communicator) {
  std::vector<CalibrationTest> tests;
  std::vector<bool> is_long;
  const auto add = [&](OpKind kind, CollectivePoint point) {
    point.kind = kind;
    for (std::int64_t bytes : communication_payloads(size, communicator)) {
      point.payload = payload_of(bytes, point.ranks);
      tests.push_back(test_of(point, is_essential_payload(bytes, communicator)));
      is_long.push_back(bytes >= kLong);
    }
  };
  for (const CollectivePoint& shape : group_shapes(cluster)) {
    for (OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather}) {
      add(kind, shape);
    }
  }
  for (const CollectivePoint& shape : transfer_shapes(cluster)) add(OpKind::send, shape);
  append(to, std::move(tests), is_long);
}

void append_overlaps(std::vector<CalibrationTest>& to, const ClusterShape& cluster, SweepSize size,
                     CommunicatorKind communicator) {
  std::vector<CalibrationTest> tests;
  const auto add = [&](OpKind kind, CollectivePoint shape) {
    shape.kind = kind;
    for (std::int64_t bytes : overlap_payloads(size, communicator)) {
      shape.payload = payload_of(bytes, shape.ranks);
      // All that runs beside matmuls comes first: they are most of a step.
      tests.push_back(test_of(OverlapTest{OpKind::matmul, shape}, true));
      tests.push_back(test_of(OverlapTest{OpKind::add, shape}, false));
    }
  };
  // One rank of each node with all others at once, and the ranks of one node.
  const auto spans = {std::pair(cluster.nodes, std::int64_t{1}),
                      std::pair(std::int64_t{1}, cluster.ranks_per_node)};
  for (const auto& [nodes, per_node] : spans) {
    if (nodes * per_node < 2) continue;
    const CollectivePoint shape = shape_of(nodes, per_node, cluster.ranks_per_node / per_node);
    for (OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather}) {
      add(kind, shape);
    }
  }
  for (const CollectivePoint& shape : transfer_shapes(cluster)) {
    if (shape.groups_per_node == 1) add(OpKind::send, shape);
  }
  const std::vector<bool> none_long(tests.size());
  append(to, std::move(tests), none_long);
}

template <class Point, class Essential>
void append_ops(std::vector<CalibrationTest>& to, std::vector<Point> points, Essential essential) {
  std::vector<CalibrationTest> tests;
  for (const Point& point : points) tests.push_back(test_of(point, essential(point)));
  if (tests.empty()) return;
  append(to, std::move(tests), std::vector<bool>(points.size()));
}

void append_of_threads(std::vector<CalibrationTest>& to, SweepSize size) {
  std::vector<CalibrationTest> tests;
  for (const CollectivePoint& point : collective_sweep(size))
    tests.push_back(
        test_of(point, point.kind == OpKind::send || point.payload == Bytes(16 * kKiB)));
  const std::vector<bool> none_long(tests.size());
  append(to, std::move(tests), none_long);
}

void append_of_cores(std::vector<CalibrationTest>& to, SweepSize size, DType precision) {
  std::vector<OpPoint> ops = memory_sweep(size);
  std::vector<MatmulPoint> matmuls = matmul_sweep(size);
  if (precision != DType::f32) {
    std::ranges::copy(memory_sweep(size, precision), std::back_inserter(ops));
    std::ranges::copy(matmul_sweep(size, precision), std::back_inserter(matmuls));
  }
  append_ops(to, std::move(ops), is_essential_on_core);
  append_ops(to, std::move(matmuls), [](const MatmulPoint& point) {
    return point.shape.m == 128 && point.dtype == DType::f32;
  });
}

void append_of_devices(std::vector<CalibrationTest>& to, SweepSize size, DType precision) {
  append_ops(to, device_memory_sweep(size, precision),
             [](const OpPoint& point) { return is_essential_on_device(point); });
  const std::vector<MatmulPoint> matmuls = device_matmul_sweep(size, precision);
  append_ops(to, matmuls, [&](const MatmulPoint& point) {
    return is_essential_on_device(point) || point == matmuls.front() || point == matmuls.back();
  });
  to.push_back(test_of(LaunchTest{}, true));
  for (const CopyPoint& point : copy_sweep(size)) to.push_back(test_of(point, true));
}

void set_communicator(TestSubject& subject, CommunicatorKind communicator) {
  if (auto* point = std::get_if<CollectivePoint>(&subject)) point->communicator = communicator;
  if (auto* test = std::get_if<OverlapTest>(&subject)) {
    test->communication.communicator = communicator;
  }
  if (auto* test = std::get_if<CommunicatorMemoryTest>(&subject)) {
    test->shape.communicator = communicator;
  }
}

}  // namespace

std::vector<CollectivePoint> group_shapes(const ClusterShape& cluster) {
  const std::int64_t most = cluster.ranks_per_node;
  std::vector<CollectivePoint> shapes;
  for (std::int64_t per_node : doubling(most)) {
    if (most % per_node == 0) add_shapes(shapes, 1, per_node, most / per_node);
  }
  for (std::int64_t nodes : doubling(cluster.nodes)) {
    add_shapes(shapes, nodes, 1, most);
    if (most > 1) add_shapes(shapes, nodes, most, 1);
  }
  return shapes;
}

std::vector<CollectivePoint> transfer_shapes(const ClusterShape& cluster) {
  std::vector<CollectivePoint> shapes;
  if (cluster.ranks_per_node > 1) add_shapes(shapes, 1, 2, cluster.ranks_per_node / 2);
  if (cluster.nodes > 1) add_shapes(shapes, 2, 1, cluster.ranks_per_node);
  return shapes;
}

std::vector<CalibrationTest> schedule(const ClusterShape& cluster, SweepSize size, DType precision,
                                      CommunicatorKind communicator) {
  std::vector<CalibrationTest> tests = {test_of(DispatchTest{}, true)};
  for (const CollectivePoint& shape : group_shapes(cluster)) {
    const CommunicatorMemoryTest memory{shape};
    const bool processes = communicator != CommunicatorKind::local;
    if (processes && shape.groups_per_node == 1) tests.push_back(test_of(memory, true));
  }
  // Groups of one size over different spans keep the same.
  const auto same = [](const CalibrationTest& a, const CalibrationTest& b) {
    return a.key == b.key;
  };
  std::stable_sort(
      tests.begin() + 1, tests.end(),
      [](const CalibrationTest& a, const CalibrationTest& b) { return a.key < b.key; });
  tests.erase(std::unique(tests.begin(), tests.end(), same), tests.end());
  if (communicator == CommunicatorKind::local) {
    append_of_threads(tests, size);
  } else {
    append_collectives(tests, cluster, size, communicator);
    append_overlaps(tests, cluster, size, communicator);
  }
  if (communicator == CommunicatorKind::nccl) {
    append_of_devices(tests, size, precision);
  } else {
    append_of_cores(tests, size, precision);
  }
  // Sweeps name an op of few sizes more than once.
  std::set<std::string> known;
  std::erase_if(tests, [&](const CalibrationTest& one) { return !known.insert(one.key).second; });
  for (CalibrationTest& test : tests) set_communicator(test.subject, communicator);
  return tests;
}

}  // namespace plimsoll
