// A plan's ops become a workload, and points of a sweep get weights by it.
#include "calibrate/schedule/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr double kLatencyBytes = 64 * 1024;

double log_distance(double a, double b) {
  return std::abs(std::log(std::max(a, 1.0) / std::max(b, 1.0)));
}

/// The distance of points that say nothing about each other.
constexpr double kForeign = std::numeric_limits<double>::infinity();

double distance(const MatmulPoint& a, const MatmulPoint& b) {
  if (std::tie(a.transpose_a, a.transpose_b, a.dtype) !=
      std::tie(b.transpose_a, b.transpose_b, b.dtype)) {
    return kForeign;
  }
  const MatmulShape &s = a.shape, &t = b.shape;
  const bool batched = (s.batch > 1) != (t.batch > 1);
  return log_distance(double(s.batch), double(t.batch)) + log_distance(double(s.m), double(t.m)) +
         log_distance(double(s.n), double(t.n)) + log_distance(double(s.k), double(t.k)) +
         0.1 * (int(a.accumulate != b.accumulate) + int(a.bias != b.bias)) + 10 * int(batched);
}

double distance(const OpPoint& a, const OpPoint& b) {
  if (a.kind != b.kind || a.dtype != b.dtype) return kForeign;
  return log_distance(double(a.moved.count()), double(b.moved.count())) +
         log_distance(double(a.row), double(b.row));
}

double distance(const CollectivePoint& a, const CollectivePoint& b) {
  if (a.kind != b.kind || (a.nodes > 1) != (b.nodes > 1)) return kForeign;
  return log_distance(double(a.payload.count()), double(b.payload.count())) +
         log_distance(double(a.nodes), double(b.nodes)) +
         log_distance(double(a.ranks), double(b.ranks)) +
         log_distance(double(a.groups_per_node), double(b.groups_per_node));
}

/// Returns the distance from a shape to the nearest point.
template <class Point>
double least_distance(const Point& shape, std::span<const Point> points) {
  double least = kForeign;
  for (const Point& point : points) least = std::min(least, distance(shape, point));
  return least;
}

/// Returns the points of one kind of test, and where the tests are.
template <class Point>
std::vector<Point> points_of(std::span<const CalibrationTest> tests,
                             std::vector<std::size_t>* places = nullptr) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const auto* point = std::get_if<Point>(&tests[i].subject);
    if (point == nullptr) continue;
    points.push_back(*point);
    if (places != nullptr) places->push_back(i);
  }
  return points;
}

/// Appends the shapes that are not among the points of their kind and type.
template <class Shape>
void append_shapes(const std::vector<Shape>& shapes, std::vector<CalibrationTest>& tests) {
  using Point = decltype(Shape::point);
  std::vector<Point> points = points_of<Point>(tests);
  for (const Shape& shape : shapes) {
    const double least = least_distance(shape.point, std::span<const Point>(points));
    if (least == 0 || least == kForeign) continue;
    points.push_back(shape.point);
    tests.push_back({test_key(shape.point), shape.point, false});
  }
}

/// Adds the `amount` of each shape to the points nearest to it.
template <class Point, class Shape>
std::vector<double> nearest_weights(std::span<const Point> points, const std::vector<Shape>& shapes,
                                    double Shape::*amount) {
  std::vector<double> sums(points.size());
  for (const Shape& shape : shapes) {
    const double least = least_distance(shape.point, points);
    if (least == kForeign) continue;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (distance(shape.point, points[i]) == least) sums[i] += shape.*amount;
    }
  }
  const auto most = std::max_element(sums.begin(), sums.end());
  if (most == sums.end() || *most == 0) return std::vector<double>(points.size(), 1);
  const double largest = *most;
  for (double& sum : sums) sum /= largest;
  return sums;
}

class Collector {
 public:
  explicit Collector(std::int64_t per_node) : per_node_(per_node) {}

  void add(const Program& program, std::int64_t rank) {
    std::map<std::uint32_t, double> calls;
    for (const Call& call : program.calls) ++calls[std::uint32_t(call.routine.index())];
    for (const auto& [index, count] : calls) {
      const Routine& routine = program.at(RoutineId(index));
      for (const Op& op : routine.ops) add(op, routine.tensors, count, program.grid, rank);
    }
  }

  Workload workload() const {
    Workload all;
    for (const auto& [key, one] : matmuls_) all.matmuls.push_back(one);
    for (const auto& [key, one] : ops_) all.ops.push_back(one);
    for (const auto& [key, one] : communications_) all.communications.push_back(one);
    return all;
  }

