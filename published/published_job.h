// Published runs become jobs.
#pragma once

#include <cstdint>

#include "published/published_run.h"

namespace plimsoll {

/// Returns the job of a run whose sizes are stated.
Job published_job(const PublishedRun& run, std::int64_t global_batch);

/// Sets the step time of a run that has a rate of FLOP/s in its place. All sizes must be known, and
/// how the source counts: the FLOPs of forward and twice as many of backward. What is recomputed
/// does not count.
void derive_step_time(PublishedRun& run);

}  // namespace plimsoll
