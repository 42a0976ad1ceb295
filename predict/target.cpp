// Rules, costs and memory of strategies on a target.
#include "predict/target.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "passes/strategy/sharding_rules.h"
#include "plan/filling.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {

namespace {

/// Returns how many devices the cluster has; nothing where it has any number.
std::optional<std::int64_t> devices_of(const Cluster& cluster) {
  if (!cluster.nodes) return std::nullopt;
  return *cluster.nodes * cluster.devices_per_node;
}

}  // namespace

bool is_oversubscribed(const Target& target) {
  const std::optional<std::int64_t> available = devices_of(target.cluster());
  return available && target.devices > *available;
}

void check_devices(const Target& target) {
  const Cluster& cluster = target.cluster();
  if (!is_oversubscribed(target) || cluster.device.kind == DeviceKind::cpu_core) return;
  throw InfeasibleError(fmt::format("cluster {} has {} devices ({} nodes of {}), {} were asked for",
                                    cluster.name, *devices_of(cluster), *cluster.nodes,
                                    cluster.devices_per_node, target.devices));
}

bool has_arena(const Framework& framework) {
  return framework.memory.allocator.kind == AllocatorKind::arena;
}

PassContext context_of(const Target& target, const Strategy& strategy) {
  return {target.job, strategy, target.framework()};
}

Verdict legal(const Target& target, const Strategy& strategy) {
  const Verdict by_job = legal(target.job, strategy, target.devices);
  return by_job ? legal(target.framework(), target.job, strategy) : by_job;
}

LayerShape layer_shape(const Job& job, const Strategy& strategy) {
  const std::int64_t operand =
      strategy.precision.fp8 != Fp8::none ? 1 : bytes_of(job.precision).count();
  const std::int64_t routed = job.experts ? job.experts->chosen * job.experts->ffn_hidden : 0;
  return {strategy.micro_batch * job.sequence / strategy.cp,
          job.sequence,
          job.hidden,
          strategy.mp,
          operand,
          routed};
}

ModelSize model_size(const Job& job) {
  return {job.layers, job.hidden, job.experts ? job.experts->count : 0};
}

CostModel costs_of_layers(const Target& target, const Strategy& strategy) {
  const auto& fitted = target.costs->fitted();
  if (!fitted) return *target.costs;
  const LayerShape shape = layer_shape(target.job, strategy);
  return target.costs->with_layer_factor(layer_factor(fitted->layers, shape).factor);
}

SlowestRank slowest_rank(const Target& target, const Strategy& strategy) {
  // All ranks meet where layers are gathered, and where tokens go to experts of other ranks.
  const bool meets = strategy.sharding_stage == 3 || strategy.ep > 1;
  const bool shares_heads = strategy.tokens.context_exchange == ContextExchange::all_to_all;
  const ExampleRanks ranks{.replicas = strategy.dp * strategy.sharding_degree,
                           .micro_batch = strategy.micro_batch,
                           .parts = shares_heads ? 1 : strategy.cp,
                           .waits = meets};
  Strategy plain;  // as the ranks of many strategies are
  plain.dp = ranks.replicas;
  plain.micro_batch = ranks.micro_batch;
  plain.cp = ranks.parts;
  plain.sharding_stage = ranks.waits ? 3 : 0;
  return target.slowest_ranks->of({plain, target.job.global_batch},
                                  [&] { return slowest_rank(target.job, ranks); });
}

CostModel costs_of(const Target& target, const Strategy& strategy) {
  const CostModel costs = costs_of_layers(target, strategy);
  if (target.job.lengths.empty()) return costs;
  return costs.with_attention_factor(slowest_rank(target, strategy).mean);
}

Bytes outside_program(const Target& target, const Strategy& strategy) {
  return memory_outside_program(target.job, strategy, target.framework());
}

std::optional<LearnedMemory> learned_memory(const Target& target) {
  const auto& fitted = target.costs->fitted();
  return fitted && fitted->learned ? fitted->learned->memory : std::nullopt;
}

Bytes room_for_program(const Target& target, const Strategy& strategy, Bytes capacity) {
  return std::max(capacity - (outside_program(target, strategy) + target.reserve), Bytes());
}

Bytes host_memory_of_node(const Target& target, const Strategy& strategy,
                          std::span<const StagePrediction> stages) {
  const auto keeps = [](const StagePrediction& stage) { return stage.host > Bytes(); };
  if (std::ranges::none_of(stages, keeps)) return {};
  const std::int64_t per_node = target.cluster().devices_per_node;
  Bytes most, of_node;
  for (std::int64_t rank = 0; rank < target.devices; ++rank) {
    if (rank % per_node == 0) of_node = {};
    of_node += stages[class_of_rank(strategy, rank)].host;
    most = std::max(most, of_node);
  }
  return most;
}

bool fits_host(const Target& target, const Strategy& strategy,
               std::span<const StagePrediction> stages) {
  const auto& host = target.cluster().host;
  return !host || !host->memory || host_memory_of_node(target, strategy, stages) <= *host->memory;
}

bool fits_devices(const Target& target, const Strategy& strategy,
                  std::span<const StagePrediction> stages) {
  if (!fits_host(target, strategy, stages)) return false;
  const Bytes outside = outside_program(target, strategy);
  return std::ranges::all_of(stages, [&](const StagePrediction& stage) {
    return filling_of(stage, outside, target.reserve).fits();
  });
}

Bytes largest_memory(const Target& target) {
  Bytes largest;
  for (const auto& [kind, count] : devices_by_kind(target.cluster(), target.devices)) {
    largest = std::max(largest, device_of(target.cluster(), kind).memory);
  }
  return largest;
}

}  // namespace plimsoll
