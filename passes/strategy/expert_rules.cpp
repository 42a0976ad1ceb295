// The rules of a mixture of experts.
#include "passes/strategy/expert_rules.h"

#include <fmt/format.h>

namespace plimsoll {

namespace {

/// Returns the tokens of the ranks of etp and ep.
std::int64_t gathered_tokens(const Job& job, const Strategy& strategy) {
  return strategy.micro_batch * job.sequence / strategy.mp * experts_tensor_parallel(strategy) *
         strategy.ep;
}

/// Whether a capacity finds whole sequences among the tokens that it counts.
bool has_whole_sequences(const Job& job, const Strategy& strategy) {
  const bool gathers = strategy.expert_dispatch == ExpertDispatch::all_gather || strategy.ep == 1;
  return job.experts->capacity == 0 || !experts_apart(strategy) || !gathers ||
         gathered_tokens(job, strategy) % job.sequence == 0;
}

Verdict grid_is_legal(const Job& job, const Strategy& strategy) {
  const Experts& experts = *job.experts;
  const std::int64_t etp = experts_tensor_parallel(strategy);
  if (!experts_apart(strategy)) return Verdict::yes();
  std::int64_t folded = 1;
  for (const Axis axis : grid_of(strategy).folded()) folded *= grid_of(strategy)[axis];
  if (folded % (etp * strategy.ep) != 0) {
    return Verdict::no(fmt::format("etp {} x ep {} does not divide the {} ranks of mp, cp and {}",
                                   etp, strategy.ep, folded,
                                   strategy.sharding_degree > 1 ? "sharding" : "dp"));
  }
  if (experts.count % strategy.ep != 0)
    return Verdict::no(
        fmt::format("ep {} does not divide the {} experts", strategy.ep, experts.count));
  if (experts.ffn_hidden % etp != 0)
    return Verdict::no(
        fmt::format("etp {} does not divide the experts' ffn_hidden {}", etp, experts.ffn_hidden));
  if (etp > 1 && strategy.ep > 1) return Verdict::no("etp above 1 is not built beside ep above 1");
  if (strategy.mp > 1 && !strategy.sequence_parallel)
    return Verdict::no("experts have ranks of their own; with mp that needs sequence_parallel");
  if (!has_whole_sequences(job, strategy)) {
    return Verdict::no(
        fmt::format("capacity: the {} tokens of etp x ep ranks are not whole sequences of {}",
                    gathered_tokens(job, strategy), job.sequence));
  }
  if (strategy.sharding_stage > 1)
    return Verdict::no("experts on ranks of their own are not built with sharding stages 2 and 3");
  if (strategy.sharding_stage > 0 && strategy.dp > 1)
    return Verdict::no("experts on ranks of their own are not built with dp beside shards");
  if (strategy.sharding_owner != ShardingOwner::elements)
    return Verdict::no("experts on ranks of their own need sharding_owner elements");
  if (strategy.rank_order != Strategy().rank_order)
    return Verdict::no("experts on ranks of their own need the usual rank_order");
  if (strategy.grad_reduction != GradReduction::at_end)
    return Verdict::no("experts on ranks of their own need grad_reduction at_end");
  if (strategy.flatten != Flatten::fused)
    return Verdict::no("experts on ranks of their own need flatten fused");
  if (job.optimizer.kind == OptimizerKind::lamb)
    return Verdict::no("experts on ranks of their own are not built with lamb");
  return Verdict::yes();
}

}  // namespace

Verdict experts_are_legal(const Job& job, const Strategy& strategy) {
  if (!job.experts) {
    return strategy.ep == 1 && strategy.etp == 0
               ? Verdict::yes()
               : Verdict::no("ep and etp: the job has no experts");
  }
  const Experts& experts = *job.experts;
  if (Verdict verdict = grid_is_legal(job, strategy); !verdict) return verdict;
  const std::int64_t split = experts_apart(strategy) ? 1 : strategy.mp;
  if (experts.ffn_hidden % split != 0 || experts.shared_ffn_hidden % strategy.mp != 0) {
    return Verdict::no(fmt::format("mp {} does not divide the experts' ffn_hidden of {} and {}",
                                   strategy.mp, experts.ffn_hidden, experts.shared_ffn_hidden));
  }
  if (strategy.cp > 1) return Verdict::no("cp is not built for a mixture of experts");
  return Verdict::yes();
}

std::int64_t fewest_sequences(const Job& job, const Strategy& strategy) {
  if (!job.experts) return 1;
  Strategy fewer = strategy;
  for (fewer.micro_batch = 1; fewer.micro_batch < strategy.micro_batch; ++fewer.micro_batch) {
    if (strategy.micro_batch % fewer.micro_batch == 0 && has_whole_sequences(job, fewer)) break;
  }
  return fewer.micro_batch;
}

}  // namespace plimsoll
