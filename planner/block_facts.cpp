#include "planner/block_facts.h"

#include <algorithm>

#include "passes/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule.h"

namespace plimsoll {
namespace {

Bytes slot_bytes(const Routine& routine, SlotKind kind) {
  for (const Slot& slot : routine.slots) {
    if (slot.kind == kind) return round_up(slot.bytes, kBlockAlignment);
  }
  return {};
}

bool has_slot(const Routine& routine, SlotKind kind) {
  return std::any_of(routine.slots.begin(), routine.slots.end(),
                     [&](const Slot& slot) { return slot.kind == kind; });
}

/// Op that writes what lies in the slot last; the last op where no port says so.
std::size_t port_op(const Routine& routine, SlotKind kind) {
  for (const Port& port : routine.ports) {
    const Place& place = routine.places[port.tensor.index()];
    if (place.slot && routine.slots[*place.slot].kind == kind) return port.op;
  }
  return routine.ops.size() - 1;
}

CallFacts call_facts(const CostedProgram& costed, std::size_t call, SlotKind sent) {
  const Routine& routine = costed.program->at(costed.program->calls[call].routine);
  CallFacts facts;
  facts.dispatch = dispatch_of(costed, routine);
  facts.frame = round_up(routine.frame_bytes, kBlockAlignment);
  if (routine.ops.empty()) return facts;
  CallPath path(costed, Picoseconds(), kLongAgo);
  path.run(call);
  facts.span = path.now();
  const auto& durations = costed.durations[costed.program->calls[call].routine.index()];
  for (std::size_t op = 0; op < routine.ops.size(); ++op) {
    if (routine.ops[op].stream == Stream::compute) facts.compute += durations[op];
  }
  facts.sends = std::max(Picoseconds(), path.end_of(call, port_op(routine, sent)));
  return facts;
}

/// The same transfer for a border of another size.
Routine resized(Routine transfer, Bytes bytes) {
  Tensor& payload = transfer.tensors[0];
  payload.shape = {bytes.count() / bytes_of(payload.dtype).count()};
  transfer.slots[0].bytes = bytes;
  return transfer;
}

/// The sends of the first of two stages, and of the second one, for the borders of every block.
void find_transfers(const Graph& graph, const CutGraph& cut, const PassContext& context,
                    MicroBatchFacts& facts) {
  for (std::int64_t stage : {0, 1}) {
    const Program program =
        schedule_stage(graph, cut, context, stage, arena_alignment(context.job, context.strategy));
    for (const Routine& routine : program.routines) {
      if (routine.ops.size() != 1 || routine.ops[0].kind != OpKind::send) continue;
      const auto sent = [&](TensorId border) {
        const Strategy& strategy = context.strategy;
        const std::int64_t parts = strategy.split_boundary ? strategy.mp : 1;
        return resized(routine, Bytes(bytes_of(graph.at(border)).count() / parts));
      };
      for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
        const Block& block = graph.blocks[b];
        if (stage == 0 && block.output) {
          facts.blocks[b].send_output = sent(*block.output);
        } else if (stage == 1 && block.input_gradient) {
          facts.blocks[b].send_input_gradient = sent(*block.input_gradient);
        }
      }
    }
  }
}

void take_least(CallFacts& facts, const CallFacts& other) {
  facts.span = std::min(facts.span, other.span);
  facts.compute = std::min(facts.compute, other.compute);
  facts.dispatch = std::min(facts.dispatch, other.dispatch);
  facts.sends = std::min(facts.sends, other.sends);
  facts.frame = std::min(facts.frame, other.frame);
}

/// A layer runs the block or a variant of it: what both cost at least. Borders are the same.
void take_least(BlockFacts& facts, const BlockFacts& variant) {
  take_least(facts.forward, variant.forward);
  take_least(facts.backward, variant.backward);
  facts.saved = std::min(facts.saved, variant.saved);
  facts.keeps_input = facts.keeps_input && variant.keeps_input;
}

}  // namespace

Strategy as_plain_pipeline(const Job& job, const Strategy& strategy) {
  Strategy plain = strategy;
  plain.schedule = Schedule::one_f_one_b;
  plain.send_lifetime = SendLifetime::event;
  if (strategy.virtual_stages > 1) plain.layer_split = layers_per_stage(job, strategy);
  plain.virtual_stages = 1;
  return plain;
}

Job one_micro_batch(const Job& job, const Strategy& strategy) {
  Job result = job;
  result.global_batch = strategy.micro_batch * strategy.dp * strategy.sharding_degree;
  return result;
}

std::shared_ptr<const MicroBatchFacts> FactsCache::of(const Strategy& strategy) const {
  const bool some_layers = strategy.recompute_layers > 0 || !strategy.recompute_list.empty();
  const Key key{strategy.mp, strategy.micro_batch,       strategy.recompute,
                some_layers, strategy.sequence_parallel, strategy.split_boundary};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  auto facts = std::make_shared<const MicroBatchFacts>(find(strategy));
  const std::lock_guard lock(mutex_);
  return known_.try_emplace(key, std::move(facts)).first->second;
}

MicroBatchFacts FactsCache::find(const Strategy& strategy) const {
  Strategy plain = as_plain_pipeline(job_, strategy);
  plain.dp = plain.sharding_degree = 1;
  plain.sharding_stage = 0;
  plain.sharding_owner = ShardingOwner::elements;
  plain.pp = std::min<std::int64_t>(2, total_layers(job_));
  plain.layer_split.clear();
  const Job job = one_micro_batch(job_, plain);
  const PassContext context{job, plain, framework_};
  const Graph graph = lower_graph(context);
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, plain));

  Program program;  // every routine, called once
  program.grid.degree[std::size_t(Axis::mp)] = strategy.mp;
  program.grid.degree[std::size_t(Axis::dp)] = devices_ / strategy.mp;
  for (const CutBlock& block : cut.blocks) {
    for (const Routine* routine : {&block.forward, &block.backward}) {
      Call call;
      call.routine = RoutineId(program.routines.size());
      program.routines.push_back(*routine);
      program.calls.push_back(std::move(call));
    }
  }
  const CostedProgram costed = cost_of(program, costs_);

  MicroBatchFacts facts;
  for (std::size_t b = 0; b < cut.blocks.size(); ++b) {
    const Routine &forward = cut.blocks[b].forward, &backward = cut.blocks[b].backward;
    BlockFacts block;
    block.kind = graph.blocks[b].kind;
    block.forward = call_facts(costed, 2 * b, SlotKind::output);
    block.backward = call_facts(costed, 2 * b + 1, SlotKind::input_gradient);
    block.saved = slot_bytes(forward, SlotKind::saved);
    block.input = slot_bytes(forward, SlotKind::input);
    block.output = slot_bytes(forward, SlotKind::output);
    block.keeps_input = has_slot(backward, SlotKind::input);
    block.input_gradient = slot_bytes(backward, SlotKind::input_gradient);
    block.output_gradient = slot_bytes(backward, SlotKind::output_gradient);
    if (graph.blocks[b].variant_of) {
      take_least(facts.blocks[graph.blocks[b].variant_of->index()], block);
    } else {
      facts.blocks.push_back(block);
    }
  }
  if (plain.pp > 1) find_transfers(graph, cut, context, facts);
  return facts;
}

}  // namespace plimsoll
