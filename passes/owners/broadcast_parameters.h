// In sharding stage 3 each owner broadcasts its parameters: before every op that reads one, or once
// for each segment of the step.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Broadcasts parameters in sharding stage 3 with owners and gather = use: before every op that
/// reads a parameter, the owner broadcasts it into a temporary of that op (Paddle fleet's stage 3
/// pass). A parameter that is only cast is broadcast in the type of the cast. The schedule adds the
/// other forms of stage 3.
bool broadcast_parameters(Graph& graph, const PassContext& context);

/// A UseBroadcast is one broadcast of stage 3 in owner mode. It runs before the first use that it
/// serves, into memory that is freed after the last one.
struct UseBroadcast {
  std::size_t value = 0;  ///< the received value: a tensor, or several that travel together
  std::size_t first = 0, last = 0;  ///< positions in an order of ops (Graph) or calls (Program)
  bool operator==(const UseBroadcast&) const = default;
};
/// Returns one broadcast for every op that reads a received value, in order of the ops. Values are
/// tensors: the parameter or its twin. Copies of recompute and backward count as ops. (Paddle's
/// stage 3 pass: non-owners receive into a temporary for each op and free it after the op.)
std::vector<UseBroadcast> broadcasts_by_use(const Graph& graph);
/// Returns one broadcast of each value in each segment of the step. The positions of `by_use` are
/// walked backwards, and a segment ends when its broadcasts have reached `limit` bytes (Paddle
/// fleet's ShardingOptimizer, segment_broadcast_MB). `size` gives the bytes of a value. Segments
/// are in order, and the broadcasts of each are ordered by their first positions.
std::vector<std::vector<UseBroadcast>> broadcasts_by_segment(
    std::span<const UseBroadcast> by_use, const std::function<Bytes(std::size_t)>& size,
    Bytes limit);

}  // namespace plimsoll
