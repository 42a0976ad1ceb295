#include "planner/explore/fewer_micro_batches.h"

namespace plimsoll {
namespace {

/// Cycles of a step in which some stage does not yet, or no longer, repeat itself: micro-batches in
/// flight in all stages, twice (ZB-H1 puts weight gradients off by as many), until all send slots
/// were used, and a few in which buffers are used for the first time. With several chunks a cycle
/// is pp micro-batches, each of which sends from every chunk.
std::int64_t other_cycles(const Strategy& strategy) {
  if (strategy.virtual_stages == 1) return 2 * strategy.pp + strategy.send_slots + 2;
  return 5 + strategy.send_slots / (strategy.pp * strategy.virtual_stages);
}

}  // namespace

std::optional<FewerJob> with_fewer_micro_batches(const Job& job, const Strategy& strategy,
                                                 const Framework& framework) {
  const bool repeats = strategy.schedule != Schedule::gpipe;
  const bool keeps = strategy.pp > 1 && (framework.border_memory == BorderMemory::for_each ||
                                         strategy.send_lifetime == SendLifetime::held);
  if (!repeats || keeps || framework.allocator.kind == AllocatorKind::arena) return std::nullopt;
  FewerJob fewer{job, {}};
  const std::int64_t all = micro_batches(job, strategy);
  const std::int64_t per_cycle = strategy.virtual_stages > 1 ? strategy.pp : 1;
  const std::int64_t few =
      (cycles_shown(strategy.pp) + other_cycles(strategy)) * per_cycle + all % per_cycle;
  if (8 * few > 7 * all) return std::nullopt;
  fewer.stand_for = {per_cycle, (all - few) / per_cycle};
  fewer.job.global_batch = few * strategy.micro_batch * strategy.dp * strategy.sharding_degree;
  return fewer;
}

}  // namespace plimsoll
