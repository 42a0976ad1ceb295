// Family work: time and memory of one micro-batch, layer by layer, as family bounds add them up.
#pragma once

#include <array>
#include <functional>

#include "planner/bounds/block_facts.h"
#include "planner/explore/layer_kinds.h"

namespace plimsoll {

/// Picoseconds and bytes of one micro-batch in the blocks of a model.
struct FamilyWork {
  /// Time and bytes of every layer.
  struct Layers {
    SumsOfLayers forward, backward, kept;
  };
  Layers keep, repeat;  ///< of layers that keep all, and of those that recompute
  double embedding_forward = 0, embedding_backward = 0, embedding_kept = 0;
  double head_forward = 0, head_backward = 0;
  /// Sums of one field of WeightBytes.
  struct Weights {
    Bytes WeightBytes::*bytes;
    SumsOfLayers layers = {};
    double embedding = 0, head = 0;
  };
  std::array<Weights, 4> weights = {{{&WeightBytes::gradients},
                                     {&WeightBytes::parameters},
                                     {&WeightBytes::expert_gradients},
                                     {&WeightBytes::expert_parameters}}};
  double after_output = 0;    ///< the most that a forward goes on after its output is written
  double after_gradient = 0;  ///< the same of a backward and the gradient of its input
  bool known = true;          ///< false: a trunk and a branch

  FamilyWork(const LayerKinds& layers, const MicroBatchFacts& facts);
  /// Times of `one`, and bytes of micro-batches of so many sequences, from those of one and of two.
  /// Each tensor grows by as much with every sequence, or not at all, except for rounding.
  FamilyWork(const LayerKinds& layers, const MicroBatchFacts& one, const MicroBatchFacts& two,
             std::int64_t sequences);
  /// Returns times without bytes.
  static FamilyWork times(const LayerKinds& layers, const MicroBatchFacts& facts);

 private:
  using KeptBytes = std::function<double(std::size_t block)>;
  FamilyWork(const LayerKinds& layers, const MicroBatchFacts& facts, const KeptBytes& kept);
};

/// Returns what a chunk's layers take, by what they take if they keep all and if they recompute.
double sum_of(const Strategy& strategy, LayerRange chunk, const SumsOfLayers& keep,
              const SumsOfLayers& repeat);

}  // namespace plimsoll
