// Reads the kinds of layers off a job and the blocks of its graph.
#include "planner/explore/layer_kinds.h"

#include <algorithm>

#include "passes/strategy/stage_layout.h"

namespace plimsoll {

LayerKinds::LayerKinds(const Job& job) : layers_(dealt_layers(job)) {
  const std::vector<BlockShape> shapes = block_shapes(job);
  const std::vector<std::int64_t> one_each(std::size_t(total_layers(job)), 1);
  for (const ModelPart& layer : parts_of_model(shapes, one_each)) {
    for (std::size_t b = 0; b < shapes.size(); ++b) {
      if (shapes[b].kind == BlockKind::layer && layer.blocks[b].count > 0) blocks_.push_back(b);
    }
  }
  same_until_.assign(blocks_.size(), size());
  for (std::size_t layer = blocks_.size() - 1; layer-- > 0;) {
    const bool same = blocks_[layer] == blocks_[layer + 1];
    same_until_[layer] = same ? same_until_[layer + 1] : std::int64_t(layer + 1);
  }
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const bool experts = layer < job.layers && has_experts(job, layer);
    auto known = std::ranges::find(weights_, experts, &Weights::experts);
    if (known == weights_.end()) {
      Weights weights{job, experts};
      if (!experts) {
        weights.job.experts.reset();
      } else {
        weights.job.experts->dense_layers = 0;
        weights.job.experts->pattern.clear();
      }
      known = weights_.insert(weights_.end(), std::move(weights));
    }
    weights_of_.push_back(std::size_t(known - weights_.begin()));
  }
}

bool LayerKinds::alike(LayerRange one, LayerRange other) const {
  if (one.count() != other.count()) return false;
  if (one.count() == 0) return true;
  return block(one.first) == block(other.first) &&
         same_until_[std::size_t(one.first)] >= one.last &&
         same_until_[std::size_t(other.first)] >= other.last;
}

}  // namespace plimsoll
