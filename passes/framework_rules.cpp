// What a framework allows of a strategy, and the device memory that it takes beside a Program.
#include <fmt/format.h>

#include "passes/strategy.h"

namespace plimsoll {

Verdict legal(const Framework& framework, const Strategy& strategy) {
  if (strategy.sharding_degree > 1 && framework.most_sharding_stage == 0) {
    return Verdict::no(fmt::format("sharding_degree is {}; {} has no distributed optimizer",
                                   strategy.sharding_degree, framework.name));
  }
  if (strategy.sharding_stage > framework.most_sharding_stage) {
    return Verdict::no(fmt::format("sharding_stage is {}; {} has stages up to {}",
                                   strategy.sharding_stage, framework.name,
                                   framework.most_sharding_stage));
  }
  if (strategy.sequence_parallel && !framework.sequence_parallel) {
    return Verdict::no(fmt::format("sequence_parallel; {} does not split tokens", framework.name));
  }
  if (strategy.cp > 1 && framework.context_parallel && !framework.flash_attention) {
    return Verdict::no(fmt::format("cp is {}; {} keeps attention scores, of whole sequences",
                                   strategy.cp, framework.name));
  }
  if (strategy.cp > 1 && !framework.context_parallel) {
    return Verdict::no(
        fmt::format("cp is {}; {} has whole sequences on each rank", strategy.cp, framework.name));
  }
  if (strategy.fp8 != Fp8::none && !framework.fp8) {
    return Verdict::no(fmt::format("fp8; {} has no products of 8-bit operands", framework.name));
  }
  if (strategy.recompute == Recompute::selective && framework.flash_attention) {
    return Verdict::no(
        fmt::format("recompute is selective; {} has flash attention, which keeps no scores to drop",
                    framework.name));
  }
  if (strategy.recompute == Recompute::selective && !framework.selective_recompute) {
    return Verdict::no(
        fmt::format("recompute is selective; {} recomputes whole layers only", framework.name));
  }
  if (strategy.recompute == Recompute::per_op && !framework.per_op_recompute) {
    return Verdict::no(
        fmt::format("recompute is per_op; {} does not choose by op", framework.name));
  }
  return Verdict::yes();
}

Bytes memory_outside_program(const Job& job, const Strategy& strategy, const Framework& framework) {
  Bytes total = framework.context_memory;
  const auto add = [&](std::int64_t ranks) {
    if (ranks < 2) return;
    total += ranks == 2 ? framework.pair_communicator_memory : framework.communicator_memory;
  };
  add(strategy.mp);
  // Ranks that share a key and value head, where they are not all of mp.
  if (job.kv_heads > 1 && strategy.mp > job.kv_heads) add(strategy.mp / job.kv_heads);
  add(strategy.pp);
  add(strategy.cp);
  if (strategy.dp * strategy.sharding_degree > 1)
    add(strategy.cp * strategy.dp * strategy.sharding_degree);
  if (strategy.dp > 1 && strategy.sharding_degree > 1) {
    add(strategy.sharding_degree);
    add(strategy.dp);
  }
  // Over one axis alone the norm is summed by that axis' communicator.
  const int split_over =
      int(strategy.mp > 1) + int(strategy.pp > 1) + int(strategy.sharding_degree > 1);
  if (split_over > 1) add(strategy.mp * strategy.pp * strategy.sharding_degree);
  if (job.tied_embeddings && strategy.pp > 2) add(2);
  return total;
}

}  // namespace plimsoll
