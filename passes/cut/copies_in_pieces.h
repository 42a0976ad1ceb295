// Copies between the host and arenas of the device work on ranges that lie together.
#pragma once

#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// Cuts each copy between the host and an arena of the device into pieces that lie together there.
/// The arena is whole, or has what the rank updates. `begin` is the element of the rank's state at
/// which the host's arenas begin.
void cut_copies(const Program& program, std::int64_t begin, Routine& routine,
                std::vector<Binding>& bindings);

}  // namespace plimsoll
