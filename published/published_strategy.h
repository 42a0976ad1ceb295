// The strategies of a published run are those that its row may mean.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/framework/framework.h"
#include "passes/strategy/strategy.h"
#include "published/published_run.h"

namespace plimsoll {

/// Returns the micro-batches that the row states or implies, else powers of two from 1 to 16.
std::vector<std::int64_t> micro_batches_of(const PublishedRun& run);

/// Returns the strategies that the row may mean. There are several where the source leaves out
/// choices of its authors, and not all need be legal. `full` says whether layers were recomputed
/// where the source does not, if that is known.
std::vector<Strategy> strategies_of(const PublishedRun& run, const Framework& framework,
                                    const std::optional<bool>& full);

}  // namespace plimsoll
