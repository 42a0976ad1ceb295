// Published strategy: how a published run was split, as the strategies that its row may mean.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/framework/framework.h"
#include "passes/strategy/strategy.h"
#include "published/published_run.h"

namespace plimsoll {

/// Micro-batches that the row states or implies; else powers of two from 1 to 16.
std::vector<std::int64_t> micro_batches_of(const PublishedRun& run);

/// Layers of each stage where the source cuts a list of the model's parts
/// (PublishedRun::partition). Nothing where it is not a cut of that list into the pipeline's
/// stages.
std::optional<std::vector<std::int64_t>> layers_of_parts(const PublishedRun& run);

/// More than one where the source does not say what its authors chose; not all need be legal. Where
/// it does not say whether layers were repeated: `full`, if that is known.
std::vector<Strategy> strategies_of(const PublishedRun& run, const Framework& framework,
                                    const std::optional<bool>& full);

}  // namespace plimsoll
