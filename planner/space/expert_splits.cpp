// Multiplies the numbers of ranks by the ways to send tokens.
#include "planner/space/expert_splits.h"

#include <numeric>

namespace plimsoll {
namespace {

bool has_replicas_of_shards(const Strategy& strategy) {
  return strategy.dp > 1 && strategy.sharding_degree > 1;
}

std::vector<std::int64_t> numbers_of_ranks(const Job& job, const Framework& framework,
                                           const Strategy& strategy) {
  if (!job.experts || framework.can.experts.dispatch.value.empty()) return {1};
  if (has_replicas_of_shards(strategy)) return {1};
  const std::int64_t ranks =
      strategy.mp * strategy.cp * strategy.sharding_degree * strategy.dp;  // of a stage
  return divisors(std::gcd(ranks, job.experts->count));
}

/// Returns values of etp. 0 is the usual one, which is 1 where ep is above 1, and else mp.
std::vector<std::int64_t> ranks_of_each(const Job& job, const Framework& framework,
                                        const Strategy& strategy) {
  std::vector<std::int64_t> ranks = {0};
  const bool apart = job.experts && framework.can.experts.tensor_parallel.value &&
                     !has_replicas_of_shards(strategy) && strategy.cp == 1;
  if (apart && strategy.mp > 1) ranks.push_back(strategy.ep > 1 ? strategy.mp : 1);
  return ranks;
}

/// Whether all_gather moves at most as much as all_to_all (passes/graph/expert_parallel.cpp). For
/// each of its own tokens a rank of etp x ep gets etp ep - 1 tokens in all_gather. In all_to_all it
/// gets (ep - 1) / ep rows for each chosen expert over ep, and then etp - 1 times the rows over
/// etp. Together that is (etp ep - 1) / ep, so that etp does not count. The rank that gets most has
/// more rows by `load`.
bool gathers_little(const Experts& experts, const Strategy& strategy) {
  return double(strategy.ep) <= double(experts.chosen) * experts.load;
}

/// Returns whether shared experts may compute while tokens travel. That shortens steps, and may
/// take a little more memory, so that both are tried.
std::vector<bool> overlaps(const Job& job, const Framework& framework, const Strategy& strategy) {
  const bool exchanges = job.experts && strategy.ep > 1 &&
                         strategy.experts.dispatch == ExpertDispatch::all_to_all &&
                         !framework.parallelism.sends_tokens_once_per_node;
  const bool beside = exchanges && job.experts->shared_ffn_hidden > 0 &&
                      framework.can.experts.overlap_shared.value.has(strategy.experts.dispatch);
  if (!beside) return {false};
  return {false, true};
}

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d != number / d) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<ExpertDispatch> expert_dispatches(const Job& job, const Framework& framework,
                                              const Strategy& strategy) {
  if (!job.experts || strategy.ep == 1) return {strategy.experts.dispatch};
  const auto& has = framework.can.experts.dispatch.value;
  const bool little = strategy.cp == 1 && gathers_little(*job.experts, strategy);
  std::vector<ExpertDispatch> all;
  if (has.has(ExpertDispatch::all_to_all)) all.push_back(ExpertDispatch::all_to_all);
  if (has.has(ExpertDispatch::all_gather) && (little || all.empty()))
    all.push_back(ExpertDispatch::all_gather);
  if (all.empty()) all.push_back(strategy.experts.dispatch);  // for legal() to refuse
  return all;
}

std::vector<Strategy> expert_splits(const Job& job, const Framework& framework,
                                    const Strategy& strategy, const Fixed& fixed,
                                    const Limits& limits) {
  std::vector<Strategy> splits = {strategy};
  const auto vary = [&](std::string_view key, auto field, auto values_of) {
    if (is_fixed(fixed, key)) return;
    std::vector<Strategy> all;
    for (Strategy& split : splits) {
      for (const auto value : values_of(split)) {
        field(split) = value;
        all.push_back(split);
      }
    }
    splits = std::move(all);
  };
  vary("ep", FIELD(ep), [&](const Strategy& s) { return numbers_of_ranks(job, framework, s); });
  vary("etp", FIELD(experts.etp),
       [&](const Strategy& s) { return ranks_of_each(job, framework, s); });
  vary("expert_dispatch", FIELD(experts.dispatch),
       [&](const Strategy& s) { return expert_dispatches(job, framework, s); });
  vary("overlap_shared_experts", FIELD(experts.overlap_shared),
       [&](const Strategy& s) { return overlaps(job, framework, s); });
  std::erase_if(splits, [&](const Strategy& split) {
    return !is_within(limits, split, "ep") || !is_within(limits, split, "etp") ||
           !is_within(limits, split, "expert_dispatch") ||
           !is_within(limits, split, "overlap_shared_experts");
  });
  return splits;
}

}  // namespace plimsoll
