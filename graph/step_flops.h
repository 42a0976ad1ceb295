// FLOPs of a step, by what they are for.
#pragma once

#include <array>
#include <cstddef>

#include "base/units.h"
#include "graph/program.h"

namespace plimsoll {

inline constexpr std::size_t kPhases = std::size_t(Phase::optimizer) + 1;

/// By Phase.
using PhaseFlops = std::array<Flops, kPhases>;

/// What one step of a rank that runs the Program computes in products (matmul, attention).
PhaseFlops step_flops(const Program& program);

}  // namespace plimsoll
