// In a fused gradient merge (gradient_merge = fused) backward writes the gradients of one
// micro-batch to an arena of their own. This arena is cast and added to the step's gradients bucket
// by bucket (Paddle's fuse_grad_merge, PR 35070).
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "passes/schedule/step_collectives.h"

namespace plimsoll {

/// Before a micro-batch's backward, memory to which kernels add is zeroed. Products overwrite their
/// gradients; a range between two additions is zeroed with them where it is small. With
/// collective_fusion = coalesced, each bucket of the micro-batch's and of the step's gradients is
/// first copied onto itself, as before collectives (passes/schedule/step_collectives.h). After
/// backward, each bucket is cast, where the micro-batch's gradients are not f32, and added. In the
/// last micro-batch a bucket is added as soon as it is complete, where its reduction overlaps the
/// rest of backward.
class MergedGradients : public GradientSink {
 public:
  /// `collectives` reduce the buckets that are merged for the last time in the step.
  MergedGradients(StageContext& stage, StepCollectives& collectives);

  Binding binding(const Slot& slot, std::size_t instance, std::int64_t micro_batch) const override;
  void before_backward(std::int64_t micro_batch) override;
  /// After the last call of a step that writes an instance's gradients, where reductions overlap
  /// backward, merges the buckets that are then complete, as far as they follow each other in the
  /// order of completion.
  void wrote(const WrittenGradients& written) override;
  /// Merges the remaining buckets.
  void after_backward(std::int64_t micro_batch, bool last) override;
  std::vector<std::size_t> finish() override { return collectives_.finish(); }

 private:
  Binding at(std::int64_t element) const;
  void coalesce(BufferId arena, const ElementTypes& types, const Bucket& bucket,
                std::int64_t micro_batch);
  std::vector<std::pair<std::int64_t, std::int64_t>> zeroed(const Bucket& bucket) const;
  bool complete(std::size_t bucket) const;
  std::size_t merge(const Bucket& bucket, std::int64_t micro_batch);

  StepCollectives& collectives_;
  /// instances whose gradients are written for the last time in the step
  std::set<std::size_t> written_;
  std::set<std::size_t> merged_;    ///< buckets that are merged for the last time in the step
  std::set<TensorId> overwritten_;  ///< parameters whose gradient is first written by a product
};

}  // namespace plimsoll