 private:
  void add(const Op& op, std::span<const Tensor> tensors, double count, const Grid& grid,
           std::int64_t rank) {
    const OpClass op_class = row(op.kind).op_class;
    if (op_class == OpClass::matmul) {
      const MatmulParams params = matmul_params(op);
      MatmulPoint point;
      point.shape = matmul_shape(op, tensors);
      point.transpose_a = params.transpose_a;
      point.transpose_b = params.transpose_b;
      point.accumulate = params.accumulate;
      point.bias = op.kind == OpKind::matmul && op.inputs.size() > 2;
      point.dtype = compute_dtype(op, tensors);
      const MatmulShape& s = point.shape;
      auto& one = matmuls_[{point.transpose_a, point.transpose_b, point.accumulate, point.bias,
                            point.dtype, s.batch, s.m, s.n, s.k}];
      one.point = point;
      one.flops += count * flops(op, tensors).value();
    } else if (op_class == OpClass::memory_bound) {
      OpPoint point;
      point.kind = op.kind;
      point.dtype = compute_dtype(op, tensors);
      point.moved = bytes_moved(op, tensors);
      point.row = row_length(op, tensors);
      auto& one = ops_[{point.kind, point.dtype, point.moved, point.row}];
      one.point = point;
      one.bytes += count * double(point.moved.count());
    } else if (communicates(op.kind)) {
      add_communication(op, bytes_moved(op, tensors), count, grid, rank);
    }
  }

  void add_communication(const Op& op, Bytes payload, double count, const Grid& grid,
                         std::int64_t rank) {
    std::vector<std::int64_t> ranks;
    if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
      ranks = {rank, pipeline_peer(grid, rank, transfer->stage_offset)};
      std::sort(ranks.begin(), ranks.end());
    } else {
      ranks = members(grid, std::get<CollectiveParams>(op.params).group, rank);
    }
    if (ranks.size() < 2) return;
    CollectivePoint point;
    point.kind = measured_as(op.kind);
    point.ranks = std::int64_t(ranks.size());
    point.payload = payload;
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      point.nodes += ranks[i] / per_node_ != ranks[i - 1] / per_node_;
    }
    // As many at once as fit: all groups of a kind work at the same time.
    const std::int64_t own = std::max<std::int64_t>(1, point.ranks / point.nodes);
    point.groups_per_node = std::max<std::int64_t>(1, std::min(per_node_, grid.world_size()) / own);
    auto& one = communications_[{point.kind, point.ranks, point.nodes, payload}];
    one.point = point;
    one.bytes += count * (double(payload.count()) + kLatencyBytes);
  }

  std::int64_t per_node_;
  std::map<std::tuple<bool, bool, bool, bool, DType, std::int64_t, std::int64_t, std::int64_t,
                      std::int64_t>,
           Workload::Matmul>
      matmuls_;
  std::map<std::tuple<OpKind, DType, Bytes, std::int64_t>, Workload::Memory> ops_;
  std::map<std::tuple<OpKind, std::int64_t, std::int64_t, Bytes>, Workload::Communication>
      communications_;
};

}  // namespace

Workload workload_of(const Plan& plan) {
  std::vector<Strategy> strategies = {plan.strategy};
  for (const RunnerUp& loser : plan.runners_up) strategies.push_back(loser.strategy);
  Collector collector(plan.devices_per_node);
  for (const Strategy& strategy : strategies) {
    const std::vector<Program> programs =
        lower({plan.job, strategy, plan.framework}, {}, Proof::none);
    const Grid& grid = programs[0].grid;
    std::vector<bool> known(programs.size());
    for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
      const std::size_t c = class_of(programs, grid.coordinates(rank));
      if (!known[c]) collector.add(programs[c], rank);
      known[c] = true;
    }
  }
  return collector.workload();
}

std::vector<CalibrationTest> with_shapes(const Workload& workload,
                                         std::vector<CalibrationTest> tests) {
  append_shapes(workload.matmuls, tests);
  append_shapes(workload.ops, tests);
  return tests;
}

std::vector<double> weights(const Workload& workload, std::span<const MatmulPoint> points) {
  return nearest_weights(points, workload.matmuls, &Workload::Matmul::flops);
}
std::vector<double> weights(const Workload& workload, std::span<const OpPoint> points) {
  return nearest_weights(points, workload.ops, &Workload::Memory::bytes);
}
std::vector<double> weights(const Workload& workload, std::span<const CollectivePoint> points) {
  return nearest_weights(points, workload.communications, &Workload::Communication::bytes);
}

std::vector<double> weights(const Workload& workload, std::span<const CalibrationTest> tests) {
  std::vector<double> result(tests.size(), 1);
  const auto fill = [&](auto* of_kind) {
    using Point = std::remove_pointer_t<decltype(of_kind)>;
    std::vector<std::size_t> places;
    const std::vector<Point> points = points_of<Point>(tests, &places);
    const std::vector<double> of_points = weights(workload, std::span<const Point>(points));
    for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = of_points[i];
  };
  fill(static_cast<CollectivePoint*>(nullptr));
  fill(static_cast<OpPoint*>(nullptr));
  fill(static_cast<MatmulPoint*>(nullptr));
  return result;
}

}  // namespace plimsoll
