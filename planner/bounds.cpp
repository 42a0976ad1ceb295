#include "planner/bounds.h"

#include <algorithm>

#include "passes/arena_layout.h"
#include "passes/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule.h"
#include "passes/stage_blocks.h"

namespace plimsoll {
namespace {

/// Whether each stage has the same blocks in plain 1F1B: chunks of trunk and branch mix
/// differently.
bool stages_stay(const Job& job, const Strategy& strategy) {
  return strategy.virtual_stages == 1 || !job.branch ||
         instances_per_stage(job, strategy) ==
             instances_per_stage(job, as_plain_pipeline(job, strategy));
}

/// Of a stage's last action: how many of its blocks have a routine for it.
std::int64_t last_calls(const MicroBatchFacts& facts, const Strategy& strategy,
                        const Chunk& first_chunk) {
  const bool split = backward_cut(strategy) == BackwardCut::split;
  std::int64_t calls = 0;
  for (const BlockRun& run : first_chunk) {
    if (!split || facts.blocks[run.block].has_weights) calls += run.count;
  }
  return calls;
}

/// What all stages and all bucket sizes of a strategy have in common.
struct Lowered {
  Job job;
  PassContext context;
  Graph graph;
  std::int64_t alignment;
  CutGraph cut;
  Lowered(const Job& of, const Strategy& strategy, const Framework& framework)
      : job(fewest_micro_batches(of, strategy)),
        context{job, strategy, framework},
        graph(lower_graph(context)),
        alignment(arena_alignment(of, strategy)),
        cut(cut_blocks(graph, alignment, backward_cut(strategy), resident_limit(strategy),
                       scatters_bundles(strategy))) {}
};

/// A rank casts, and keeps for backward, only what it owns: less than the facts of blocks say.
bool owners_cast(const Strategy& strategy) {
  return shards_parameters(strategy) && classes_by_owner(strategy) &&
         strategy.gather == ParameterGather::use &&
         strategy.cast_placement == CastPlacement::every_use;
}

}  // namespace

Bounds::Bounds(const Job& job, const Framework& framework, const CostModel& costs,
               std::int64_t devices)
    : job_(job), framework_(framework), costs_(costs), facts_(job, framework, costs_, devices) {}

std::shared_ptr<const Bounds::Persistent> Bounds::degrees(const Strategy& strategy) const {
  Strategy plain = as_plain_pipeline(job_, strategy);
  plain.layer_split = layers_per_stage(job_, strategy);
  plain.sequence_parallel = plain.split_boundary = false;
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
  auto bytes = std::make_shared<const Persistent>(persistent_bytes(job_, plain, framework_));
  const std::lock_guard lock(mutex_);
  return degrees_.try_emplace(key, std::move(bytes)).first->second;
}

Bytes Bounds::persistent(const Strategy& strategy) const {
  if (!stages_stay(job_, strategy)) return {};
  const auto known = degrees(strategy);
  return *std::max_element(known->begin(), known->end());
}

MemoryBound Bounds::memory(const Strategy& strategy) const {
  if (owners_cast(strategy)) return {persistent(strategy), persistent(strategy)};
  const auto facts = facts_.of(strategy);
  const std::vector<StageKind> kinds = stage_kinds(stage_chunks(job_, strategy, *facts));
  if (!stages_stay(job_, strategy)) {
    const Persistent none(std::size_t(strategy.pp));
    return memory_bound(job_, strategy, framework_, *facts, kinds, none);
  }
  return memory_bound(job_, strategy, framework_, *facts, kinds, *degrees(strategy));
}

Picoseconds Bounds::bottleneck(const Strategy& strategy) const {
  if (owners_cast(strategy)) return {};
  const auto facts = facts_.of(strategy);
  const auto chunks = stage_chunks(job_, strategy, *facts);
  return bottleneck_bound(strategy, stage_spans(strategy, *facts, chunks, costs_),
                          micro_batches(job_, strategy));
}

Picoseconds Bounds::pipeline(const Strategy& strategy) const {
  // Gathers and reductions inside the micro-batches are on no path that is followed here.
  if (shards_gradients(strategy) || strategy.grad_reduction == GradReduction::per_micro_batch) {
    return bottleneck(strategy);
  }
  const Lowered lowered(job_, strategy, framework_);
  const auto facts = facts_.of(strategy);
  const std::vector<StageChunks> chunks = stage_chunks(job_, strategy, *facts);
  const std::vector<StageKind> kinds = stage_kinds(chunks);
  // Ranks of the first owner on every stage: what others do only adds.
  const std::optional<std::int64_t> owner =
      classes_by_owner(strategy) ? std::optional<std::int64_t>(0) : std::nullopt;
  std::vector<StepTail> tails;
  for (const StageKind& kind : kinds) {
    const Program program = schedule_stage(lowered.graph, lowered.cut, lowered.context, kind.first,
                                           lowered.alignment, owner);
    tails.push_back(step_tail(program, last_calls(*facts, strategy, kind.chunks.front()), costs_));
  }
  std::vector<const StepTail*> by_stage;
  for (const StageChunks& stage : chunks) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const StageKind& k) { return k.chunks == stage; });
    by_stage.push_back(&tails[std::size_t(kind - kinds.begin())]);
  }
  return pipeline_bound(strategy, stage_spans(strategy, *facts, chunks, costs_),
                        micro_batches(job_, strategy), by_stage);
}

std::vector<std::int64_t> Bounds::bucket_layout(const Strategy& strategy) const {
  const Lowered lowered(job_, strategy, framework_);
  std::vector<std::int64_t> layout;
  const auto facts = facts_.of(strategy);
  for (const StageKind& kind : stage_kinds(stage_chunks(job_, strategy, *facts))) {
    const ArenaLayout arenas =
        lay_out_arenas(lowered.graph, lowered.cut, lowered.context, kind.first, lowered.alignment);
    for (const Bucket& bucket : arenas.buckets) layout.push_back(bucket.elements);
    layout.push_back(0);
  }
  return layout;
}

}  // namespace plimsoll
