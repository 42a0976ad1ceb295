// Stage costs from the facts of one layer of each form.
#include "planner/layers/stage_costs.h"

#include <algorithm>
#include <cmath>

#include "planner/bounds/memory_bound.h"
#include "planner/bounds/time_bound.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// The numbers of layers of the lowered models.
constexpr std::int64_t kFew = 1, kMany = 5;

bool is_layer(const BlockFacts& block) {
  return block.shape.kind == BlockKind::layer || block.shape.kind == BlockKind::join;
}

/// Returns the bytes of one layer more, at least 0: with rounding many layers may take less.
LastingBytes slope(const LastingBytes& few, const LastingBytes& many) {
  const auto of = [](Bytes a, Bytes b) {
    return Bytes(std::max<std::int64_t>((b - a).count(), 0) / (kMany - kFew));
  };
  return {of(few.program, many.program), of(few.framework, many.framework)};
}

/// Returns how much longer n calls of `other` take than those of `usual`.
Picoseconds difference(const CallFacts& other, const CallFacts& usual, std::int64_t n) {
  return repeated(other.span - usual.span, n);
}

}  // namespace

LastingBytes LastingLines::of(std::int64_t stage, std::int64_t stages_in_all,
                              std::int64_t layers) const {
  const Line& line = stages[stage == 0 ? 0 : stage + 1 == stages_in_all ? 2 : 1];
  const auto at = [&](Bytes one, Bytes layer) { return one - layer + layer * layers; };
  return {at(line.one.program, line.layer.program), at(line.one.framework, line.layer.framework)};
}

LastingLines lasting_lines(const PassContext& context) {
  const auto few = persistent_bytes_of(kFew, context);
  const auto many = persistent_bytes_of(kMany, context);
  LastingLines lines;
  for (std::size_t kind = 0; kind < lines.stages.size(); ++kind) {
    const std::size_t stage = kind == 2 ? few.size() - 1 : std::min(kind, few.size() - 1);
    lines.stages[kind] = {few[stage], slope(few[stage], many[stage])};
  }
  return lines;
}

StageCosts::StageCosts(const Target& target, const Strategy& strategy,
                       std::shared_ptr<const MicroBatchFacts> facts, const LeastCosts& costs)
    : target_(target), strategy_(strategy), facts_(std::move(facts)) {
  while (!is_layer(facts_->blocks[layer_])) ++layer_;
  std::vector<StageChunks> stages;
  for (std::int64_t s = 0; s < strategy.pp; ++s) stages.push_back({chunk_of(s, 1, 0)});
  spans_ = stage_spans(strategy_, *facts_, stages, costs);
}

Chunk StageCosts::chunk_of(std::int64_t stage, std::int64_t layers, std::int64_t recomputed) const {
  Chunk chunk;
  const std::size_t again = facts_->blocks[layer_].recomputing.value_or(layer_);
  for (std::size_t b = 0; b < facts_->blocks.size(); ++b) {
    const BlockFacts& block = facts_->blocks[b];
    if (b == layer_) {
      if (recomputed > 0) chunk.push_back({again, recomputed});
      if (layers > recomputed) chunk.push_back({b, layers - recomputed});
    } else if (!block.shape.variant && stage == (b < layer_ ? 0 : strategy_.pp - 1)) {
      chunk.push_back({b, block.shape.count});
    }
  }
  return chunk;
}

StageOption StageCosts::time(std::int64_t stage, std::int64_t layers,
                             std::int64_t recomputed) const {
  const StageSpans& spans = spans_[std::size_t(stage)];
  const BlockFacts& layer = facts_->blocks[layer_];
  const BlockFacts& again = facts_->blocks[layer.recomputing.value_or(layer_)];
  ActionSpans forward = spans.chunks.front().forward, backward = spans.chunks.front().backward;
  const CallFacts none;
  forward.span += difference(layer.forward, none, layers - 1) +
                  difference(again.forward, layer.forward, recomputed);
  backward.span += difference(layer.backward, none, layers - 1) +
                   difference(again.backward, layer.backward, recomputed);
  const Picoseconds passes = forward.whole() + backward.whole();
  if (spans.receives_ahead) return {recomputed, forward.span, forward.span + backward.span, passes};
  return {recomputed, forward.whole(), passes, passes};
}

Bytes StageCosts::memory(const LastingLines& lasting, std::int64_t stage, std::int64_t layers,
                         std::int64_t recomputed) const {
  std::vector<LastingBytes> by_stage(std::size_t(strategy_.pp));
  by_stage[std::size_t(stage)] = lasting.of(stage, strategy_.pp, layers);
  const StageKind kind{stage, stage, {chunk_of(stage, layers, recomputed)}};
  const MemoryBound bound =
      memory_bound(context_of(target_, strategy_), *facts_, {&kind, 1}, by_stage);
  return std::max(bound.peak, bound.reserved);
}

bool layers_are_alike(const MicroBatchFacts& facts) {
  std::int64_t kinds = 0;
  for (const BlockFacts& block : facts.blocks) kinds += is_layer(block) && !block.shape.variant;
  return kinds == 1;
}

/// Say a step takes T and stage s works w_s on each of m micro-batches. The first micro-batch comes
/// to s, and the last gradient leaves s, through the stages before. So w_0 + ... + w_(s-1) + m w_s
/// is at most T, except for the work that a call still does once it has sent on. By induction the
/// sum of all w is at most T (1 - (1 - 1/m)^pp).
Picoseconds least_of_any_cut(const Job& job, const MicroBatchFacts& facts, std::int64_t stages,
                             std::int64_t micro_batches) {
  double work = 0, after = 0;
  for (const BlockFacts& block : facts.blocks) {
    const auto span = [](const BlockFacts& b) {
      return double(b.forward.span.count()) + double(b.backward.span.count());
    };
    after = std::max({after, double((block.forward.span - block.forward.sends).count()),
                      double((block.backward.span - block.backward.sends).count())});
    if (block.shape.variant) continue;
    double least = span(block);
    if (block.recomputing) least = std::min(least, span(facts.blocks[*block.recomputing]));
    work += least * double(is_layer(block) ? total_layers(job) : block.shape.count);
  }
  const double m = double(micro_batches), pp = double(stages);
  const double filled = std::max(0.0, work - 2 * pp * after) / (1 - std::pow(1 - 1 / m, pp));
  const double least = std::max(filled, m * work / pp) * (1 - 1e-9);
  return Picoseconds(std::int64_t(std::min(least, double(kLongestStep.count()))));
}

}  // namespace plimsoll
