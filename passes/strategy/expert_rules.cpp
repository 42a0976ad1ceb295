// The rules of a mixture of experts.
#include "passes/strategy/expert_rules.h"

#include <fmt/format.h>

#include "passes/strategy/sharding_rules.h"

namespace plimsoll {

namespace {

Verdict grid_is_legal(const Job& job, const Strategy& strategy) {
  const Experts& experts = *job.experts;
  const std::int64_t etp = experts_tensor_parallel(strategy);
  if (!experts_apart(strategy)) return Verdict::yes();
  std::int64_t folded = 1;
  for (const Axis axis : grid_of(strategy).folded()) folded *= grid_of(strategy)[axis];
  if (folded % (etp * strategy.ep) != 0) {
    return Verdict::no(fmt::format("etp {} x ep {} does not divide the {} ranks of a stage", etp,
                                   strategy.ep, folded));
  }
  if (experts.count % strategy.ep != 0)
    return Verdict::no(
        fmt::format("ep {} does not divide the {} experts", strategy.ep, experts.count));
  if (strategy.experts.rows_percent > 0 && strategy.experts.rows_percent < 100) {
    return Verdict::no(fmt::format("expert_rows_percent {}: even routing gives 100 % of its rows",
                                   strategy.experts.rows_percent));
  }
  if (experts.ffn_hidden % etp != 0)
    return Verdict::no(
        fmt::format("etp {} does not divide the experts' ffn_hidden {}", etp, experts.ffn_hidden));
  const auto adapts = [&](AdapterTarget target) {
    return job.adapters && job.adapters->targets.has(target);
  };
  if (etp > 1 && (adapts(AdapterTarget::gate) || adapts(AdapterTarget::gate_up) ||
                  adapts(AdapterTarget::down)))
    return Verdict::no("etp is not built for adapters of experts");
  if (etp > 1 && experts.bias) return Verdict::no("etp is not built for experts with biases");
  if (needs_sequence_parallel(strategy) && !strategy.tokens.sequence_parallel)
    return Verdict::no("expert parallelism with mp needs sequence_parallel");
  if (shards_parameters(strategy) && grid_of(strategy)[Axis::edp] == 1 &&
      strategy.gathers.persistence_threshold > 0) {
    return Verdict::no(
        "persistence_threshold: experts that one rank has are not gathered, and stay whole instead");
  }
  if (strategy.rank_order != Strategy().rank_order)
    return Verdict::no("expert parallelism needs the usual rank_order");
  if (strategy.gradients.reduction != GradReduction::at_end)
    return Verdict::no("expert parallelism needs grad_reduction at_end");
  if (strategy.optimizer.flatten != Flatten::fused)
    return Verdict::no("expert parallelism needs flatten fused");
  if (job.optimizer.kind == OptimizerKind::lamb)
    return Verdict::no("expert parallelism is not built with lamb");
  return Verdict::yes();
}

}  // namespace

Verdict pairs_are_legal(const Strategy& strategy) {
  if (!strategy.experts.overlap_exchange) return Verdict::yes();
  if (!experts_apart(strategy) || experts_tensor_parallel(strategy) * strategy.ep == 1)
    return Verdict::no("overlap_expert_exchange: no tokens travel to experts");
  const Schedule schedule = strategy.schedule;
  if (schedule != Schedule::one_f_one_b && schedule != Schedule::dualpipe_v &&
      schedule != Schedule::dualpipe)
    return Verdict::no("overlap_expert_exchange goes with schedule 1f1b, dualpipe_v or dualpipe");
  if (strategy.sharding_stage > 1)
    return Verdict::no("overlap_expert_exchange goes with sharding_stage 0 or 1");
  if (strategy.gradients.merge != GradientMerge::direct)
    return Verdict::no("overlap_expert_exchange goes with gradient_merge direct");
  if (strategy.pipeline.send_lifetime != SendLifetime::event)
    return Verdict::no("overlap_expert_exchange goes with send_lifetime event");
  return Verdict::yes();
}

Verdict experts_are_legal(const Job& job, const Strategy& strategy) {
  if (!job.experts) {
    return strategy.ep == 1 && strategy.experts.etp == 0 && !strategy.experts.overlap_shared &&
                   !strategy.experts.overlap_exchange
               ? Verdict::yes()
               : Verdict::no(
                     "ep, etp, overlap_shared_experts and overlap_expert_exchange: the job "
                     "has no experts");
  }
  const Experts& experts = *job.experts;
  if (strategy.experts.overlap_shared) {
    if (experts.shared_ffn_hidden == 0)
      return Verdict::no("overlap_shared_experts: the job has no shared experts");
    if (!experts_apart(strategy) || experts_tensor_parallel(strategy) * strategy.ep == 1)
      return Verdict::no("overlap_shared_experts: no tokens travel to experts");
  }
  // A rank counts the choices of the sequences that have a loss together in one micro-batch.
  if (strategy.micro_batch % experts.balance_sequences != 0) {
    return Verdict::no(
        fmt::format("micro_batch {} is no multiple of the {} sequences of an auxiliary loss",
                    strategy.micro_batch, experts.balance_sequences));
  }
  if (experts.balance_layers && strategy.micro_batch != experts.balance_sequences) {
    return Verdict::no(fmt::format(
        "micro_batch {}: with balance_layers it is the {} sequences of an auxiliary loss",
        strategy.micro_batch, experts.balance_sequences));
  }
  if (experts.balance_layers && strategy.pp > 1)
    return Verdict::no("balance_layers: a stage lacks the choices of layers on other stages");
  if (Verdict verdict = grid_is_legal(job, strategy); !verdict) return verdict;
  if (Verdict verdict = pairs_are_legal(strategy); !verdict) return verdict;
  const std::int64_t split = experts_apart(strategy) ? 1 : strategy.mp;
  if (experts.ffn_hidden % split != 0 || experts.shared_ffn_hidden % strategy.mp != 0) {
    return Verdict::no(fmt::format("mp {} does not divide the experts' ffn_hidden of {} and {}",
                                   strategy.mp, experts.ffn_hidden, experts.shared_ffn_hidden));
  }
  if (experts.dense_ffn_hidden % strategy.mp != 0) {
    return Verdict::no(fmt::format("mp {} does not divide the dense_ffn_hidden of {}", strategy.mp,
                                   experts.dense_ffn_hidden));
  }
  return Verdict::yes();
}

}  // namespace plimsoll
