// How few micro-batches stand for all.
#include "planner/bounds/shorter_step.h"

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

/// Whether a cycle is one micro-batch. 1F1B with several chunks repeats itself after pp.
bool cycles_by_one(const Strategy& strategy) {
  return strategy.pipeline.virtual_stages == 1 || is_placed_as_v(strategy.schedule);
}

/// Returns the cycles of a step in which some stage does not yet, or no longer, repeat itself. They
/// are the micro-batches in flight in all stages, twice, since ZB-H1 puts weight gradients off by
/// as many. ZB-H2 and schedules that are placed as a V have up to twice as many. Then come cycles
/// until all send slots were used, and a few in which buffers are used for the first time. With
/// several chunks a cycle is pp micro-batches, each of which sends from every chunk.
std::int64_t other_cycles(const Strategy& strategy) {
  const bool fuller = strategy.schedule == Schedule::zb_h2 || is_placed_as_v(strategy.schedule);
  if (cycles_by_one(strategy))
    return (fuller ? 4 : 2) * strategy.pp + strategy.pipeline.send_slots + 2;
  return 5 + strategy.pipeline.send_slots / (strategy.pp * strategy.pipeline.virtual_stages);
}

}  // namespace

std::optional<FewerMicroBatches> fewer_micro_batches(const Strategy& strategy,
                                                     std::int64_t micro_batches) {
  if (strategy.schedule == Schedule::gpipe) return std::nullopt;
  const std::int64_t per_cycle = cycles_by_one(strategy) ? 1 : strategy.pp;
  const std::int64_t few =
      (cycles_shown(strategy.pp) + other_cycles(strategy)) * per_cycle + micro_batches % per_cycle;
  if (8 * few > 7 * micro_batches) return std::nullopt;
  return FewerMicroBatches{per_cycle, (micro_batches - few) / per_cycle};
}

std::optional<ShorterStep> with_fewer_micro_batches(const Target& target,
                                                    const Strategy& strategy) {
  const Framework& framework = target.framework();
  const bool keeps = strategy.pp > 1 && (framework.memory.borders == BorderMemory::for_each ||
                                         strategy.pipeline.send_lifetime == SendLifetime::held);
  if (keeps || has_arena(framework)) return std::nullopt;
  const std::int64_t all = micro_batches(target.job, strategy);
  const auto fewer = fewer_micro_batches(strategy, all);
  if (!fewer) return std::nullopt;
  const std::int64_t few = all - fewer->cycles_left_out * fewer->micro_batches_per_cycle;
  ShorterStep shorter{target, *fewer};
  shorter.target.job.global_batch =
      few * strategy.micro_batch * strategy.dp * strategy.sharding_degree;
  return shorter;
}

}  // namespace plimsoll
