// Saved tensors are the forward values that live until backward.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

/// Gives forward values that backward reads the role saved, and others the role activation. The
/// schedule places the values at borders of blocks.
void mark_saved(Graph& graph);

}  // namespace plimsoll
