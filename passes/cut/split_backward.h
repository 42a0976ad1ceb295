// Cuts a block's backward in two, so that the stage before gets its gradient early.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll {

struct BackwardParts {
  std::vector<Op> input, weight;  ///< each in the order of the whole
};

/// `backward` in issue order. Ops that only lead to gradients of parameters go to `weight` (W of Qi
/// et al. 2023, arXiv 2401.10241) and get Phase::backward_weight; what the gradient of the block's
/// input depends on stays in `input` (their B), with whatever else must run before an op there
/// overwrites what it reads. An op that gives both, as the backward of a norm, stays whole in
/// `input`. A block without an input has all of it in `weight`.
BackwardParts split_backward(const Graph& graph, BlockId block, const std::vector<Op>& backward);

}  // namespace plimsoll
