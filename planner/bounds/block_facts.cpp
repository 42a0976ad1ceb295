// Lowers one micro-batch of each block and reads the facts off its routines.
#include "planner/bounds/block_facts.h"

#include <algorithm>
#include <set>

#include "graph/op_table.h"
#include "graph/program.h"
#include "models/job/layer_forms.h"
#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"
#include "passes/strategy/expert_rows.h"
#include "planner/bounds/call_path.h"
#include "planner/bounds/least_costs.h"

namespace plimsoll {
namespace {

/// Bytes that rounding may add to the tensors of one slot or frame.
constexpr std::int64_t kRounding = 1 << 16;

bool same_but_sizes(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.role == b.role && a.shape.size() == b.shape.size();
}

bool same_op(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stream == b.stream && a.inputs == b.inputs &&
         a.outputs == b.outputs && a.waits == b.waits && a.params.index() == b.params.index();
}

bool same_but_sizes(const Routine& a, const Routine& b) {
  const auto same_slots = [](const Slot& x, const Slot& y) { return x.kind == y.kind; };
  const auto same_tensors = [](const Tensor& x, const Tensor& y) { return same_but_sizes(x, y); };
  return std::ranges::equal(a.ops, b.ops, same_op) &&
         std::ranges::equal(a.tensors, b.tensors, same_tensors) &&
         std::ranges::equal(a.slots, b.slots, same_slots) && std::ranges::equal(a.ports, b.ports);
}

Bytes extended_bytes(Bytes one, Bytes two, std::int64_t sequences) {
  const std::int64_t more = (two - one).count() - kRounding;
  return Bytes(one.count() + std::max<std::int64_t>(0, more) * (sequences - 1));
}

void extend(Routine& routine, const Routine& two, std::int64_t sequences) {
  for (std::size_t t = 0; t < routine.tensors.size(); ++t) {
    Shape& shape = routine.tensors[t].shape;
    for (std::size_t d = 0; d < shape.size(); ++d)
      shape[d] += (two.tensors[t].shape[d] - shape[d]) * (sequences - 1);
  }
  for (std::size_t s = 0; s < routine.slots.size(); ++s) {
    Bytes& bytes = routine.slots[s].bytes;
    bytes = extended_bytes(bytes, two.slots[s].bytes, sequences);
  }
  routine.frame_bytes = extended_bytes(routine.frame_bytes, two.frame_bytes, sequences);
}

/// Times of the attention in a routine that gathers the keys and values of `cp` ranks, and of the
/// rounds that replace it in a ring (passes/graph/context_exchange.cpp).
struct RingRounds {
  Picoseconds gathered;   ///< attention that reads all keys at once; 0 where there is none
  Picoseconds attention;  ///< at least, in `cp` rounds, each with the keys of one rank
  Picoseconds shifts;     ///< at least, one after the other
};

/// Returns a routine with the attention of one round and the shift of its keys and values.
Routine round_of(const Routine& routine, const Op& attention, std::int64_t cp) {
  Routine round;
  round.phase = routine.phase;
  round.tensors = routine.tensors;
  round.places = routine.places;
  round.slots = routine.slots;
  const bool backward = attention.kind == OpKind::flash_attention_backward;
  const TensorId keys = attention.inputs[backward ? 2 : 1];
  const auto shrink = [&](TensorId id) { round.tensors[id.index()].shape[0] /= cp; };
  shrink(keys);
  if (backward) shrink(attention.outputs.back());
  Op one = attention;
  one.waits.clear();
  std::get<AttentionParams>(one.params).sequence /= cp;
  Op shift;
  shift.kind = OpKind::ring_shift;
  shift.stream = Stream::context;
  shift.phase = attention.phase;
  shift.inputs = {keys};
  shift.outputs = {keys};
  shift.params = CollectiveParams{Group{{Axis::cp}}};
  round.ops = {one, shift};
  return round;
}

RingRounds ring_rounds(const Routine& routine, std::int64_t cp, const LeastCosts& costs,
                       const Grid& grid) {
  RingRounds all;
  for (const Op& op : routine.ops) {
    if (row(op.kind).op_class != OpClass::attention) continue;
    Routine whole = routine;
    whole.ops = {op};
    all.gathered += costs.of(whole, grid, 0)[0];
    const std::vector<Picoseconds> round = costs.of(round_of(routine, op, cp), grid, 0);
    all.attention += repeated(round[0], cp);
    // Backward sends keys and the sums of their gradients.
    const std::int64_t sent = op.kind == OpKind::flash_attention_backward ? 2 : 1;
    all.shifts += repeated(round[1], sent * (cp - 1));
  }
  return all;
}

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

/// Returns the op that writes the slot's tensor last: the last op where no port says so.
std::size_t port_op(const Routine& routine, SlotKind kind) {
  for (const Port& port : routine.ports) {
    const Place& place = routine.places[port.tensor.index()];
    if (place.slot && routine.slots[*place.slot].kind == kind) return port.op;
  }
  return routine.ops.size() - 1;
}

CallFacts call_facts(const CostedProgram& costed, std::size_t call, bool waits, SlotKind sent) {
  const RoutineId id = costed.program->calls[call].routine;
  const Routine& routine = costed.program->at(id);
  CallFacts facts;
  facts.dispatch = dispatch_of(costed, id);
  facts.frame = round_up(routine.frame_bytes, kBlockAlignment);
  if (waits) facts.host = no_call();
  if (routine.ops.empty()) return facts;
  const CallPaths paths = call_paths(costed, id, port_op(routine, sent));
  if (waits) facts.host = paths.host;
  facts.span = paths.span;
  facts.sends = paths.written;
  facts.computes = costed.computes[id.index()];
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    if (routine.ops[i].stream == Stream::experts)
      facts.exchanges += costed.durations[id.index()][i];
  }
  return facts;
}

/// Returns the facts of `count` such calls, one behind another. The last one writes the border.
CallFacts repeated_call(CallFacts call, std::int64_t count) {
  call.sends += repeated(call.span, count - 1);
  for (Picoseconds* time : {&call.span, &call.computes, &call.exchanges, &call.dispatch})
    *time = repeated(*time, count);
  return call;
}

/// Returns this transfer for a border of another size.
Routine resized(Routine transfer, Bytes bytes) {
  Tensor& payload = transfer.tensors[0];
  payload.shape = {bytes.count() / bytes_of(payload.dtype).count()};
  transfer.slots[0].bytes = bytes;
  return transfer;
}

/// Whether a routine is one op of this kind on this stream.
bool is_just(const Routine& routine, OpKind kind, Stream stream) {
  return routine.ops.size() == 1 && routine.ops[0].kind == kind && routine.ops[0].stream == stream;
}

/// Finds the sends of the first of two stages, and of the second, for the borders of every block.
void find_transfers(const Graph& graph, const CutGraph& cut, const PassContext& context,
                    MicroBatchFacts& facts) {
  const std::int64_t parts = context.strategy.pipeline.split_boundary ? context.strategy.mp : 1;
  Job few = context.job;  // what is sent does not depend on how many equal layers there are
  if (!layers_differ(few)) few.layers = std::min<std::int64_t>(few.layers, 4);
  const StageLayout stages = stage_layout(few, context.strategy, block_shapes(graph));
  for (std::int64_t stage : {0, 1}) {
    const Program program =
        schedule_stage(graph, cut, {few, context.strategy, context.framework}, stages, stage)
            .front();
    const Stream stream = stage == 0 ? Stream::send_next : Stream::send_previous;
    const Routine *send = nullptr, *gather = nullptr;
    for (const Routine& routine : program.routines) {
      if (is_just(routine, OpKind::send, stream)) send = &routine;
      if (parts > 1 && is_just(routine, OpKind::all_gather, Stream::mp)) gather = &routine;
    }
    INVARIANT(send != nullptr, "a stage of two sends");
    const auto transfer = [&](TensorId border) {
      const Bytes bytes = bytes_of(graph.at(border));
      BorderTransfer transfer{resized(*send, Bytes(bytes.count() / parts)), {}};
      if (gather != nullptr) transfer.gather = resized(*gather, bytes);
      return transfer;
    };
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      const Block& block = graph.blocks[b];
      if (stage == 0 && block.output) {
        facts.blocks[b].send_output = transfer(*block.output);
      } else if (stage == 1 && block.input_gradient) {
        facts.blocks[b].send_input_gradient = transfer(*block.input_gradient);
      }
    }
  }
}

