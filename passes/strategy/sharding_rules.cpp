// Sharding rules: what a sharding stage keeps as shards, and which communications overlap.
#include "passes/strategy/sharding_rules.h"

#include <fmt/format.h>

#include "graph/program.h"
#include "passes/strategy/offload_rules.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

namespace {

/// Returns whether a strategy goes with owners of whole tensors.
Verdict owners_are_possible(const Strategy& strategy) {
  if (strategy.sharding_stage == 0)
    return Verdict::no("sharding_owner other than elements goes with sharding_degree above 1");
  if (strategy.cp > 1) return Verdict::no("cp goes with sharding_owner elements");
  if (experts_apart(strategy))
    return Verdict::no("expert parallelism needs sharding_owner elements");
  if (swaps_halves(strategy.schedule) && strategy.dp % 2 != 0)
    return Verdict::no("schedule dualpipe with an odd dp needs sharding_owner elements");
  const auto be_elements = [](std::string_view choice) {
    return Verdict::no(fmt::format("{}; sharding_owner must be elements", choice));
  };
  if (strategy.optimizer.offload_percent > 0) {
    return be_elements(
        fmt::format("offload_optimizer_percent is {}", strategy.optimizer.offload_percent));
  }
  if (strategy.precision.main_gradients != GradientType::f32)
    return be_elements("main_gradient_type is not f32");
  if (strategy.precision.main_parameters != MasterType::f32)
    return be_elements("main_parameter_type is not f32");
  if (strategy.precision.moments != MomentType::f32) return be_elements("moment_type is not f32");
  if (strategy.precision.fp8_parameters) return be_elements("fp8_parameters is true");
  return Verdict::yes();
}

/// Returns whether a strategy goes with equal ranges of elements, without choices about whole
/// tensors.
Verdict elements_are_possible(const Strategy& strategy) {
  if (optimizer_shards(strategy) > 1 && strategy.optimizer.flatten != Flatten::fused) {
    return Verdict::no(
        "flatten is not fused; ranges of elements cut through tensors, which only the fused form "
        "updates in parts");
  }
  if (strategy.gathers.unit == ParameterGather::use ||
      strategy.gathers.unit == ParameterGather::segment) {
    return Verdict::no(
        "gather use and segment are broadcasts of whole tensors from their owners: "
        "they need another sharding_owner than elements");
  }
  const Strategy usual;
  if (strategy.owners.collective_fusion != usual.owners.collective_fusion)
    return Verdict::no("collective_fusion is for tensors that are owned whole (sharding_owner)");
  if (strategy.gathers.bucket_bytes != usual.gathers.bucket_bytes) {
    return Verdict::no(
        "param_bucket_bytes is for tensors that are owned whole (sharding_owner): of equal element "
        "ranges each rank owns a part of every gradient bucket, so that a gather of any other "
        "range would need copies; grad_bucket_bytes sets both");
  }
  return Verdict::yes();
}

}  // namespace

bool shards_gradients(const Strategy& strategy) { return strategy.sharding_stage >= 2; }

bool reduces_per_micro_batch(const Strategy& strategy) {
  return shards_gradients(strategy) || strategy.gradients.release ||
         strategy.gradients.reduction == GradReduction::per_micro_batch;
}

bool shards_parameters(const Strategy& strategy) { return strategy.sharding_stage == 3; }

std::int64_t resident_limit(const Strategy& strategy) {
  return shards_parameters(strategy) ? strategy.gathers.persistence_threshold : 0;
}

ResidentParameters resident_parameters(const Strategy& strategy) {
  const bool on_device = shards_parameters(strategy) && !keeps_trained_on_host(strategy);
  const bool experts = experts_apart(strategy) && shards_of(strategy, true) == 1;
  return {resident_limit(strategy), on_device && experts,
          on_device && optimizer_shards(strategy) == 1};
}

bool updates_matrices(const Job& job) {
  return job.optimizer.kind == OptimizerKind::muon ||
         job.optimizer.kind == OptimizerKind::adafactor;
}

std::int64_t shards_of(const Strategy& strategy, bool experts) {
  const std::int64_t shards = optimizer_shards(strategy);
  return experts && shards > 1 ? grid_of(strategy)[Axis::edp] : shards;
}

bool sums_whole_gradients(const PassContext& context) {
  return context.strategy.sharding_stage == 1 && context.job.precision == DType::bf16 &&
         context.strategy.precision.gradients == GradientType::f32 &&
         context.framework.memory.gradients == GradientMemory::bf16_also_in_f32;
}

bool overlaps_grad_reduce(const PassContext& context) {
  return context.framework.parallelism.overlap.grad_reduce && context.strategy.gradients.overlap;
}

bool overlaps_param_gather(const PassContext& context) {
  return context.framework.parallelism.overlap.param_gather && context.strategy.gathers.overlap;
}

std::vector<std::optional<std::int64_t>> owner_classes(const Strategy& strategy) {
  if (!classes_by_owner(strategy)) return {std::nullopt};
  std::vector<std::optional<std::int64_t>> owners;
  for (std::int64_t owner = 0; owner < strategy.sharding_degree; ++owner) owners.push_back(owner);
  return owners;
}

std::int64_t equal_shards(const Strategy& strategy) {
  return classes_by_owner(strategy) ? 1 : optimizer_shards(strategy);
}

std::size_t class_of_rank(const Strategy& strategy, std::int64_t rank) {
  const Grid grid = grid_of(strategy);
  return class_of(grid, classes_by_owner(strategy), grid.coordinates(rank));
}

Verdict owners_are_legal(const Strategy& strategy) {
  if (strategy.gathers.bucket_bytes < kLeastBucket) {
    return Verdict::no(fmt::format("param_bucket_bytes is {}; it must be at least {}",
                                   strategy.gathers.bucket_bytes.count(), kLeastBucket.count()));
  }
  return strategy.owners.sharding_owner == ShardingOwner::elements ? elements_are_possible(strategy)
                                                                   : owners_are_possible(strategy);
}

}  // namespace plimsoll
