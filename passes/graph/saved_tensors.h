// Which forward values live until backward.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

/// Forward values that backward reads get the role saved, those that it does not read (any more)
/// the role activation; borders are placed by the schedule.
void mark_saved(Graph& graph);

}  // namespace plimsoll
