// Gradients are reduced in every micro-batch in sharding stages 2 and 3, and with grad_reduction =
// per_micro_batch. A call writes its gradients to a buffer of its own. They are reduced over the
// ranks that saw other sequences. Only the part that this rank keeps is added to the persistent
// arena (ZeRO, Rajbhandari et al. 2019, arXiv 1910.02054, P_os+g; PyTorch FSDP's sharded
// gradients). With release_gradients they are not kept: an update reads them (LOMO, Lv et al. 2023,
// arXiv 2306.09782, section 3.1).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "passes/schedule/stage_context.h"
#include "passes/schedule/update_calls.h"

namespace plimsoll {

/// A call that writes gradients comes with a fill before it, a reduction of each bucket as soon as
/// its ports fire, and an add of each bucket. The adds come when the buffer's memory is needed.
/// With overlapping reductions that is two such calls later, so that reductions run under the next
/// call; else it is at the next call. In owner mode a bucket is reduced to its owner, and only the
/// owner adds it. Other ranks free their buffer where the next call that needs memory waits for its
/// reductions.
///
/// With release_gradients an update of the instance's parameters takes the place of the adds. The
/// gradient of a parameter that several instances read lies with those of its owner, whose backward
/// comes last.
class GradientReductions : public GradientSink {
 public:
  GradientReductions(StageContext& stage, UpdateCalls& updates);

  /// Adds zeroed memory before a call of `instance` that adds to gradients. Calls of one
  /// micro-batch that share an instance's gradients (split backwards) share the buffer.
  void before_call(std::size_t instance, const Routine& routine, std::int64_t micro_batch) override;
  Binding binding(const Slot& slot, std::size_t instance, std::int64_t micro_batch) const override;
  void wrote(const WrittenGradients& written) override;
  /// Adds the remaining buckets, and then reduces over both ends of the pipeline (tied embeddings)
  /// and over replicas of shards.
  std::vector<std::size_t> finish() override;

 private:
  /// A Part is the buckets whose gradients lie in one buffer, one after another.
  struct Part {
    SlotKind kind = SlotKind::gradients;
    std::size_t instance = 0;
    BufferId buffer;
    std::vector<std::size_t> buckets;  ///< ascending
    std::int64_t elements = 0;
  };
  struct Contribution {
    std::vector<Part> parts;
    std::vector<std::size_t> calls;          ///< calls that wrote it
    std::vector<std::vector<Wait>> reduced;  ///< for each of its buckets, in order
    std::int64_t micro_batch = 0;
    bool last = false;
  };

  bool is_kept(std::size_t bucket) const;
  std::int64_t kept_elements(std::size_t bucket) const;
  std::int64_t kept_at(std::size_t bucket);
  std::optional<std::int64_t> place_in(const Part& part, std::int64_t element) const;
  Part make_part(SlotKind kind, std::size_t instance, std::vector<std::size_t> buckets,
                 std::int64_t micro_batch);
  void zero(const Part& part, std::int64_t micro_batch);
  bool releases() const { return context_.strategy.gradients.release; }
  /// Returns the instance that owns the tied parameter.
  std::size_t tied_owner() const;
  /// Returns the place in a part's buffer of what this rank keeps of a bucket.
  Binding kept_in(const Part& part, std::size_t bucket) const;
  void update(const Contribution& contribution);
  void reduce(Contribution& contribution, std::int64_t micro_batch);
  /// A Range counts elements of a part's buffer.
  struct Range {
    std::int64_t begin = 0, elements = 0;
  };
  static bool overlap(const Range& a, const Range& b);
  /// A PartialRun is gradients of which other mp ranks computed parts, and the collective that sums
  /// them.
  struct PartialRun {
    const Op* op;
    Range range;
  };
  std::vector<PartialRun> partial_runs(const Part& part) const;
  /// Returns whether partial gradients are summed in every micro-batch, before they are scattered.
  /// The part of a bucket that a rank keeps may begin within a run of partial gradients, at another
  /// place for each rank, but all ranks have one Program. Where everything is kept, they are summed
  /// once per step.
  bool sums_partial_at_once() const;
  using Sums = std::vector<std::pair<Range, std::size_t>>;  ///< ranges and calls
  Sums sum_partial(const Contribution& contribution, const Part& part, std::int64_t micro_batch);
  std::size_t reduce_range(const Op& op, const Part& part, const Range& range,
                           std::int64_t micro_batch, std::vector<Wait> waits,
                           std::optional<std::int64_t> root = {}, bool experts = false);
  std::size_t copy_together(const Part& part, const Range& range, std::int64_t micro_batch,
                            std::vector<Wait> waits);
  std::vector<Wait> writers(const Contribution& contribution, const Part& part,
                            const Range& range) const;
  void add_oldest();
  std::size_t add(const Part& part, std::size_t bucket, std::vector<Wait> waits,
                  std::int64_t micro_batch);
  void sum_kept_partial(const Part& part);
  void sum_kept_runs(const Part& part);
  /// Whether a bucket begins with the parameter that is tied to another.
  bool is_tied(std::size_t bucket) const;
  /// Returns adjacent buckets as a part without a buffer.
  Part kept_part(std::vector<std::size_t> buckets) const;
  /// `begin` and `elements` count elements of the persistent arena.
  void reduce_kept(const Op& op, std::int64_t begin, std::int64_t elements,
                   std::vector<Wait> waits);
  void reduce_kept_bucket(std::size_t bucket, const Op& op, std::vector<Wait> waits);
  void reduce_over_replicas(std::size_t bucket, std::vector<Wait> waits);

  UpdateCalls& updates_;               ///< with release_gradients
  const Op* op_ = nullptr;             ///< the collective of every micro-batch, if there is one
  const Op* replicas_ = nullptr;       ///< the collective of the kept part, once per step
  std::vector<std::int64_t> kept_at_;  ///< by bucket, where asked for: its place in the kept part
  std::vector<std::vector<std::size_t>> bundles_;                      ///< by instance: its buckets
  std::map<std::pair<std::int64_t, std::size_t>, Contribution> open_;  ///< micro-batch, instance
  /// contributions whose reductions are posted, but which are not added yet
  std::deque<Contribution> pending_;
  std::vector<BufferId> given_up_;  ///< freed by the next call that waits for `given_up_waits_`
  std::vector<Wait> given_up_waits_;
  std::vector<std::size_t> added_;  ///< by bucket: the latest add
  std::vector<bool> finished_;      ///< by bucket: reduced over replicas
  std::vector<std::size_t> reductions_;
  std::int64_t updated_ = 0;  ///< elements, with release_gradients
};

/// Returns the collective that reduces gradients in every micro-batch, if the Graph has one.
const Op* reduction_of_micro_batches(const Graph& graph);

}  // namespace plimsoll
