// Follows the order of a stage and adds up the buffers that are alive.
#include "planner/bounds/memory_bound.h"

#include <algorithm>

#include "models/framework/step_memory.h"
#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/stage_layout.h"

namespace plimsoll {
namespace {

/// The most bytes that one action holds by itself in any of its calls.
struct ActionMemory {
  Bytes live, peak;  ///< without and with the frame of the call
  void add(Bytes own, Bytes frame) {
    live = std::max(live, own);
    peak = std::max(peak, own + frame);
  }
};

/// Bytes of one kind of action on one chunk. The call that writes into a send slot stands apart,
/// since the slot counts elsewhere.
struct ActionCalls {
  ActionMemory others, sending;
  Bytes sent;  ///< 0 where it sends nothing
};

/// Bytes of one chunk of a stage.
struct ChunkMemory {
  Bytes kept;     ///< between forward and backward
  Bytes remains;  ///< between backward and weight gradients
  ActionCalls forward, backward, weights;
};

/// Bytes that are alive beside the call of block i of a chunk, from the calls before it.
class ChunkCalls {
 public:
  ChunkCalls(const PassContext& context, const MicroBatchFacts& facts, const Chunk& chunk)
      : context_(context) {
    for (const BlockRun& run : chunk) {
      chain_.insert(chain_.end(), std::size_t(run.count), &facts.blocks[run.block]);
    }
    kept_before_.push_back(Bytes());
    for (const BlockFacts* block : chain_) {
      kept_before_.push_back(kept_before_.back() + block->kept);
      all_remain_ += block->remains;
    }
  }

  /// Takes whether the chunk's first gradients and its last activations go to other stages.
  ChunkMemory memory(bool sends_gradient, bool sends_output) const {
    ChunkMemory memory;
    memory.kept = kept_before_.back();
    memory.remains = all_remain_;
    if (sends_output) memory.forward.sent = chain_.back()->output;
    if (sends_gradient) memory.backward.sent = chain_.front()->input_gradient;
    Bytes before;  // remaining of the blocks before this one
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      const BlockFacts& block = *chain_[i];
      const bool sends_on = sends_output && i + 1 == chain_.size();
      (sends_on ? memory.forward.sending : memory.forward.others)
          .add(forward_live(i, sends_on), block.forward.frame);
      const Bytes behind = all_remain_ - before - block.remains;
      const bool sends_back = sends_gradient && i == 0;
      (sends_back ? memory.backward.sending : memory.backward.others)
          .add(backward_live(i, sends_back) + behind, block.backward.frame);
      before += block.remains;
      if (block.has_weights) {
        memory.weights.others.add(before + gradients(i), block.weights.frame);
      }
    }
    return memory;
  }

 private:
  Bytes forward_live(std::size_t i, bool sends) const {
    const BlockFacts& block = *chain_[i];
    return kept_before_[i] + block.saved + block.input + (sends ? Bytes() : block.output) +
           gathered(i, i + 1, &BlockFacts::forward_parameters);
  }

  Bytes backward_live(std::size_t i, bool sends) const {
    const BlockFacts& block = *chain_[i];
    const bool whole = backward_cut(context_.strategy) == BackwardCut::whole;
    return kept_before_[i] + block.kept + block.output_gradient + block.deferred +
           (sends ? Bytes() : block.input_gradient) +
           gathered(i, i - 1, &BlockFacts::backward_parameters) + (whole ? gradients(i) : Bytes());
  }

  /// Returns bytes of parameters gathered for the call of block i and for the next block's call.
  Bytes gathered(std::size_t i, std::size_t next, Bytes BlockFacts::*read) const {
    const Strategy& strategy = context_.strategy;
    if (!shards_parameters(strategy) || strategy.gathers.unit != ParameterGather::layer ||
        strategy.gathers.persistence_threshold > 0 || classes_by_owner(strategy)) {
      return {};  // owners receive what others own only
    }
    const ResidentParameters stay = resident_parameters(strategy);
    if (stay.experts || stay.all) return {};  // some of a block's are not gathered
    const bool ahead = strategy.gathers.prefetch_depth > 0 &&
                       strategy.gathers.max_live_bytes == Bytes() && next < chain_.size();
    return chain_[i]->*read + (ahead ? chain_[next]->*read : Bytes());
  }

  /// Returns bytes of gradients that are written, and of those that are still being reduced.
  Bytes gradients(std::size_t i) const {
    const Strategy& strategy = context_.strategy;
    const bool lasting = !shards_gradients(strategy) && !strategy.gradients.release;
    if (lasting || classes_by_owner(strategy)) return {};
    const bool reduces = strategy.dp * strategy.sharding_degree * strategy.cp > 1;
    const bool overlaps = reduces && overlaps_grad_reduce(context_) && i + 1 < chain_.size();
    return chain_[i]->gradients + (overlaps ? chain_[i + 1]->gradients : Bytes());
  }

