// Multiplies the numbers of ranks by the ways to send tokens.
#include "planner/space/expert_splits.h"

#include <numeric>

namespace plimsoll {
namespace {

std::vector<std::int64_t> numbers_of_ranks(const Job& job, const Framework& framework,
                                           const Strategy& strategy) {
  if (!job.experts || framework.can.expert_dispatch.value.empty()) return {1};
  const std::int64_t ranks =
      strategy.mp * strategy.cp * strategy.sharding_degree * strategy.dp;  // of a stage
  const std::int64_t most = std::gcd(ranks, job.experts->count);
  std::vector<std::int64_t> numbers;
  for (std::int64_t ep = 1; ep <= most; ++ep) {
    if (most % ep == 0) numbers.push_back(ep);
  }
  return numbers;
}

/// Returns values of etp. 0 is the usual one, which is 1 where ep is above 1, and else mp.
std::vector<std::int64_t> ranks_of_each(const Job& job, const Framework& framework,
                                        const Strategy& strategy) {
  std::vector<std::int64_t> ranks = {0};
  const bool apart = job.experts && framework.can.expert_tensor_parallel.value;
  if (apart && strategy.mp > 1) ranks.push_back(strategy.ep > 1 ? strategy.mp : 1);
  return ranks;
}

std::vector<ExpertDispatch> dispatches(const Framework& framework, const Strategy& strategy) {
  if (strategy.ep == 1) return {strategy.expert_dispatch};
  std::vector<ExpertDispatch> all;
  for (const ExpertDispatch dispatch : {ExpertDispatch::all_to_all, ExpertDispatch::all_gather}) {
    if (framework.can.expert_dispatch.value.has(dispatch)) all.push_back(dispatch);
  }
  if (all.empty()) all.push_back(strategy.expert_dispatch);  // for legal() to refuse
  return all;
}

}  // namespace

std::vector<Strategy> expert_splits(const Job& job, const Framework& framework,
                                    const Strategy& strategy, const Fixed& fixed,
                                    const Limits& limits) {
  std::vector<Strategy> splits = {strategy};
  const auto vary = [&](std::string_view key, auto Strategy::*member, auto values_of) {
    if (is_fixed(fixed, key)) return;
    std::vector<Strategy> all;
    for (Strategy& split : splits) {
      for (const auto value : values_of(split)) {
        split.*member = value;
        all.push_back(split);
      }
    }
    splits = std::move(all);
  };
  vary("ep", &Strategy::ep, [&](const Strategy& s) { return numbers_of_ranks(job, framework, s); });
  vary("etp", &Strategy::etp, [&](const Strategy& s) { return ranks_of_each(job, framework, s); });
  vary("expert_dispatch", &Strategy::expert_dispatch,
       [&](const Strategy& s) { return dispatches(framework, s); });
  std::erase_if(splits, [&](const Strategy& split) {
    return !is_within(limits, split, "ep") || !is_within(limits, split, "etp") ||
           !is_within(limits, split, "expert_dispatch");
  });
  return splits;
}

}  // namespace plimsoll
