#include "planner/memory_bound.h"

#include <algorithm>

#include "passes/arena_layout.h"
#include "passes/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule.h"
#include "passes/stage_blocks.h"

namespace plimsoll {
namespace {

/// The blocks of a stage in chain order, with how many micro-batches it keeps.
class StageMemory {
 public:
  StageMemory(const Strategy& strategy, const StageKind& kind, std::int64_t micro_batches,
              const MicroBatchFacts& facts, Bytes persistent)
      : persistent_(persistent),
        in_flight_(std::min(micro_batches, strategy.pp - kind.first)),
        receives_(kind.first > 0),
        sends_(kind.first + 1 < strategy.pp) {
    for (std::size_t b = 0; b < facts.blocks.size(); ++b)
      chain_.insert(chain_.end(), std::size_t(kind.instances[b]), &facts.blocks[b]);
    kept_before_.push_back(Bytes());
    for (const BlockFacts* block : chain_)
      kept_before_.push_back(kept_before_.back() + kept(*block));
    // Gradients are sent once backwards have begun; with all micro-batches in flight that is so
    // after the first of those that follow.
    gradients_sent_ = receives_ ? std::min(strategy.send_slots, micro_batches - in_flight_) : 0;
    slots_ = strategy.send_slots;
  }

  MemoryBound bound() const {
    MemoryBound bound;
    Bytes most, largest_frame;
    const auto at = [&](Bytes live, Bytes frame) {
      bound.peak = std::max(bound.peak, live + frame);
      most = std::max(most, live);
      largest_frame = std::max(largest_frame, frame);
    };
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      at(forward_live(i), chain_[i]->forward.frame);
      at(backward_live(i), chain_[i]->backward.frame);
    }
    bound.arena = std::max(bound.peak, most + largest_frame);
    return bound;
  }

 private:
  static Bytes kept(const BlockFacts& block) {
    return block.saved + (block.keeps_input ? block.input : Bytes());
  }
  Bytes activation_slots(std::int64_t sent) const {
    return sends_ ? std::min(slots_, sent) * chain_.back()->output : Bytes();
  }
  Bytes gradient_slots() const {
    return receives_ ? gradients_sent_ * chain_.front()->input_gradient : Bytes();
  }

  /// While block i runs forward for the last micro-batch that comes into flight.
  Bytes forward_live(std::size_t i) const {
    const BlockFacts& block = *chain_[i];
    const bool sent_on = sends_ && i + 1 == chain_.size();
    return persistent_ + (in_flight_ - 1) * kept_before_.back() + kept_before_[i] + block.saved +
           block.input + (sent_on ? Bytes() : block.output) +
           activation_slots(in_flight_ - (sent_on ? 0 : 1)) + gradient_slots();
  }

  /// While block i runs backward for the oldest micro-batch.
  Bytes backward_live(std::size_t i) const {
    const BlockFacts& block = *chain_[i];
    const bool sent_on = receives_ && i == 0;
    const Bytes own = kept(block) + block.output_gradient;
    const Bytes written = sent_on ? Bytes() : block.input_gradient;
    Bytes gradients = gradient_slots();
    if (sent_on) {  // its own slot among them
      gradients = std::min(slots_, gradients_sent_ + 1) * block.input_gradient;
    }
    return persistent_ + (in_flight_ - 1) * kept_before_.back() + kept_before_[i] + own + written +
           activation_slots(in_flight_) + gradients;
  }

  Bytes persistent_;
  std::int64_t in_flight_;
  bool receives_, sends_;
  std::int64_t slots_ = 0, gradients_sent_ = 0;
  std::vector<const BlockFacts*> chain_;
  std::vector<Bytes> kept_before_;  // by block: of one micro-batch, in the blocks before it
};

}  // namespace

std::vector<StageKind> stage_kinds(const Job& job, const Strategy& strategy) {
  const auto instances = instances_per_stage(job, strategy);
  std::vector<StageKind> kinds;
  for (std::int64_t stage = 0; stage < strategy.pp; ++stage) {
    const std::vector<std::int64_t>& own = instances[std::size_t(stage)];
    const bool known = std::any_of(kinds.begin(), kinds.end(),
                                   [&](const StageKind& other) { return other.instances == own; });
    if (!known) kinds.push_back({stage, own});
  }
  return kinds;
}

std::vector<Bytes> persistent_bytes(const Job& job, const Strategy& strategy,
                                    const Framework& framework) {
  Strategy plain = strategy;
  plain.micro_batch = 1;
  plain.recompute = Recompute::none;
  plain.grad_bucket_bytes = Bytes(std::int64_t{1} << 50);
  const Job small = one_micro_batch(job, plain);
  const PassContext context{small, plain, framework};
  const Graph graph = lower_graph(context);
  const std::int64_t alignment = arena_alignment(job, strategy);
  const CutGraph cut = cut_blocks(graph, alignment, BackwardCut::whole, resident_limit(strategy),
                                  scatters_bundles(strategy));
  const auto bytes_of_class = [&](std::int64_t stage, std::optional<std::int64_t> owner) {
    const Program program = schedule_stage(graph, cut, context, stage, alignment, owner);
    Bytes total;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.persistent) total += round_up(buffer.bytes, kBlockAlignment);
    }
    return total;
  };
  std::vector<Bytes> totals;
  for (const StageKind& kind : stage_kinds(job, strategy)) {
    if (!classes_by_owner(strategy)) {
      totals.push_back(bytes_of_class(kind.first, {}));
      continue;
    }
    Bytes most;  // of the owners of a stage
    for (std::int64_t owner = 0; owner < strategy.sharding_degree; ++owner) {
      most = std::max(most, bytes_of_class(kind.first, owner));
    }
    totals.push_back(most);
  }
  return totals;
}

MemoryBound memory_bound(const Job& job, const Strategy& strategy, const MicroBatchFacts& facts,
                         std::span<const StageKind> kinds, std::span<const Bytes> persistent) {
  MemoryBound most;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const MemoryBound bound =
        StageMemory(strategy, kinds[i], micro_batches(job, strategy), facts, persistent[i]).bound();
    most.peak = std::max(most.peak, bound.peak);
    most.arena = std::max(most.arena, bound.arena);
  }
  return most;
}

}  // namespace plimsoll