  const PassContext& context_;
  std::vector<const BlockFacts*> chain_;
  std::vector<Bytes> kept_before_;  // by block: of the blocks before it
  Bytes all_remain_;
};

/// Bytes of the tensors sent last, as many as there are slots.
class SendSlots {
 public:
  explicit SendSlots(const Strategy& strategy)
      : slots_(strategy.pipeline.send_lifetime == SendLifetime::event
                   ? std::size_t(strategy.pipeline.send_slots)
                   : 0) {}
  void send(Bytes bytes) { sent_.push_back(bytes); }
  Bytes live() const { return last(slots_); }
  /// While the next one is written.
  Bytes live_with(Bytes bytes) const { return bytes + (slots_ > 0 ? last(slots_ - 1) : Bytes()); }

 private:
  Bytes last(std::size_t count) const {
    Bytes sum;
    for (std::size_t i = sent_.size(); i > 0 && count > 0; --count) sum += sent_[--i];
    return sum;
  }
  std::size_t slots_;
  std::vector<Bytes> sent_;
};

/// Returns the order of a stage as far as memory can grow along it, which is until groups of
/// micro-batches repeat themselves.
std::vector<Action> growing_order(const Job& job, const Strategy& strategy, std::int64_t stage) {
  std::int64_t m = micro_batches(job, strategy);
  if (strategy.schedule != Schedule::gpipe) {
    m = std::min(m, strategy.pp * (3 + strategy.pipeline.send_slots / strategy.pp + 1));
  }
  return stage_order(strategy, stage, m);
}

/// Whether the parts of the model before and behind a chunk are on other stages, or on those of
/// other ranks (swaps_halves).
struct ChunkEnds {
  bool front_apart = false, back_apart = false, last_part = false;
  ChunkEnds(const Strategy& strategy, std::int64_t stage, std::size_t chunk) {
    const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages;
    const std::int64_t part = part_of(strategy.schedule, strategy.pp, stage, std::int64_t(chunk));
    const auto apart = [&](std::int64_t other) {
      return swaps_halves(strategy.schedule) ||
             place_of(strategy.schedule, strategy.pp, other).stage != stage;
    };
    last_part = part + 1 == parts;
    front_apart = part > 0 && apart(part - 1);
    back_apart = !last_part && apart(part + 1);
  }
};

/// Returns bytes that a stage keeps of each micro-batch to the end of the step
/// (BorderMemory::for_each). These are buffers to receive into, the activations that it sends on,
/// and the logits for the loss. The logits count twice, since they are concatenated.
Bytes kept_of_each(const PassContext& context, const MicroBatchFacts& facts,
                   const StageChunks& chunks, std::int64_t stage) {
  const Strategy& strategy = context.strategy;
  if (context.framework.memory.borders != BorderMemory::for_each || strategy.pp == 1) return {};
  const std::int64_t parts = strategy.pipeline.split_boundary ? strategy.mp : 1;
  const auto sent = [&](Bytes border) { return Bytes(border.count() / parts); };
  Bytes kept;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const BlockFacts& front = facts.blocks[chunks[c].front().block];
    const BlockFacts& back = facts.blocks[chunks[c].back().block];
    const ChunkEnds ends(strategy, stage, c);
    if (ends.front_apart) kept += sent(front.input);
    if (ends.back_apart) {
      kept += back.output + sent(back.output_gradient);
    } else if (ends.last_part && context.framework.memory.loss == LossMemory::by_op) {
      kept += back.given_to_loss + back.given_to_loss;
    }
  }
  return kept;
}

/// Returns bounds of the bytes that a stage holds beside the persistent ones.
MemoryBound stage_bound(const PassContext& context, const MicroBatchFacts& facts,
                        const StageChunks& chunks, std::int64_t stage) {
  const Strategy& strategy = context.strategy;
  std::vector<ChunkMemory> memory;
  Bytes largest_frame;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const ChunkEnds ends(strategy, stage, c);
    const bool as_before = c > 1 && !ends.last_part && chunks[c] == chunks[c - 1];
    memory.push_back(
        as_before
            ? memory.back()
            : ChunkCalls(context, facts, chunks[c]).memory(ends.front_apart, ends.back_apart));
    if (as_before) continue;
    for (const BlockRun& run : chunks[c]) {
      const BlockFacts& block = facts.blocks[run.block];
      largest_frame =
          std::max({largest_frame, block.forward.frame, block.backward.frame, block.weights.frame});
    }
  }
  const bool split = backward_cut(strategy) == BackwardCut::split;
  // A forward and a backward that are issued in turns have other frames, and share the time for
  // which they hold their borders. Only what they keep is counted then.
  const bool in_turns = strategy.experts.overlap_exchange;
  if (in_turns) largest_frame = {};
  SendSlots activations(strategy), gradients(strategy);
  Bytes held, most;  // of micro-batches between their actions
  Bytes between;     // the most that is alive while no call runs
  MemoryBound bound;
  const auto count = [&](const ActionMemory& memory, Bytes slots) {
    if (memory.live == Bytes()) return;  // no such call
    if (in_turns) {
      most = between = bound.peak = std::max(bound.peak, held);
      return;
    }
    most = std::max(most, held + slots + memory.live);
    bound.peak = std::max(bound.peak, held + slots + memory.peak);
  };
  const auto run = [&](const ActionCalls& calls, SendSlots& own, const SendSlots& others) {
    count(calls.others, own.live() + others.live());
    if (calls.sent == Bytes()) return;
    count(calls.sending, own.live_with(calls.sent) + others.live());
    own.send(calls.sent);
  };
  for (const Action& action : growing_order(context.job, strategy, stage)) {
    const ChunkMemory& chunk = memory[std::size_t(action.chunk)];
    switch (action.kind) {
      case ActionKind::forward:
        run(chunk.forward, activations, gradients);
        held += chunk.kept;
        break;
      case ActionKind::backward:
      case ActionKind::input_gradient:
        held = held - chunk.kept;
        run(chunk.backward, gradients, activations);
        if (split) held += chunk.remains;
        break;
      case ActionKind::weight_gradient:
        held = held - chunk.remains;
        run(chunk.weights, gradients, activations);
        break;
    }
    if (!in_turns) between = std::max(between, held + activations.live() + gradients.live());
  }
  bound.arena = std::max(bound.peak, most + largest_frame);
  const bool arena = context.framework.memory.allocator.kind == AllocatorKind::arena;
  if (arena) {
    bound.reserved = bound.arena;
  } else {
    const Bytes kept = kept_of_each(context, facts, chunks, stage);
    const std::int64_t m = micro_batches(context.job, strategy);
    bound.reserved = std::max(between, Bytes(kept.count() * m));
  }
  return bound;
}

}  // namespace

