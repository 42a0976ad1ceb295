// Node queue: holds the nodes that branch and bound still has to look at, the least merit first.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "planner/explore/search_node.h"

namespace plimsoll {

class NodeQueue {
 public:
  /// Sets the strategy that was evaluated before all others. It never counts as left.
  void set_first_plan(std::size_t index) { first_plan_ = index; }
  std::optional<std::size_t> first_plan() const { return first_plan_; }

  /// Counts strategies with an index from `first` to `last`, without the first plan.
  std::int64_t count_in(std::size_t first, std::size_t last) const {
    const bool has = first_plan_ && *first_plan_ >= first && *first_plan_ < last;
    return std::int64_t(last - first) - std::int64_t(has);
  }
  std::int64_t count_in(const SearchNode& node) const { return count_in(node.first, node.last); }
  /// Counts the strategies of all nodes that are left.
  std::int64_t strategies() const { return strategies_; }

  bool empty() const { return nodes_.empty(); }
  /// Returns the least bound of a step time. The queue must not be empty.
  Picoseconds least_bound() const {
    return std::ranges::min_element(nodes_, {}, &SearchNode::bound)->bound;
  }

  void insert(const SearchNode& node) {
    if (nodes_.insert(node).second) strategies_ += count_in(node);
  }
  void insert(std::span<const SearchNode> nodes) {
    for (const SearchNode& node : nodes) insert(node);
  }
  SearchNode take_least() {
    const SearchNode node = *nodes_.begin();
    nodes_.erase(nodes_.begin());
    strategies_ -= count_in(node);
    return node;
  }

 private:
  std::optional<std::size_t> first_plan_;
  std::set<SearchNode> nodes_;
  std::int64_t strategies_ = 0;
};

}  // namespace plimsoll
