// Step rules say how long a step may be: it is lowered call by call, into memory.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// The most passes of a micro-batch, forward and back, through a layer, the embedding or the head
/// in one step: 8192 micro-batches of 126 layers. Published runs have up to 167,936, and bundled
/// jobs in the smallest micro-batch on one device up to 1,032,192. A simulation of so many takes
/// 1.5 minutes of two Xeon cores: 4.8 GiB in 16 stages with 8 chunks each, where calls are shown,
/// and 8.6 GiB on one GPU, where every op is.
inline constexpr std::int64_t kMostLayerPasses = std::int64_t{1} << 20;

/// Checks that a step has at most kMostLayerPasses, where a stage has `programs` Programs. The
/// batch must divide.
Verdict step_is_bounded(const Job& job, const Strategy& strategy, std::int64_t programs);

}  // namespace plimsoll
