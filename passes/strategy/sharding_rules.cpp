// Sharding rules: what a sharding stage keeps as shards, and which communications overlap.
#include "passes/strategy/sharding_rules.h"

#include "graph/program.h"

namespace plimsoll {

bool shards_gradients(const Strategy& strategy) { return strategy.sharding_stage >= 2; }

bool shards_parameters(const Strategy& strategy) { return strategy.sharding_stage == 3; }

std::int64_t resident_limit(const Strategy& strategy) {
  return shards_parameters(strategy) ? strategy.persistence_threshold : 0;
}

ResidentParameters resident_parameters(const Strategy& strategy) {
  const bool alone = experts_apart(strategy) && shards_of(strategy, true) == 1;
  return {resident_limit(strategy), shards_parameters(strategy) && alone};
}

std::int64_t shards_of(const Strategy& strategy, bool experts) {
  const std::int64_t shards = optimizer_shards(strategy);
  return experts && shards > 1 ? grid_of(strategy)[Axis::edp] : shards;
}

bool sums_whole_gradients(const PassContext& context) {
  return context.strategy.sharding_stage == 1 && context.job.precision == DType::bf16 &&
         context.strategy.gradient_type == GradientType::f32 &&
         context.framework.gradient_memory == GradientMemory::bf16_also_in_f32;
}

bool overlaps_grad_reduce(const PassContext& context) {
  return context.framework.overlap_grad_reduce && context.strategy.overlap_grad_reduce;
}

bool overlaps_param_gather(const PassContext& context) {
  return context.framework.overlap_param_gather && context.strategy.overlap_param_gather;
}

std::vector<std::optional<std::int64_t>> owner_classes(const Strategy& strategy) {
  if (!classes_by_owner(strategy)) return {std::nullopt};
  std::vector<std::optional<std::int64_t>> owners;
  for (std::int64_t owner = 0; owner < strategy.sharding_degree; ++owner) owners.push_back(owner);
  return owners;
}

std::size_t class_of_rank(const Strategy& strategy, std::int64_t rank) {
  const Grid grid = grid_of(strategy);
  return class_of(grid, classes_by_owner(strategy), grid.coordinates(rank));
}

}  // namespace plimsoll
