// Adds up block facts layer by layer.
#include <algorithm>

#include "planner/explore/family_bounds.h"

namespace plimsoll {
namespace {

double ps(Picoseconds time) { return double(time.count()); }

double kept_by(const MicroBatchFacts& facts, std::size_t block) {
  return double(facts.blocks[block].kept.count());
}

/// Returns the time of a backward and of the gradients of its parameters.
double back(const BlockFacts& block) { return ps(block.backward.span) + ps(block.weights.span); }

/// Returns how many of a chunk's layers recompute, the first ones.
std::int64_t repeated_layers(const Strategy& strategy, LayerRange chunk) {
  if (strategy.recompute == Recompute::none) return 0;
  const std::int64_t layers = strategy.recomputed.layers;
  return layers == 0 ? chunk.count() : std::min(layers, chunk.count());
}

}  // namespace

double sum_of(const Strategy& strategy, LayerRange chunk, const SumsOfLayers& keep,
              const SumsOfLayers& repeat) {
  if (strategy.recompute != Recompute::per_op && strategy.recomputed.list.empty()) {
    const std::int64_t kept_from = chunk.first + repeated_layers(strategy, chunk);
    return repeat.of({chunk.first, kept_from}) + keep.of({kept_from, chunk.last});
  }
  double sum = 0;
  for (std::int64_t layer = chunk.first; layer < chunk.last; ++layer) {
    const bool again = recomputes(strategy, layer - chunk.first, layer);
    sum += (again ? repeat : keep).of({layer, layer + 1});
  }
  return sum;
}

FamilyWork::FamilyWork(const LayerKinds& layers, const MicroBatchFacts& facts)
    : FamilyWork(layers, facts, [&](std::size_t block) { return kept_by(facts, block); }) {}

FamilyWork::FamilyWork(const LayerKinds& layers, const MicroBatchFacts& one,
                       const MicroBatchFacts& two, std::int64_t sequences)
    : FamilyWork(layers, one, [&](std::size_t block) {
        constexpr double kRounding = 1 << 16;  // of all tensors of a block
        const double few = kept_by(one, block), more = kept_by(two, block) - few - kRounding;
        return few + std::max(0.0, more) * double(sequences - 1);
      }) {}

FamilyWork FamilyWork::times(const LayerKinds& layers, const MicroBatchFacts& facts) {
  return {layers, facts, [](std::size_t) { return 0.0; }};
}

FamilyWork::FamilyWork(const LayerKinds& layers, const MicroBatchFacts& facts,
                       const KeptBytes& kept_bytes) {
  for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
    const BlockFacts& block = facts.blocks[b];
    after_output = std::max(after_output, ps(block.forward.span) - ps(block.forward.sends));
    after_gradient = std::max(after_gradient, ps(block.backward.span) - ps(block.backward.sends));
    if (block.shape.kind == BlockKind::embedding) {
      embedding_forward += ps(block.forward.span);
      embedding_backward += back(block);
      embedding_kept += kept_bytes(b);
    } else if (block.shape.kind == BlockKind::head) {
      head_forward += ps(block.forward.span);
      head_backward += back(block);
    }
    known = known && block.shape.kind != BlockKind::join;
    for (Weights& sums : weights) {
      const auto bytes = double((block.bundle.*sums.bytes).count());
      if (block.shape.kind == BlockKind::embedding) sums.embedding += bytes;
      if (block.shape.kind == BlockKind::head) sums.head += bytes;
    }
  }
  for (std::int64_t layer = 0; layer < layers.size(); ++layer) {
    const auto add = [&](Layers& to, std::size_t b) {
      to.forward.add(ps(facts.blocks[b].forward.span));
      to.backward.add(back(facts.blocks[b]));
      to.kept.add(kept_bytes(b));
    };
    const std::size_t block = layers.block(layer);
    const BlockFacts& own = facts.blocks[block];
    for (Weights& sums : weights) sums.layers.add(double((own.bundle.*sums.bytes).count()));
    add(keep, block);
    add(repeat, facts.blocks[block].recomputing.value_or(block));
  }
}

}  // namespace plimsoll
