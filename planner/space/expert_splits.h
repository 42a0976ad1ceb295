// Expert splits: the ways to share out a job's experts over the ranks of a stage.
#pragma once

#include <vector>

#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "planner/space/limits.h"

namespace plimsoll {

/// Returns the strategy with each way to share out experts that is tried. The first is the usual
/// one. Keys of `fixed` keep the strategy's values, and values outside `limits` are left out.
///
///   - ep: every number of ranks that divides the experts and the ranks of a stage;
///   - etp: experts are whole, or as many ranks share each as share the other layers (mp);
///   - expert_dispatch, with ep above 1, of what the framework has: all_to_all, and all_gather
///     where it moves no more, which is where ep is at most chosen x load;
///   - overlap_shared_experts with all_to_all and ep above 1, where the framework can.
///
/// Beside cp, only ep varies. A job without experts has one way. So has a framework that cannot
/// share them out, and a grid with replicas of shards, beside which experts would be sharded over
/// all replicas.
std::vector<Strategy> expert_splits(const Job& job, const Framework& framework,
                                    const Strategy& strategy, const Fixed& fixed,
                                    const Limits& limits);

/// Returns the divisors of a number, ascending.
std::vector<std::int64_t> divisors(std::int64_t number);

/// Returns how tokens may reach the experts of a strategy in the space.
std::vector<ExpertDispatch> expert_dispatches(const Job& job, const Framework& framework,
                                              const Strategy& strategy);

}  // namespace plimsoll
