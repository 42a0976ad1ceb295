// Bounds of whole strategies from block facts and traffic.
#include "planner/bounds/bounds.h"

#include <algorithm>
#include <set>

#include "models/job/layer_forms.h"
#include "passes/cut/cut_blocks.h"
#include "passes/layout/arena_layout.h"
#include "passes/pipeline.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/stage_layout.h"
#include "planner/bounds/pipeline_step.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Whether each stage has the same blocks in plain 1F1B. Chunks of layers that differ mix
/// differently.
bool keeps_blocks(const Job& job, const Strategy& strategy) {
  if (strategy.pipeline.virtual_stages == 1 || !layers_differ(job)) return true;
  const std::vector<BlockShape> blocks = block_shapes(job);
  const Strategy plain = as_plain_pipeline(job, strategy);
  return instances_per_stage(stage_layout(job, strategy, blocks)) ==
         instances_per_stage(stage_layout(job, plain, blocks));
}

/// The facts that all stages and all bucket sizes of a strategy have in common.
struct Lowered {
  Job job;
  Graph graph;
  CutGraph cut;
  StageLayout stages;
  Lowered(const Target& target, const Strategy& strategy)
      : job(fewest_micro_batches(target.job, strategy)),
        graph(lower_graph({job, strategy, target.framework()}, {}, Proof::none)),
        cut(cut_blocks(graph, arena_alignment(job, strategy), cut_choices(strategy))),
        stages(stage_layout(job, strategy, block_shapes(graph))) {}
};

/// Whether a rank casts, and keeps for backward, only tensors that it owns. Facts of blocks count
/// more.
bool owners_cast(const Strategy& strategy) {
  return shards_parameters(strategy) && classes_by_owner(strategy) &&
         strategy.gathers.unit == ParameterGather::use &&
         strategy.optimizer.cast_placement == CastPlacement::every_use;
}

/// Whether some chunk passes on what it receives. Its calls are not bounded.
bool has_empty_chunk(const Strategy& strategy) {
  const auto& split = strategy.pipeline.layer_split;
  return split.size() > 2 && std::find(split.begin() + 1, split.end() - 1, 0) != split.end() - 1;
}

/// Whether only the bytes that last between steps are bounded.
bool is_not_bounded(const Strategy& strategy) {
  return owners_cast(strategy) || has_empty_chunk(strategy);
}

/// Returns the buckets of every kind of stage. For strategies that differ in grad_bucket_bytes
/// only, the result is equal exactly where their Programs are.
std::vector<std::int64_t> bucket_layout(const Lowered& lowered, const PassContext& context,
                                        std::span<const StageKind> kinds) {
  std::vector<std::int64_t> layout;
  for (const StageKind& kind : kinds) {
    const ArenaLayout arenas =
        lay_out_arenas(lowered.graph, lowered.cut, context, lowered.stages, kind.first);
    for (const Bucket& bucket : arenas.buckets) layout.push_back(bucket.elements);
    layout.push_back(0);
  }
  return layout;
}

/// Returns the time of a chunk's actions on a micro-batch, with the transfers that they wait for.
Picoseconds work_of(const StageSpans& stage, const ChunkSpans& chunk) {
  const Picoseconds spans = chunk.forward.span + chunk.backward.span + chunk.weights.span;
  return stage.receives_ahead ? spans : spans + chunk.forward.transfer + chunk.backward.transfer;
}

/// Returns a send to the next stage for each size of a border, by the facts of a micro-batch of one
/// sequence. A border has as many elements for each sequence.
std::vector<Routine> border_sends(const MicroBatchFacts& facts, std::int64_t sequences) {
  std::vector<Routine> sends;
  std::set<std::pair<DType, Shape>> seen;
  for (const BlockFacts& block : facts.blocks) {
    for (const auto* border : {&block.send_output, &block.send_input_gradient}) {
      if (!*border) continue;
      Routine send = (*border)->send;
      Tensor& payload = send.tensors[0];
      if (!seen.emplace(payload.dtype, payload.shape).second) continue;
      payload.shape[0] *= sequences;
      std::get<TransferParams>(send.ops[0].params).stage_offset = 1;
      sends.push_back(std::move(send));
    }
  }
  return sends;
}

