// How a framework spells choices of a strategy: its own flags.
#pragma once

#include <string>

#include "models/framework/framework.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// The framework's flags for what the strategy repeats, for layers that lie on stages unevenly, for
/// 8-bit products and for the types of gradients and states, each flag once, in one line; empty
/// where it needs none or they are not known. Degrees and sizes are not among them.
std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy);

}  // namespace plimsoll
