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

class ShapeCurves {
 public:
  void add(const CollectivePoint& point);
  /// From the last arrival to completion, for a group that lies like this: the curve of its shape;
  /// between two numbers of nodes (inside a node: of ranks), and between two numbers of groups at
  /// once, by their logarithms; more at once are never faster.
  ///
  /// Beyond what was measured a time is taken apart into latency (SizeCurve) and the rest, which is
  /// bandwidth. Where no group with as many ranks on each node was measured, the nearest stands for
  /// it; the bandwidth part of a group of fewer is as much longer, since each rank brings a link of
  /// its own to its node. Over more nodes the bandwidth part grows as pieces of a ring do,
  /// (n - 1) / n; latency as between the two largest that were measured, by their logarithms, at
  /// most in proportion; of one alone as the steps of a ring, n - 1, or of a tree, log2 n, for an
  /// all-reduce. With more groups at once the bandwidth part grows in proportion.
  ///
  /// A reduction of a type that was not measured takes the time of f32, or else of another type,
  /// extrapolated; imported points are at best interpolated, since another machine was measured.
  /// Nothing where no group was measured inside a node, or across nodes, as this one lies.
  std::optional<TimeParts> at(OpKind kind, DType dtype, Bytes payload,
                              const GroupSpread& spread) const;
  /// Whether groups_per_node matters to any.
  bool has_contention() const { return has_contention_; }

 private:
  using AtOnce = std::map<std::int64_t, SizeCurve>;  // by groups per node
  using Sizes = std::map<std::int64_t, AtOnce>;      // by nodes; inside a node by ranks
  using PerNode = std::map<std::int64_t, Sizes>;     // by ranks on each node; inside: 1
  // by element type; then across nodes or not
  std::map<OpKind, std::map<DType, std::map<bool, PerNode>>> curves_;
  bool has_contention_ = false;
};

/// Measured slowdowns of a communication and of the work beside it.
class OverlapCurves {
 public:
  struct Slowdowns {
    double compute = 1, communication = 1;
  };
  void add(const OverlapPoint& point);
  /// Beside matmuls, or beside memory-bound ops: interpolated over the payload's logarithm, as at
  /// the nearest payload beyond them; at least 1. Nothing measured, or only inside a node what is
  /// asked for across nodes (or the reverse): what is there of the other, else 1.
  Slowdowns at(OpKind communication, bool across_nodes, bool matmul, Bytes payload) const;
  bool empty() const { return curves_.empty(); }

 private:
  using Key = std::tuple<OpKind, bool, bool>;                // communication, across nodes, matmul
  std::map<Key, std::map<std::int64_t, Slowdowns>> curves_;  // then by payload
};

}  // namespace plimsoll