void add_weights(const Chunk& chunk, const MicroBatchFacts& facts, WeightBytes& weights) {
  for (const BlockRun& run : chunk) {
    const WeightBytes& one = facts.blocks[run.block].bundle;
    weights.gradients += run.count * one.gradients;
    weights.parameters += run.count * one.parameters;
    weights.expert_gradients += run.count * one.expert_gradients;
    weights.expert_parameters += run.count * one.expert_parameters;
  }
}

}  // namespace

Picoseconds capped(const std::function<Picoseconds()>& bound) {
  try {
    return std::min(bound(), kLongestStep);
  } catch (const InfeasibleError&) {
    return kLongestStep;
  }
}

Bounds::Bounds(const Target& target)
    : target_(target), costs_(target), facts_(target, costs_), step_traffic_(target) {}

const Bounds::Persistent& Bounds::degrees(const Strategy& strategy) const {
  // In a V, and where chunks mix layers that differ, stages of plain 1F1B have other blocks.
  const bool lasts_alike =
      !is_placed_as_v(strategy.schedule) && keeps_blocks(target_.job, strategy);
  Strategy plain = without(lasts_alike ? as_plain_pipeline(target_.job, strategy) : strategy,
                           FIELD(pipeline.embedding_as_layers), FIELD(pipeline.loss_as_layers),
                           FIELD(pipeline.split_boundary), FIELD(rank_order), FIELD(micro_batch));
  plain.pipeline.layer_split = lasts_alike ? layers_per_stage(target_.job, strategy)
                                           : layers_per_part(target_.job, strategy);
  // Splitting tokens changes in which order parameters lie: who owns what, and the padding between
  // tensors that are updated one by one.
  if (!classes_by_owner(strategy) && strategy.optimizer.flatten == Flatten::fused) {
    plain.tokens.sequence_parallel = false;
  }
  drop_recompute(plain);
  plain.gradients.bucket_bytes = Bytes(std::int64_t{1} << 50);
  return degrees_.of({plain}, [&] { return persistent_bytes(context_of(target_, plain)); });
}

std::vector<Bounds::Transfer> Bounds::transfers(const Strategy& strategy) const {
  Strategy small = strategy;
  small.micro_batch = 1;
  drop_recompute(small);
  const auto facts = facts_.of(small);
  const std::vector<Routine> sends = border_sends(*facts, strategy.micro_batch);
  const LeastCosts& costs = costs_.of(strategy);
  const Grid grid = grid_of(strategy);
  std::vector<Transfer> transfers;
  for (std::int64_t stage = 0; stage < strategy.pp; ++stage) {
    std::optional<Transfer> least;
    for (const Routine& send : sends) {
      const Transfer one{costs.of(send, grid, stage)[0], costs.on_links(send, grid, stage)};
      if (!least) least = one;
      least->time = std::min(least->time, one.time);
      least->links.keep_least(one.links);
    }
    transfers.push_back(least.value_or(Transfer()));
  }
  return transfers;
}

Bytes Bounds::persistent(const Strategy& strategy) const {
  Bytes most;
  for (const LastingBytes& stage : degrees(strategy)) most = std::max(most, stage.framework);
  return most;
}

MemoryBound Bounds::memory(const Strategy& strategy) const {
  if (is_not_bounded(strategy))
    return {persistent(strategy), persistent(strategy), persistent(strategy)};
  const auto facts = facts_.without_transfers(strategy);
  const std::vector<StageKind> kinds = stage_kinds(stage_chunks(target_.job, strategy, *facts));
  return memory_bound(context_of(target_, strategy), *facts, kinds, degrees(strategy));
}

