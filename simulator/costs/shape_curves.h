// Shape curves: measured communications of processes and devices, by kind and group shape.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "models/calibration/calibration.h"
#include "simulator/costs/collective_cost.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/size_curve.h"

namespace plimsoll {

/// Measured communications, each with the shape of its group.
class ShapeCurves {
 public:
  void add(const CollectivePoint& point);
  /// Returns the time from the last arrival to the end, for a group that lies like `spread`. The
  /// curve of its shape gives it. Between two measured numbers of nodes (inside a node: of ranks),
  /// and of groups at once, times are interpolated by logarithms. More groups at once are never
  /// faster.
  ///
  /// Beyond the measured shapes a time is split into latency (SizeCurve) and bandwidth:
  ///  - Where no group with as many ranks on each node was measured, the nearest one stands for it.
  ///    Each rank brings a link of its own to its node, so fewer ranks make the bandwidth part
  ///    longer in proportion.
  ///  - Over more nodes the bandwidth part grows as (n - 1) / n, as in a ring. Latency grows as
  ///    between the two largest measured numbers, by logarithms, at most in proportion. With one
  ///    measured number it grows as the steps of a ring, n - 1, or of a tree, log2 n, for an
  ///    all-reduce.
  ///  - With more groups at once the bandwidth part grows in proportion.
  ///
  /// A reduction of a type that was not measured takes the time of f32, or of another type, and is
  /// extrapolated. Imported points are at best interpolated, because another machine was measured.
  /// Returns nothing where the group lies across nodes and no such group was measured, or inside a
  /// node and no such group was.
  std::optional<TimeParts> at(OpKind kind, DType dtype, Bytes payload,
                              const GroupSpread& spread) const;
  /// Whether some curve depends on groups_per_node.
  bool has_contention() const { return has_contention_; }

 private:
  using AtOnce = std::map<std::int64_t, SizeCurve>;  // by groups per node
  using Sizes = std::map<std::int64_t, AtOnce>;      // by nodes; inside a node by ranks
  using PerNode = std::map<std::int64_t, Sizes>;     // by ranks on each node; inside: 1
  // by element type; then across nodes or not
  std::map<OpKind, std::map<DType, std::map<bool, PerNode>>> curves_;
  bool has_contention_ = false;
};

/// Measured slowdowns of communications and of the work beside them.
class OverlapCurves {
 public:
  /// How many times as long each of the two takes while both run.
  struct Slowdowns {
    double compute = 1, communication = 1;
  };
  void add(const OverlapPoint& point);
  /// Returns the slowdowns, at least 1, beside matmuls or beside memory-bound ops. They are
  /// interpolated over the payload's logarithm; beyond the measured payloads the nearest one
  /// counts. Where only communications inside a node were measured, they also answer for those
  /// across nodes, and the reverse. Where nothing was measured, both are 1.
  Slowdowns at(OpKind communication, bool across_nodes, bool matmul, Bytes payload) const;
  bool empty() const { return curves_.empty(); }

 private:
  using Key = std::tuple<OpKind, bool, bool>;                // communication, across nodes, matmul
  std::map<Key, std::map<std::int64_t, Slowdowns>> curves_;  // then by payload
};

}  // namespace plimsoll
