// Once per step, ranks with different sequences exchange gradient buckets, parameters and the loss.
// Both ends of the pipeline exchange the gradient that they share.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "passes/schedule/stage_context.h"

namespace plimsoll {

/// The Graph's ops on stream `data` determine which collectives there are. The Framework's overlaps
/// determine when they run.
class StepCollectives : public GradientSink {
 public:
  using GradientSink::GradientSink;

  /// Posts the gathers that overlap: the parameters that the last step updated, in the order in
  /// which forward reads them. They wait for the computation that begins the step, which runs after
  /// that update.
  void begin_step();
  /// Returns the gather that completes an instance's parameters, for which the first micro-batch's
  /// forward waits.
  std::vector<Wait> parameter_waits(std::size_t instance, bool reads_tied) const;

  Binding binding(const Slot& slot, std::size_t instance, std::int64_t micro_batch) const override;
  /// After the last calls of the step that add to an instance's gradients, the buckets that they
  /// completed are posted.
  void wrote(const WrittenGradients& written) override;
  /// With fused merges, says that the last call that adds to a bucket is issued. The buckets that
  /// it completed are posted.
  void merged_gradients(std::size_t bucket, std::size_t call);
  /// Posts the remaining buckets, and returns all reductions.
  std::vector<std::size_t> finish() override;
  /// Posts the gathers that do not overlap, after the update.
  void end_step(std::size_t update);

  /// Sums the reported loss over the ranks that saw other sequences, so that it covers the global
  /// batch.
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

  /// By instance: the latest calls of each kind that add to its gradients.
  std::map<std::size_t, std::map<ActionKind, std::vector<std::size_t>>> gradient_calls_;
  std::set<std::size_t> complete_;                       // instances
  std::map<std::size_t, std::size_t> bucket_reduction_;  // first reduction's call, by bucket
  std::map<std::size_t, std::size_t> sums_;              // call that ends a gradient, by segment
  std::vector<std::size_t> gathers_;  // gathers that overlap, by ArenaLayout::gathers
  std::size_t next_bucket_ = 0;       // index into ArenaLayout::completion
  std::vector<std::size_t> reductions_;
};

}  // namespace plimsoll