Bytes logits_of(const Routine& forward) {
  for (const Op& op : forward.ops) {
    if (op.kind == OpKind::logits_sum_exp)
      return elements(forward.tensors[op.inputs[0].index()].shape) * bytes_of(DType::bf16);
  }
  return {};
}

/// Returns the tensors of a routine that lie in slots of this kind, one for each place.
std::vector<const Tensor*> tensors_in(const Routine& routine, SlotKind kind) {
  std::vector<const Tensor*> found;
  std::set<std::pair<std::size_t, Bytes>> seen;
  for (std::size_t t = 0; t < routine.tensors.size(); ++t) {
    const Place& place = routine.places[t];
    if (!place.slot || routine.slots[*place.slot].kind != kind) continue;
    if (seen.emplace(*place.slot, place.offset).second) found.push_back(&routine.tensors[t]);
  }
  return found;
}

WeightBytes weights_of(const Routine& forward, const Routine& backward, const Routine& weights) {
  std::vector<const Tensor*> gradients = tensors_in(backward, SlotKind::gradients);
  if (gradients.empty()) gradients = tensors_in(weights, SlotKind::gradients);
  if (gradients.empty()) return {};
  const Bytes width = bytes_of(gradients.front()->dtype);  // that of all gradients
  WeightBytes sum;
  for (const Tensor* parameter : tensors_in(forward, SlotKind::parameters)) {
    const bool experts = is_of_experts(*parameter);
    (experts ? sum.expert_parameters : sum.parameters) += bytes_of(*parameter);
    (experts ? sum.expert_gradients : sum.gradients) += elements(parameter->shape) * width;
  }
  return sum;
}

