// Published runs become jobs.
#pragma once

#include <cstdint>

#include "published/published_run.h"

namespace plimsoll {

/// Returns the job of a run whose sizes are stated.
Job published_job(const PublishedRun& run, std::int64_t global_batch);

/// Returns the step time of a run by the FLOP/s of a device, if all sizes are stated. Sources count
/// the FLOPs of forward, and twice as many of backward; what is recomputed does not count.
std::optional<Seconds> step_time_of(const PublishedRun& run, FlopsPerSecond rate,
                                    CountedAttention attention);

}  // namespace plimsoll
