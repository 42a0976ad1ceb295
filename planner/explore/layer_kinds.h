// The layers of a job differ in their blocks and in their weights. Sums over any layers in a row
// are differences of two running sums.
#pragma once

#include <cstdint>
#include <vector>

#include "models/job/job.h"
#include "planner/space/space.h"

namespace plimsoll {

/// SumsOfLayers holds one number for each layer. The numbers must be whole and their sum below
/// 2^53, so that no sum is rounded.
class SumsOfLayers {
 public:
  void add(double of_next_layer) { before_.push_back(before_.back() + of_next_layer); }
  double of(LayerRange range) const {
    return before_[std::size_t(range.last)] - before_[std::size_t(range.first)];
  }

 private:
  std::vector<double> before_ = {0};  ///< by layer: the sum of those before it
};

/// LayerKinds says which block of the graph each layer is, and which of a few jobs with equal
/// layers has its weights.
class LayerKinds {
 public:
  explicit LayerKinds(const Job& job);

  std::int64_t size() const { return std::int64_t(blocks_.size()); }
  std::size_t block(std::int64_t layer) const { return blocks_[std::size_t(layer)]; }
  /// Returns whether two chunks have as many layers, all of one block.
  bool alike(LayerRange one, LayerRange other) const;

  /// A job whose layers all have the weights of one kind, with the job's MTP modules.
  struct Weights {
    Job job;
    bool experts = false;
  };
  const std::vector<Weights>& weights() const { return weights_; }
  /// Returns the index of the weights of a layer that is no MTP module.
  std::size_t weights_of(std::int64_t layer) const { return weights_of_[std::size_t(layer)]; }
  /// Returns the index of the last such layer's. MTP modules have these, too.
  std::size_t last_weights() const { return weights_of_.back(); }
  bool is_module(std::int64_t layer) const { return layer >= layers_; }

 private:
  std::vector<std::size_t> blocks_;       ///< by layer
  std::vector<std::int64_t> same_until_;  ///< by layer: the first layer behind of another block
  std::vector<Weights> weights_;
  std::vector<std::size_t> weights_of_;  ///< by layer, without modules
  std::int64_t layers_ = 0;              ///< without modules
};

}  // namespace plimsoll
