// JSON of the results that have no file format of their own (docs/formats.md).
#pragma once

#include <string>

#include "models/job.h"
#include "planner/evaluate.h"
#include "planner/space.h"

namespace plimsoll {

/// `planner space --json`.
std::string space_json(const Job& job, std::int64_t devices, const Space& space);
/// `planner simulate --json`.
std::string evaluation_json(const Job& job, const Strategy& strategy, std::int64_t devices,
                            const Evaluation& evaluation);

}  // namespace plimsoll
