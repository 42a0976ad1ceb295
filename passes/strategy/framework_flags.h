// Framework flags are a framework's own command-line options for choices of a strategy.
#pragma once

#include <string>

#include "models/framework/framework.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Returns the framework's flags in one line, each once. They state what the strategy recomputes,
/// how layers are split unevenly, 8-bit products, and the types of gradients and optimizer state.
/// Degrees and sizes are not among them. The text is empty where no flags are needed or known.
std::string framework_flags(const Framework& framework, const Job& job, const Strategy& strategy);

}  // namespace plimsoll
