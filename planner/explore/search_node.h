// Search node: strategies that branch and bound looks at together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "planner/explore/family_bounds.h"

namespace plimsoll {

/// Strategies that are still to be looked at. From many strategies to one, a node is:
///
///   family     all arrangements and bucket sizes
///   group      arrangements of one group, from some number of recomputed layers on
///   choice     one arrangement with all bucket sizes
///   pipeline   a choice, once the order of its actions was bounded
///   leaf       one strategy
///
/// Nodes are taken in the order of `merit`, the bound with the handicap that all of its strategies
/// have at least.
struct SearchNode {
  enum class Kind : std::uint8_t { family, group, choice, pipeline, leaf };
  Picoseconds bound;                ///< of the step time
  std::size_t first = 0, last = 0;  ///< indices into Space::legal
  Bytes peak;                       ///< a bound, too
  Kind kind = Kind::family;
  std::size_t family = 0;
  GroupBound group;     ///< the arrangements of a group that are left
  double handicap = 1;  ///< handicap() of its strategies' unusual choices, at least
  /// Returns a lower bound of merit().
  Picoseconds merit() const {
    if (handicap == 1) return bound;
    return Picoseconds(std::int64_t(double(bound.count()) * handicap) - 1);
  }
  bool operator<(const SearchNode& other) const {
    return std::tuple(merit(), first, kind) < std::tuple(other.merit(), other.first, other.kind);
  }
  std::int64_t count() const { return std::int64_t(last - first); }
};

/// Returns the pipeline of a choice whose actions have this bound.
inline SearchNode pipeline_of(SearchNode choice, Picoseconds bound) {
  choice.kind = SearchNode::Kind::pipeline;
  choice.bound = std::max(choice.bound, bound);
  return choice;
}

/// Returns one strategy of a pipeline, with its own bound. `leaf` is its index into Space::legal.
inline SearchNode leaf_of(SearchNode pipeline, std::size_t leaf, Picoseconds bound) {
  pipeline.kind = SearchNode::Kind::leaf;
  pipeline.bound = std::max(pipeline.bound, bound);
  pipeline.first = leaf;
  pipeline.last = leaf + 1;
  return pipeline;
}

}  // namespace plimsoll