/// Finds the bytes that a block's routines leave for each other.
void find_bytes(const Routine& forward, const Routine& backward, const Routine& weights,
                BlockFacts& block) {
  block.input = slot_bytes(forward, SlotKind::input);
  block.output = slot_bytes(forward, SlotKind::output);
  block.input_gradient = slot_bytes(backward, SlotKind::input_gradient);
  block.output_gradient = slot_bytes(backward, SlotKind::output_gradient);
  block.saved =
      slot_bytes(forward, SlotKind::saved) + slot_bytes(forward, SlotKind::saved_for_weights);
  const bool again = has_slot(backward, SlotKind::input) || has_slot(weights, SlotKind::input);
  block.kept = block.saved + (again ? block.input : Bytes());
  block.given_to_loss = logits_of(forward);
  block.deferred = slot_bytes(backward, SlotKind::deferred);
  const auto read_by = [](const Routine& routine) {
    return slot_bytes(routine, SlotKind::parameters) +
           slot_bytes(routine, SlotKind::frozen_parameters);
  };
  block.forward_parameters = read_by(forward);
  block.backward_parameters = read_by(backward);
  block.gradients =
      std::max(slot_bytes(backward, SlotKind::gradients), slot_bytes(weights, SlotKind::gradients));
  block.bundle = weights_of(forward, backward, weights);
  for (SlotKind kind : {SlotKind::saved, SlotKind::saved_for_weights, SlotKind::deferred,
                        SlotKind::input, SlotKind::output_gradient}) {
    block.remains += slot_bytes(weights, kind);
  }
}

