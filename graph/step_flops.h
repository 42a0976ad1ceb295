// The FLOPs of a step are counted by phase.
#pragma once

#include <array>
#include <cstddef>

#include "base/units.h"
#include "graph/program.h"

namespace plimsoll {

inline constexpr std::size_t kPhases = std::size_t(Phase::optimizer) + 1;

/// The FLOPs of each phase, indexed by Phase.
using PhaseFlops = std::array<Flops, kPhases>;

/// Returns the FLOPs of products (matmul, attention) in one step of a rank that runs the Program.
PhaseFlops step_flops(const Program& program);

}  // namespace plimsoll
