// A block's backward is cut in two, so that the stage before gets its gradient early.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll {

struct BackwardParts {
  std::vector<Op> input, weight;  ///< each in the order of `backward`
};

/// Cuts `backward`, which is in issue order. Ops that lead only to gradients of parameters go to
/// `weight` (W of Qi et al. 2023, arXiv 2401.10241) and get Phase::backward_weight. Ops on which
/// the gradient of the block's input depends stay in `input` (B in that paper). So does any op that
/// must run before an op of `input` overwrites its operands. An op that gives both kinds of
/// gradients, as the backward of a norm does, stays whole in `input`. For a block without an input
/// all ops go to `weight`.
BackwardParts split_backward(const Graph& graph, BlockId block, const std::vector<Op>& backward);

}  // namespace plimsoll