MicroBatchFacts facts_of(const MicroBatchProgram& all, const LeastCosts& costs) {
  const CostedProgram costed = cost_of(all.program, costs);
  const std::vector<Routine>& routines = all.program.routines;
  const bool waits = std::ranges::any_of(costed.host_waits, [](const std::vector<bool>& ops) {
    return std::ranges::find(ops, true) != ops.end();
  });
  MicroBatchFacts facts;
  for (std::size_t b = 0; b < all.shapes.size(); ++b) {
    BlockFacts block;
    block.shape = all.shapes[b];
    block.forward = call_facts(costed, 3 * b, waits, SlotKind::output);
    block.backward =
        repeated_call(call_facts(costed, 3 * b + 1, waits, SlotKind::input_gradient), all.parts[b]);
    block.weights = call_facts(costed, 3 * b + 2, waits, SlotKind::gradients);
    block.has_weights = !routines[3 * b + 2].ops.empty();
    find_bytes(routines[3 * b], routines[3 * b + 1], routines[3 * b + 2], block);
    facts.blocks.push_back(std::move(block));
    if (all.variant_of[b]) facts.blocks[*all.variant_of[b]].recomputing = b;
  }
  return facts;
}

/// Replaces the times of a call that gathers keys and values by the least that the call takes where
/// they go round a ring.
void bound_ring(const Routine& routine, std::int64_t cp, const LeastCosts& costs, const Grid& grid,
                CallFacts& call) {
  const RingRounds rounds = ring_rounds(routine, cp, costs, grid);
  if (rounds.gathered == Picoseconds()) return;
  const Picoseconds behind = call.span - call.sends;
  call.computes = call.computes - rounds.gathered + rounds.attention;
  call.span = std::max(call.computes, rounds.shifts);
  call.sends = std::max(Picoseconds(), call.span - behind);
  call.host.reset();
}

/// Leaves one stream alone, the busier one in layers with experts: computation or their exchanges.
/// Where a forward and a backward are issued in turns, one may compute while the other waits.
void leave_out_waits(MicroBatchFacts& facts) {
  Picoseconds computes, exchanges;  // of blocks that exchange
  for (const BlockFacts& block : facts.blocks) {
    if (block.forward.exchanges == Picoseconds()) continue;
    computes += block.forward.computes + block.backward.computes + block.weights.computes;
    exchanges += block.forward.exchanges + block.backward.exchanges;
  }
  Picoseconds CallFacts::*busier =
      exchanges > computes ? &CallFacts::exchanges : &CallFacts::computes;
  for (BlockFacts& block : facts.blocks) {
    for (CallFacts* call : {&block.forward, &block.backward, &block.weights}) {
      call->span = std::min(call->span, call->*busier);
      call->sends = {};
      call->host.reset();
    }
  }
}

}  // namespace

MicroBatchProgram micro_batch_program(const Graph& graph, const CutGraph& cut, const Grid& grid) {
  MicroBatchProgram all;
  all.program.grid = grid;
  all.shapes = block_shapes(graph);
  for (std::size_t b = 0; b < cut.blocks.size(); ++b) {
    const CutBlock& block = cut.blocks[b];
    const auto& variant_of = graph.blocks[b].variant_of;
    all.variant_of.push_back(variant_of ? std::optional(variant_of->index()) : std::nullopt);
    all.parts.push_back(graph.blocks[b].parts);
    for (const Routine* routine : {&block.forward, &block.backward, &block.weight_gradient}) {
      Call call;
      call.routine = RoutineId(all.program.routines.size());
      all.program.routines.push_back(*routine);
      all.program.calls.push_back(std::move(call));
      for (Tensor& tensor : all.program.routines.back().tensors) tensor.name = {};
    }
  }
  return all;
}