Picoseconds Bounds::traffic(const Strategy& strategy) const {
  if (is_not_bounded(strategy) || !has_micro_batch_traffic(strategy)) return {};
  Strategy alike = without(strategy, FIELD(micro_batch));
  drop_recompute(alike);
  const std::int64_t m = micro_batches(target_.job, strategy);
  const LeastCosts& costs = costs_.of(strategy);
  return traffic_
      .of({alike, std::min<std::int64_t>(m, 3), &costs},
          [&] { return micro_batch_traffic(context_of(target_, strategy), costs); })
      .step(m);
}

Picoseconds Bounds::bottleneck(const Strategy& strategy) const {
  if (is_not_bounded(strategy)) return {};
  const auto facts = facts_.of(strategy);
  const auto chunks = stage_chunks(target_.job, strategy, *facts);
  const std::int64_t m = micro_batches(target_.job, strategy);
  const std::vector<StageSpans> spans = spans_of(strategy, *facts, chunks);
  Picoseconds bound = bottleneck_bound(strategy, spans, m);
  for (const StageSpans& stage : spans) {
    Picoseconds work;
    for (const ChunkSpans& chunk : stage.chunks) work += work_of(stage, chunk);
    bound = std::max(bound, step_traffic_bound(strategy, m, stage.traffic, work,
                                               work_of(stage, stage.chunks.back())));
  }
  // This bound is asked for all bucket sizes at once; those of stage 3 are what it gathers.
  return shards_parameters(strategy) ? std::max(bound, traffic(strategy)) : bound;
}

Picoseconds Bounds::actions(const Strategy& strategy,
                            const std::function<bool(Picoseconds)>& enough) const {
  if (is_not_bounded(strategy)) return {};
  if (strategy.experts.overlap_exchange) return {};  // actions do not follow each other
  const auto facts = facts_.of(strategy);
  const auto chunks = stage_chunks(target_.job, strategy, *facts);
  const std::vector<StageSpans> spans = spans_of(strategy, *facts, chunks);
  return PipelineStep(strategy, spans, micro_batches(target_.job, strategy)).bound(enough);
}

std::vector<std::size_t> Bounds::with_own_programs(std::span<const Strategy> strategies) const {
  if (strategies.size() == 1) return {0};
  const Strategy& first = strategies.front();
  const Lowered lowered(target_, first);
  const auto facts = facts_.without_transfers(first);
  const std::vector<StageKind> kinds = stage_kinds(stage_chunks(target_.job, first, *facts));
  std::set<std::vector<std::int64_t>> layouts;
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const PassContext context{lowered.job, strategies[i], target_.framework()};
    if (layouts.insert(bucket_layout(lowered, context, kinds)).second) own.push_back(i);
  }
  return own;
}

/// Returns the spans of each stage, with the step traffic of its chunks.
std::vector<StageSpans> Bounds::spans_of(const Strategy& strategy, const MicroBatchFacts& facts,
                                         std::span<const StageChunks> chunks) const {
  std::vector<StageSpans> spans = stage_spans(strategy, facts, chunks, costs_.of(strategy));
  const bool ahead = overlaps_param_gather(context_of(target_, strategy));
  for (std::size_t s = 0; s < spans.size(); ++s) {
    spans[s].gathers_ahead = ahead;
    WeightBytes weights;
    for (std::size_t c = 0; c < chunks[s].size(); ++c) {
      ChunkSpans& chunk = spans[s].chunks[c];
      add_weights(chunks[s][c], facts, weights);
      if (s > 0 && chunks[s] == chunks[s - 1]) {
        chunk.gathered = spans[s - 1].chunks[c].gathered;
        chunk.reduced = spans[s - 1].chunks[c].reduced;
        spans[s].traffic = spans[s - 1].traffic;
      } else {
        spans[s].traffic = step_traffic(strategy, weights);
        chunk.gathered = spans[s].traffic.gathers;
        chunk.reduced = spans[s].traffic.reductions;
      }
    }
  }
  return spans;
}

}  // namespace plimsoll
