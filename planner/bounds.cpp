#include "planner/bounds.h"

#include <algorithm>

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

}  // namespace

Bounds::Bounds(const Job& job, const Framework& framework, const CostModel& costs,
               std::int64_t devices)
    : job_(job), framework_(framework), costs_(costs), facts_(job, framework, costs_, devices) {}

std::shared_ptr<const Bounds::Degrees> Bounds::degrees(const Strategy& strategy) const {
  const Key key{strategy.mp, strategy.pp, strategy.dp, strategy.sharding_degree,
                strategy.layer_split};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = degrees_.find(key); found != degrees_.end()) return found->second;
  }
  auto degrees = std::make_shared<Degrees>();
  degrees->kinds = stage_kinds(job_, strategy);
  degrees->persistent = persistent_bytes(job_, strategy, framework_);
  const std::lock_guard lock(mutex_);
  return degrees_.try_emplace(key, std::move(degrees)).first->second;
}

Bytes Bounds::persistent(const Strategy& strategy) const {
  const auto known = degrees(strategy);
  return *std::max_element(known->persistent.begin(), known->persistent.end());
}

MemoryBound Bounds::memory(const Strategy& strategy) const {
  const auto known = degrees(strategy);
  return memory_bound(job_, strategy, *facts_.of(strategy), known->kinds, known->persistent);
}

Picoseconds Bounds::bottleneck(const Strategy& strategy) const {
  return bottleneck_bound(stage_spans(job_, strategy, *facts_.of(strategy), costs_),
                          micro_batches(job_, strategy));
}

Picoseconds Bounds::pipeline(const Strategy& strategy) const {
  const std::vector<StageKind> kinds = stage_kinds(job_, strategy);
  const Job small = one_micro_batch(job_, strategy);
  const PassContext context{small, strategy, framework_};
  const Graph graph = lower_graph(context);
  const std::int64_t alignment = arena_alignment(job_, strategy);
  const CutGraph cut = cut_blocks(graph, alignment);
  std::vector<StepTail> tails;
  for (const StageKind& kind : kinds) {
    tails.push_back(step_tail(schedule_stage(graph, cut, context, kind.first, alignment), costs_));
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
  const CutGraph cut = cut_blocks(graph, alignment);
  std::vector<std::int64_t> layout;
  for (const StageKind& kind : stage_kinds(job_, strategy)) {
    const ArenaLayout arenas = lay_out_arenas(graph, cut, context, kind.first, alignment);
    for (const Bucket& bucket : arenas.buckets) layout.push_back(bucket.elements);
    layout.push_back(0);
  }
  return layout;
}

}  // namespace plimsoll