std::optional<MicroBatchProgram> extended(const MicroBatchProgram& one,
                                          const MicroBatchProgram& two, std::int64_t sequences) {
  const auto same = [](const Routine& a, const Routine& b) { return same_but_sizes(a, b); };
  if (!std::ranges::equal(one.program.routines, two.program.routines, same)) return std::nullopt;
  MicroBatchProgram all = one;
  for (std::size_t r = 0; r < all.program.routines.size(); ++r)
    extend(all.program.routines[r], two.program.routines[r], sequences);
  return all;
}

bool is_long_ring(const Framework& framework, const Strategy& strategy) {
  constexpr std::int64_t kLong = 16;
  const ContextExchange exchange = strategy.tokens.context_exchange;
  const bool reads_parts =
      exchange == ContextExchange::ring ||
      (exchange == ContextExchange::all_gather && framework.parallelism.sums_parts_in_f32);
  return strategy.cp >= kLong && reads_parts;
}

Strategy as_plain_pipeline(const Job& job, const Strategy& strategy) {
  Strategy plain = strategy;
  plain.schedule = Schedule::one_f_one_b;
  plain.pipeline.send_lifetime = SendLifetime::event;
  if (strategy.pipeline.virtual_stages > 1) {
    plain.pipeline.layer_split = layers_per_stage(job, strategy);
    plain.pipeline.embedding_as_layers = plain.pipeline.loss_as_layers = 0;
  }
  plain.pipeline.virtual_stages = 1;
  return plain;
}

Job fewest_micro_batches(const Job& job, const Strategy& strategy) {
  Job result = job;
  result.global_batch = strategy.micro_batch * strategy.dp * strategy.sharding_degree;
  if (strategy.pipeline.virtual_stages > 1) result.global_batch *= strategy.pp;
  return result;
}

/// Returns one strategy for all that have the same facts. Where ranks of mp and cp lie, and when
/// parameters are gathered, changes nothing within a block.
Strategy FactsCache::alike(const Strategy& strategy) const {
  Strategy plain =
      without(as_plain_pipeline(target_.job, strategy), FIELD(dp), FIELD(sharding_degree),
              FIELD(sharding_stage), FIELD(owners.sharding_owner), FIELD(pipeline.layer_split),
              FIELD(pipeline.embedding_as_layers), FIELD(pipeline.send_slots), FIELD(rank_order),
              FIELD(gradients.bucket_bytes), FIELD(gradients.release), FIELD(recomputed.list),
              FIELD(offloaded.layers), FIELD(gathers.prefetch_depth), FIELD(gathers.max_live_bytes),
              FIELD(gathers.reuse_distance_bytes), FIELD(gathers.keep), FIELD(gathers.offload));
  // The room for experts' rows follows from the strategy itself, not from what is alike.
  if (target_.job.experts && strategy.ep > 1)
    plain.experts.rows_percent = rows_room(target_.job, target_.framework(), strategy).percent;
  if (backward_cut(strategy) == BackwardCut::split) plain.schedule = Schedule::zb_h1;
  plain.pp = 2;
  plain.pipeline.loss_as_layers =
      dealt_layers(target_.job) == 1 ? 1 : 0;  // the second stage has the head then
  // Layers that recompute and others are both there, whichever they are.
  if (plain.recompute == Recompute::none) plain.recompute = Recompute::full;
  // Where no layer keeps all and no cut by cost asks for such layers, they are left out: most of
  // the time goes into blocks.
  const bool in_all = strategy.recompute == Recompute::modules && strategy.recomputed.layers == 0 &&
                      strategy.recomputed.list.empty() && layers_differ(target_.job);
  if (plain.recompute != Recompute::per_op) plain.recomputed.layers = in_all ? 0 : 1;
  return plain;
}

