// Adds results to a calibration, and sorts them.
#include "calibrate/sessions/test_result.h"

#include <algorithm>
#include <tuple>
#include <type_traits>

namespace plimsoll {

void add_result(Calibration& to, const TestResult& result) {
  std::visit(
      [&](const auto& one) {
        using Point = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Point, CollectivePoint>) to.collectives.push_back(one);
        if constexpr (std::is_same_v<Point, OverlapPoint>) to.overlaps.push_back(one);
        if constexpr (std::is_same_v<Point, OpPoint>) to.ops.push_back(one);
        if constexpr (std::is_same_v<Point, MatmulPoint>) to.matmuls.push_back(one);
        if constexpr (std::is_same_v<Point, CommunicatorMemory>)
          to.communicator_memory.push_back(one);
        if constexpr (std::is_same_v<Point, DispatchCost>) {
          to.dispatch_op = one.op;
          to.dispatch_call = one.call;
        }
        if constexpr (std::is_same_v<Point, LaunchCost>) to.launch = one.time;
        if constexpr (std::is_same_v<Point, CopyPoint>) to.copies.push_back(one);
      },
      result);
}

Calibration as_calibration(const TestResult& result, const std::string& date) {
  Calibration only;
  only.date = date;
  add_result(only, result);
  return only;
}

TestResult result_in(const Calibration& only) {
  if (!only.collectives.empty()) return only.collectives.front();
  if (!only.overlaps.empty()) return only.overlaps.front();
  if (!only.ops.empty()) return only.ops.front();
  if (!only.matmuls.empty()) return only.matmuls.front();
  if (!only.communicator_memory.empty()) return only.communicator_memory.front();
  if (only.dispatch_op.samples > 0) return DispatchCost{only.dispatch_op, only.dispatch_call};
  if (only.launch) return LaunchCost{*only.launch};
  if (!only.copies.empty()) return only.copies.front();
  return std::monostate();
}

void put_in_order(Calibration& calibration) {
  std::stable_sort(calibration.collectives.begin(), calibration.collectives.end(),
                   [](const CollectivePoint& a, const CollectivePoint& b) {
                     return std::tuple(a.kind, a.nodes, a.ranks, a.groups_per_node, a.payload) <
                            std::tuple(b.kind, b.nodes, b.ranks, b.groups_per_node, b.payload);
                   });
  std::stable_sort(calibration.overlaps.begin(), calibration.overlaps.end(),
                   [](const OverlapPoint& a, const OverlapPoint& b) {
                     return std::tuple(a.compute, a.communication, a.nodes, a.payload) <
                            std::tuple(b.compute, b.communication, b.nodes, b.payload);
                   });
  const auto key = [](const OpPoint& point) {
    return std::tuple(point.kind, point.dtype, point.row, point.moved);
  };
  std::stable_sort(calibration.ops.begin(), calibration.ops.end(),
                   [&](const OpPoint& a, const OpPoint& b) { return key(a) < key(b); });
  // Kinds of a fixed size, or with few large rows, come out of the sweep at equal sizes.
  calibration.ops.erase(
      std::unique(calibration.ops.begin(), calibration.ops.end(),
                  [&](const OpPoint& a, const OpPoint& b) { return key(a) == key(b); }),
      calibration.ops.end());
}

}  // namespace plimsoll
