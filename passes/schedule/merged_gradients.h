// Fused gradient merge (gradient_merge = fused): backward writes the gradients of one micro-batch
// to an arena of their own, which is cast and added to the step's bucket by bucket (Paddle's
// fuse_grad_merge, PR 35070).
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "passes/cut/program_builder.h"
#include "passes/layout/arena_layout.h"
#include "passes/schedule/step_collectives.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Adds the calls of one stage to its Program while the schedule issues the others. Before a
/// micro-batch's backward: with collective_fusion = coalesced two copies for each bucket, of the
/// micro-batch's gradients and of the step's, onto themselves as before collectives
/// (passes/schedule/step_collectives.h); and zeroing of what kernels add to. Products overwrite;
/// what lies between two such ranges is zeroed with them where it is small. After it: for each
/// bucket a cast, where the micro-batch's gradients are not f32, and an add; in the last
/// micro-batch as soon as the bucket is complete, where its reduction overlaps the rest of
/// backward.
class MergedGradients {
 public:
  MergedGradients(const Graph& graph, const PassContext& context, const ArenaLayout& layout,
                  const StageArenas& arenas, ProgramBuilder& build);

  /// Whether the Graph merges arenas.
  bool active() const { return layout_.micro_batch_gradients.has_value(); }
  /// Where backward writes gradients from this element of the arenas on.
  Binding binding(std::int64_t element) const;

  void before_backward(std::int64_t micro_batch);
  /// After the last call of a step that writes an instance's gradients: where reductions overlap
  /// backward, merges the buckets that are complete with it, as far as they follow each other in
  /// the order of completion. Both return, by bucket, the call that adds to it.
  std::vector<std::pair<std::size_t, std::size_t>> after_instance(std::size_t instance,
                                                                  std::int64_t micro_batch);
  /// Merges the rest.
  std::vector<std::pair<std::size_t, std::size_t>> after_backward(std::int64_t micro_batch);

 private:
  void coalesce(BufferId arena, const ElementTypes& types, const Bucket& bucket,
                std::int64_t micro_batch);
  std::vector<std::pair<std::int64_t, std::int64_t>> zeroed(const Bucket& bucket) const;
  bool complete(std::size_t bucket) const;
  std::size_t merge(const Bucket& bucket, std::int64_t micro_batch);

  const PassContext& context_;
  const ArenaLayout& layout_;
  const StageArenas& arenas_;
  ProgramBuilder& build_;
  std::set<std::size_t> written_;   ///< instances, for the last time in the step
  std::set<std::size_t> merged_;    ///< buckets, likewise
  std::set<TensorId> overwritten_;  ///< parameters whose gradient a product writes first
};

}  // namespace plimsoll