std::shared_ptr<const MicroBatchFacts> FactsCache::look_up(const Strategy& strategy, Extent extent,
                                                           DeviceKindIndex kind) const {
  const Strategy plain = alike(strategy);
  return known_.of({plain, extent, kind}, [&] {
    MicroBatchFacts found = find(plain, extent, kind);
    if (strategy.experts.overlap_exchange) leave_out_waits(found);
    // The host may hold a layer's input, too, between forward and backward.
    if (strategy.offloaded.percent > 0) {
      for (BlockFacts& block : found.blocks) block.kept = block.saved;
    }
    return std::make_shared<const MicroBatchFacts>(std::move(found));
  });
}

FactsCache::Cut FactsCache::cut(const Strategy& plain, const Framework& framework) const {
  const Job job = fewest_micro_batches(target_.job, plain);
  Grid grid;
  grid.degree[std::size_t(Axis::mp)] = plain.mp;
  grid.degree[std::size_t(Axis::cp)] = plain.cp;
  grid.degree[std::size_t(Axis::dp)] = target_.devices / (plain.mp * plain.cp);
  if (experts_apart(plain)) {  // neighbours, as in any grid of the usual order
    const std::int64_t etp = experts_tensor_parallel(plain);
    grid.degree[std::size_t(Axis::etp)] = etp;
    grid.degree[std::size_t(Axis::ep)] = plain.ep;
    grid.degree[std::size_t(Axis::edp)] = target_.devices / (etp * plain.ep);
  }
  Cut result{lower_graph({job, plain, framework}, {}, Proof::none), {}, {}};
  const CutChoices choices{.backward = backward_cut(plain),
                           .offload_percent = plain.offloaded.percent};
  result.cut = cut_blocks(result.graph, arena_alignment(job, plain), choices);
  result.all = micro_batch_program(result.graph, result.cut, grid);
  return result;
}

MicroBatchFacts FactsCache::find(const Strategy& plain, Extent extent, DeviceKindIndex kind) const {
  if (extent == Extent::ring) return find_ring(plain, kind);
  // Programs of long rings are too large to be kept.
  if (extent == Extent::work && !is_long_ring(target_.framework(), plain))
    return facts_of(sequences_of(plain, target_.framework()), costs_.of(plain, kind));
  const Cut found = cut(plain, target_.framework());
  MicroBatchFacts facts = facts_of(found.all, costs_.of(plain, kind));
  if (extent == Extent::transfers) {
    const Job job = fewest_micro_batches(target_.job, plain);
    find_transfers(found.graph, found.cut, {job, plain, target_.framework()}, facts);
  }
  return facts;
}

MicroBatchFacts FactsCache::find_ring(const Strategy& plain, DeviceKindIndex kind) const {
  Strategy gathers = plain;
  gathers.tokens.context_exchange = ContextExchange::all_gather;
  const MicroBatchProgram all = sequences_of(gathers, in_one_part_);
  const LeastCosts& costs = costs_.of(plain, kind);
  MicroBatchFacts facts = facts_of(all, costs);
  for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
    const auto bound = [&](std::size_t call, CallFacts& of) {
      bound_ring(all.program.routines[3 * b + call], plain.cp, costs, all.program.grid, of);
    };
    bound(0, facts.blocks[b].forward);
    bound(1, facts.blocks[b].backward);
  }
  return facts;
}

const MicroBatchProgram& FactsCache::few_sequences(Strategy plain, std::int64_t sequences,
                                                   const Framework& framework) const {
  plain.micro_batch = sequences;
  return programs_.of({plain, framework.parallelism.sums_parts_in_f32},
                      [&] { return cut(plain, framework).all; });
}

MicroBatchProgram FactsCache::sequences_of(const Strategy& plain,
                                           const Framework& framework) const {
  const MicroBatchProgram& one = few_sequences(plain, 1, framework);
  if (plain.micro_batch == 1) return one;
  const MicroBatchProgram& two = few_sequences(plain, 2, framework);
  if (plain.micro_batch == 2) return two;
  auto all = extended(one, two, plain.micro_batch);
  return all ? *std::move(all) : cut(plain, framework).all;
}

}  // namespace plimsoll
