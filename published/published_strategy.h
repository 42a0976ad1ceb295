// Published strategy: how a published run was split, as the strategies that its row may mean.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/framework/framework.h"
#include "passes/strategy/strategy.h"
#include "published/published_run.h"

namespace plimsoll {

/// Micro-batches that the row states or its source implies; else powers of two from 1 to 16.
std::vector<std::int64_t> micro_batches_of(const PublishedRun& run);

/// torchtitan's stages of a pipeline keep parameters and gradients whole until the last micro-batch
/// (fully_shard with reshard_after_forward = not pp_enabled, parallelize_llama.py;
/// set_requires_gradient_sync(False) before, torch/distributed/pipelining/stage.py).
std::int64_t zero_stage_of(const PublishedRun& run);

/// Cuts of DeepSpeed's GPT2ModelPipe (megatron/model/gpt2_model.py), in whose list of parts an
/// embedding and a transposition come before the layers, four parts after them: layers of each
/// stage that `run.partition` cuts them into. Nothing where it is not such a cut.
std::optional<std::vector<std::int64_t>> layers_of_parts(const PublishedRun& run);

/// More than one where the source does not say what its authors chose; not all need be legal. Where
/// it does not say whether layers were repeated: `full`, if that is known.
std::vector<Strategy> strategies_of(const PublishedRun& run, const Framework& framework,
                                    const std::optional<bool>& full);

}  // namespace plimsoll
