// Fused gradient merge (gradient_merge = fused): backward writes the gradients of one micro-batch
// to an arena of their own, which is cast and added to the step's bucket by bucket (Paddle's
// fuse_grad_merge, PR 35070).
#pragma once

#include <cstdint>
#include <vector>

#include "passes/arena_layout.h"
#include "passes/pipeline.h"
#include "passes/program_builder.h"
#include "passes/step_collectives.h"

namespace plimsoll {

/// Adds the calls of one stage to its Program while the schedule issues the others. Before a
/// micro-batch's backward: with collective_fusion = coalesced two copies for each bucket, of the
/// micro-batch's gradients and of the step's, onto themselves as before collectives
/// (passes/step_collectives.h); and zeroing, since kernels add to what is there. After it: for each
/// bucket a cast, where the micro-batch's gradients are not f32, and an add.
class MergedGradients {
 public:
  MergedGradients(const PassContext& context, const ArenaLayout& layout, const StageArenas& arenas,
                  ProgramBuilder& build);

  /// Whether the Graph merges arenas.
  bool active() const { return layout_.micro_batch_gradients.has_value(); }
  /// Where backward writes gradients from this element of the arenas on.
  Binding binding(std::int64_t element) const;

  void before_backward(std::int64_t micro_batch);
  /// Returns the calls that add to each bucket.
  std::vector<std::size_t> after_backward(std::int64_t micro_batch);

 private:
  void coalesce(BufferId arena, const ElementTypes& types, const Bucket& bucket,
                std::int64_t micro_batch);
  std::size_t merge(const Bucket& bucket, std::int64_t micro_batch);

  const PassContext& context_;
  const ArenaLayout& layout_;
  const StageArenas& arenas_;
  ProgramBuilder& build_;
};

}  // namespace plimsoll
