// The choices of routers in a run are summed up by layer.
#pragma once

#include <span>
#include <vector>

#include "graph/program.h"
#include "models/job/job.h"
#include "plan/measured.h"
#include "runtime/command/rank_record.h"

namespace plimsoll {

/// Returns one entry for each layer with experts, ascending, from the records of all ranks in
/// ascending order. There are none where no rank could read what its routers chose.
std::vector<MeasuredExperts> measured_experts(std::span<const Program> programs, const Job& job,
                                              std::span<const RankRecord> records);

}  // namespace plimsoll
