// A job of fewer micro-batches whose Programs tell step time and memory of all of them.
#pragma once

#include <optional>

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "simulator/ranks/fewer_micro_batches.h"

namespace plimsoll {

struct FewerJob {
  Job job;
  FewerMicroBatches stand_for;
};

/// Stages of 1F1B and ZB-H1 repeat themselves between the micro-batches that fill the pipeline and
/// those that drain it, so that lowering all of them says no more than lowering some. Nothing where
/// that saves little, where there are no such cycles (GPipe), and for frameworks whose memory
/// depends on every micro-batch: an arena, and what is kept of each to the end of the step.
std::optional<FewerJob> with_fewer_micro_batches(const Job& job, const Strategy& strategy,
                                                 const Framework& framework);

}  // namespace plimsoll
