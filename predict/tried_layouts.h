// Tried layouts: those whose steps were measured, by the logs that a calibration was learned from.
#pragma once

#include <cstdint>
#include <string>

#include "models/calibration/fitted_calibration.h"
#include "predict/target.h"

namespace plimsoll {

/// Returns the digest of a job on so many devices of a cluster by a framework. Names of jobs and
/// the padding of their vocabularies make no difference.
std::string digest_of(Job job, std::int64_t devices, const Cluster& cluster,
                      const Framework& framework);
/// Returns the digest of a strategy of the job, however it spells the layers of its stages.
std::string digest_of(const Job& job, Strategy strategy);

/// Return the fastest measured run of the target's job, and the last run of the strategy among
/// these; null if no such run was learned from. Runs that others contradict do not count.
const LearnedStep* fastest_run(const Target& target);
const LearnedStep* last_run(const Target& target, const Strategy& strategy);

}  // namespace plimsoll
