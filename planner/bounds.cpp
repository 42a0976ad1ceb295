#include "planner/bounds.h"

#include <algorithm>
#include <numeric>

#include "passes/arena_layout.h"
#include "passes/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule.h"
#include "passes/stage_blocks.h"

namespace plimsoll {
namespace {

/// Index of each stage's kind.
std::vector<std::size_t> kind_of_stages(const Job& job, const Strategy& strategy,
                                        std::span<const StageKind> kinds) {
  std::vector<std::size_t> result;
  for (const std::vector<std::int64_t>& instances : instances_per_stage(job, strategy)) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const StageKind& k) { return k.instances == instances; });
    result.push_back(std::size_t(kind - kinds.begin()));
  }
  return result;
}

bool is_plain_pipeline(const Job& job, const Strategy& strategy) {
  return as_plain_pipeline(job, strategy) == strategy;
}

/// Whether each stage has the same blocks in plain 1F1B: chunks of trunk and branch mix
/// differently.
bool stages_stay(const Job& job, const Strategy& strategy) {
  return strategy.virtual_stages == 1 ||
         instances_per_stage(job, strategy) ==
             instances_per_stage(job, as_plain_pipeline(job, strategy));
}

/// What the busiest stage computes, in whatever order.
Picoseconds compute_bound(const Job& job, const Strategy& strategy, const MicroBatchFacts& facts) {
  Picoseconds longest;
  for (const std::vector<std::int64_t>& instances : instances_per_stage(job, strategy)) {
    Picoseconds sum;
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      const BlockFacts& block = facts.blocks[b];
      sum += repeated(block.forward.compute + block.backward.compute, instances[b]);
    }
    longest = std::max(longest, repeated(sum, micro_batches(job, strategy)));
  }
  return longest;
}

}  // namespace

Bounds::Bounds(const Job& job, const Framework& framework, const CostModel& costs,
               std::int64_t devices)
    : job_(job), framework_(framework), costs_(costs), facts_(job, framework, costs_, devices) {}

std::shared_ptr<const Bounds::Degrees> Bounds::degrees(const Strategy& strategy) const {
  const Strategy plain = as_plain_pipeline(job_, strategy);
  const Key key{plain.mp,
                plain.pp,
                plain.dp,
                plain.sharding_degree,
                plain.layer_split,
                plain.sharding_stage,
                plain.persistence_threshold};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = degrees_.find(key); found != degrees_.end()) return found->second;
  }
  auto degrees = std::make_shared<Degrees>();
  degrees->kinds = stage_kinds(job_, plain);
  degrees->persistent = persistent_bytes(job_, plain, framework_);
  const std::lock_guard lock(mutex_);
  return degrees_.try_emplace(key, std::move(degrees)).first->second;
}

Bytes Bounds::persistent(const Strategy& strategy) const {
  if (!stages_stay(job_, strategy)) return {};
  const auto known = degrees(strategy);
  return *std::max_element(known->persistent.begin(), known->persistent.end());
}

MemoryBound Bounds::memory(const Strategy& strategy) const {
  const auto known = degrees(strategy);
  if (!is_plain_pipeline(job_, strategy)) return {persistent(strategy), persistent(strategy)};
  return memory_bound(job_, strategy, *facts_.of(strategy), known->kinds, known->persistent);
}

Picoseconds Bounds::bottleneck(const Strategy& strategy) const {
  if (!is_plain_pipeline(job_, strategy)) {
    return compute_bound(job_, strategy, *facts_.of(strategy));
  }
  return bottleneck_bound(stage_spans(job_, strategy, *facts_.of(strategy), costs_),
                          micro_batches(job_, strategy));
}

Picoseconds Bounds::pipeline(const Strategy& strategy) const {
  if (!is_plain_pipeline(job_, strategy)) return bottleneck(strategy);
  // Gathers and reductions inside the micro-batches are on no path that is followed here.
  if (shards_gradients(strategy) || strategy.grad_reduction == GradReduction::per_micro_batch) {
    return bottleneck(strategy);
  }
  const std::vector<StageKind> kinds = stage_kinds(job_, strategy);
  const Job small = one_micro_batch(job_, strategy);
  const PassContext context{small, strategy, framework_};
  const Graph graph = lower_graph(context);
  const std::int64_t alignment = arena_alignment(job_, strategy);
  const CutGraph cut = cut_blocks(graph, alignment, BackwardCut::whole, resident_limit(strategy),
                                  scatters_bundles(strategy));
  // Ranks of the first owner on every stage: what others do only adds.
  const std::optional<std::int64_t> owner =
      classes_by_owner(strategy) ? std::optional<std::int64_t>(0) : std::nullopt;
  std::vector<StepTail> tails;
  for (const StageKind& kind : kinds) {
    tails.push_back(
        step_tail(schedule_stage(graph, cut, context, kind.first, alignment, owner), costs_));
  }
  std::vector<const StepTail*> by_stage;
  for (std::size_t kind : kind_of_stages(job_, strategy, kinds)) by_stage.push_back(&tails[kind]);
  return pipeline_bound(stage_spans(job_, strategy, *facts_.of(strategy), costs_),
                        micro_batches(job_, strategy), strategy.send_slots, by_stage);
}

std::vector<std::int64_t> Bounds::bucket_layout(const Strategy& strategy) const {
  const Job small = one_micro_batch(job_, strategy);
  const PassContext context{small, strategy, framework_};
  const Graph graph = lower_graph(context);
  const std::int64_t alignment = arena_alignment(job_, strategy);
  const CutGraph cut = cut_blocks(graph, alignment, BackwardCut::whole, resident_limit(strategy),
                                  scatters_bundles(strategy));
  std::vector<std::int64_t> layout;
  // Chunks make stages of equal blocks differ.
  std::vector<std::int64_t> stages;
  for (const StageKind& kind : stage_kinds(job_, strategy)) stages.push_back(kind.first);
  if (strategy.virtual_stages > 1) {
    stages.resize(std::size_t(strategy.pp));
    std::iota(stages.begin(), stages.end(), 0);
  }
  for (std::int64_t stage : stages) {
    const ArenaLayout arenas = lay_out_arenas(graph, cut, context, stage, alignment);
    for (const Bucket& bucket : arenas.buckets) layout.push_back(bucket.elements);
    layout.push_back(0);
  }
  return layout;
}

}  // namespace plimsoll
