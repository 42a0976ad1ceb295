// A block's routine is cut where its computation waits for an exchange between ranks of experts.
// Calls of other routines can then be issued while tokens travel.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "passes/cut/routine_builder.h"

namespace plimsoll {

/// Cuts `ops`, which are in issue order, before each op that reads on another stream what an op on
/// Stream::experts has written since the cut before. One part has all ops where there is no such
/// op.
std::vector<std::vector<Op>> parts_at_exchanges(const std::vector<Op>& ops);

/// Returns `crossing` with the values that parts leave for later ones, where these values have no
/// place outside the frame yet.
Crossing with_carried(const Graph& graph, const Crossing& crossing,
                      const std::vector<std::vector<Op>>& parts, const RoutineBuilder& whole);

/// Returns, for each part, the ports of the parts before it that it waits for. `routines` are built
/// of `parts`.
std::vector<RoutinePart> with_waits(const std::vector<std::vector<Op>>& parts,
                                    std::vector<Routine> routines);

}  // namespace plimsoll
