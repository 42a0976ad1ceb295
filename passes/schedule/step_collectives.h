// Exchanges of ranks with different sequences, once per step: gradient buckets, parameters, the
// loss; and the gradient that both ends of the pipeline share.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "passes/cut/program_builder.h"
#include "passes/layout/arena_layout.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

/// The persistent buffers of a stage.
struct StageArenas {
  BufferId parameters, masters, gradients, first_moment, second_moment, scalars;
  BufferId micro_batch_gradients;  ///< fused merges
  BufferId weight_copies;          ///< in 8 bits, of the layers' weights, where they last
  BufferId resident;  ///< sharding stage 3: parameters that stay whole, where there are any
};

/// Adds the calls of one stage's collectives to its Program while the schedule issues the others.
/// Which collectives there are, the Graph's ops on stream `data` say; when, the Framework's
/// overlaps.
class StepCollectives {
 public:
  StepCollectives(const Graph& graph, const PassContext& context, const ArenaLayout& layout,
                  const StageArenas& arenas, ProgramBuilder& build)
      : graph_(graph), context_(context), layout_(layout), arenas_(arenas), build_(build) {}

  /// Gathers that overlap: of what the last step updated, in the order in which forward reads it.
  /// They wait for the computation that begins the step, which is ordered after that update.
  void begin_step();
  /// The first micro-batch's forward of an instance waits for this: the gather that completes its
  /// parameters.
  std::vector<Wait> parameter_waits(std::size_t instance, bool reads_tied) const;

  /// A call that adds to gradients of an instance is issued. If it is the `last` of the step, posts
  /// the buckets that it completed.
  void wrote_gradients(std::size_t instance, ActionKind kind, std::size_t call, bool last);
  /// With fused merges, says that the last call that adds to a bucket is issued. Posts the buckets
  /// that it completed.
  void merged_gradients(std::size_t bucket, std::size_t call);
  /// Backward is issued: posts what is left. Returns all reductions: what the update waits for.
  std::vector<std::size_t> finish_gradients();
  /// Gathers that do not overlap, after the update.
  void end_step(std::size_t update);

  /// The reported loss covers the global batch: summed over the ranks that saw other sequences.
  void reduce_loss(std::size_t head);

 private:
  const Op* arena_collective(OpKind kind) const;
  const Op* first_reduction() const;
  const Op* parameter_collective() const;
  std::vector<std::size_t> gather_order() const;
  std::size_t bucket_call(const Op& op, const Bucket& bucket, BufferId arena,
                          const ElementTypes& types, bool own_part, std::vector<Wait> waits);
  std::size_t gather(const Op& op, const Bucket& bucket, std::size_t after);
  bool complete(const Bucket& bucket) const;
  std::vector<Wait> gradient_waits(const Bucket& bucket) const;
  std::vector<Wait> gradient_waits(std::size_t first, std::size_t end) const;
  void sum_partial(std::size_t instance);
  Wait gradient_wait(std::size_t segment) const;
  void reduce_bucket(const Op& op, std::size_t index, std::vector<Wait> waits);
  void reduce_tied();
  void reduce_sharded_over_replicas();

  const Graph& graph_;
  const PassContext& context_;
  const ArenaLayout& layout_;
  const StageArenas& arenas_;
  ProgramBuilder& build_;
  /// By instance: the latest call of each kind that adds to its gradients.
  std::map<std::size_t, std::map<ActionKind, std::size_t>> gradient_calls_;
  std::set<std::size_t> complete_;                       // instances
  std::map<std::size_t, std::size_t> bucket_reduction_;  // first reduction's call, by bucket
  std::map<std::size_t, std::size_t> sums_;              // call that ends a gradient, by segment
  std::vector<std::size_t> gathers_;                     // that overlap, by ArenaLayout::gathers
  std::size_t next_bucket_ = 0;                          // in ArenaLayout::completion
  std::vector<std::size_t> reductions_;
};

}  // namespace plimsoll