std::vector<LastingBytes> persistent_bytes(const PassContext& whole) {
  const Job& job = whole.job;
  const Strategy& strategy = whole.strategy;
  const Framework& framework = whole.framework;
  const Job small = fewest_micro_batches(job, strategy);
  const PassContext context{small, strategy, framework};
  const Graph graph = lower_graph(context, {}, Proof::none);
  CutChoices choices = cut_choices(strategy);
  choices.backward = BackwardCut::whole;
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, strategy), choices);
  const auto bytes_of = [&](const Program& program) {
    LastingBytes total;
    for (const Buffer& buffer : program.buffers) {
      if (!buffer.persistent || buffer.on_host) continue;
      const Bytes bytes = round_up(buffer.bytes, kBlockAlignment);
      total.program += bytes;
      if (!made_in_steps(framework, buffer.role, program.sharding_degree > 1))
        total.framework += bytes;
    }
    return total;
  };
  const StageLayout stages = stage_layout(small, strategy, block_shapes(graph));
  const auto instances = contents_per_stage(stages);
  std::vector<LastingBytes> totals;
  for (std::size_t stage = 0; stage < instances.size(); ++stage) {
    const auto alike = std::find(instances.begin(), instances.end(), instances[stage]);
    if (alike < instances.begin() + std::ptrdiff_t(stage)) {
      totals.push_back(totals[std::size_t(alike - instances.begin())]);
      continue;
    }
    LastingBytes& most = totals.emplace_back();  // of the classes of a stage
    for (const Program& one : schedule_stage(graph, cut, context, stages, std::int64_t(stage))) {
      const LastingBytes bytes = bytes_of(one);
      most.program = std::max(most.program, bytes.program);
      most.framework = std::max(most.framework, bytes.framework);
    }
  }
  return totals;
}

std::vector<LastingBytes> persistent_bytes_of(std::int64_t layers, const PassContext& context) {
  Strategy plain = context.strategy;
  plain.pp = std::min<std::int64_t>(plain.pp, 3);
  plain.pipeline.layer_split.assign(std::size_t(plain.pp), layers);
  plain.pipeline.layer_split.back() += total_layers(context.job) - dealt_layers(context.job);
  plain.pipeline.embedding_as_layers = plain.pipeline.loss_as_layers = 0;
  plain.micro_batch = 1;
  drop_recompute(plain);
  plain.gradients.bucket_bytes = Bytes(std::int64_t{1} << 50);
  Job small = context.job;
  small.layers = plain.pp * layers;
  return persistent_bytes({small, plain, context.framework});
}

MemoryBound memory_bound(const PassContext& context, const MicroBatchFacts& facts,
                         std::span<const StageKind> kinds,
                         std::span<const LastingBytes> persistent) {
  MemoryBound most;
  const auto look_at = [&](const StageKind& kind, std::int64_t stage) {
    const MemoryBound bound = stage_bound(context, facts, kind.chunks, stage);
    const LastingBytes& lasting = persistent[std::size_t(stage)];
    most.peak = std::max(most.peak, lasting.program + bound.peak);
    most.arena = std::max(most.arena, lasting.program + bound.arena);
    most.reserved = std::max(most.reserved, lasting.framework + bound.reserved);
  };
  for (const StageKind& kind : kinds) {
    // The first of a kind has the most micro-batches in flight, unless weight gradients wait.
    look_at(kind, kind.first);
    if (splits_backward(context.strategy.schedule) && kind.last != kind.first)
      look_at(kind, kind.last);
  }
  return most;
}

}  // namespace plimsoll
