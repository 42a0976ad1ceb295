// Calls of the update get their bindings in the arenas.
#include "passes/schedule/update_calls.h"

#include <algorithm>
#include <map>
#include <variant>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/cut/copies_in_pieces.h"
#include "passes/graph/step_ops.h"
#include "passes/schedule/kept_buffers.h"
#include "passes/strategy/precision_rules.h"

namespace plimsoll {

namespace {

const Bytes kState = bytes_of(kGradientType);

/// Returns where the state of a segment starts in the arenas of state, which hold only what the
/// rank owns.
std::int64_t state_offset(const Program& program, const Segment& segment) {
  std::int64_t before = 0;
  for (const Bucket& bucket : program.buckets) {
    if (bucket.owner != program.owner) continue;
    if (segment.offset < bucket.begin + bucket.elements) {
      return before + segment.offset - bucket.begin;
    }
    before += bucket.elements;
  }
  INVARIANT(false, segment.parameter + " is updated by another rank");
}

bool is_of_host(SlotKind kind) {
  return kind == SlotKind::host_parameter_arena || kind == SlotKind::host_gradient_arena ||
         kind == SlotKind::host_first_moment_arena || kind == SlotKind::host_second_moment_arena;
}

/// Returns whether an op reads or writes tensors that only their owners have.
bool uses_state(const Routine& routine, const Op& op) {
  const auto is_state = [&](TensorId id) {
    const auto& slot = routine.places[id.index()].slot;
    if (!slot) return false;
    const SlotKind kind = routine.slots[*slot].kind;
    return kind == SlotKind::first_moment_arena || kind == SlotKind::second_moment_arena ||
           kind == SlotKind::moment_scale_arena || kind == SlotKind::master_parameter_arena ||
           kind == SlotKind::tensor_norms || is_of_host(kind);
  };
  return std::any_of(op.inputs.begin(), op.inputs.end(), is_state) ||
         std::any_of(op.outputs.begin(), op.outputs.end(), is_state);
}

bool is_moment(SlotKind kind) {
  return kind == SlotKind::first_moment_arena || kind == SlotKind::second_moment_arena;
}

/// Returns whether a run of ops begins with a copy between host and device, so that it is issued
/// part by part.
bool begins_with_copy(const Routine& routine) {
  return !routine.ops.empty() && is_of_host(routine.ops[0].kind);
}

/// Returns the bytes of an element of the arena that has a slot.
Bytes width_of(const Routine& routine, std::size_t slot) {
  for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
    if (routine.places[i].slot == slot) return bytes_of(routine.tensors[i].dtype);
  }
  INVARIANT(false, "a slot has a tensor");
}

/// Casts the step's gradients for the update.
bool widens_gradients(const Routine& routine, const Op& op) {
  if (op.kind != OpKind::cast) return false;
  const auto& slot = routine.places[op.outputs[0].index()].slot;
  return slot && routine.slots[*slot].kind == SlotKind::main_gradients;
}

/// Returns the update of a rank that owns nothing. Its share of the norm is 0, it has no value that
/// is not finite, and it updates nothing.
Routine without_update(const Routine& routine) {
  Routine rest;
  rest.name = routine.name;
  rest.phase = routine.phase;
  std::map<TensorId, TensorId> ids;
  std::map<std::size_t, std::size_t> slots;
  const auto keep = [&](TensorId& id) {
    const auto [found, fresh] = ids.try_emplace(id, TensorId(rest.tensors.size()));
    if (fresh) {
      Place place = routine.places[id.index()];
      if (place.slot) {
        const auto [slot, added] = slots.try_emplace(*place.slot, rest.slots.size());
        if (added) rest.slots.push_back(routine.slots[*place.slot]);
        place.slot = slot->second;
      }
      rest.tensors.push_back(routine.tensors[id.index()]);
      rest.places.push_back(place);
    }
    id = found->second;
  };
  std::map<std::uint32_t, std::uint32_t> kept;
  for (std::uint32_t i = 0; i < routine.ops.size(); ++i) {
    Op op = routine.ops[i];
    if (uses_state(routine, op) || widens_gradients(routine, op)) continue;
    if (op.kind == OpKind::squared_norm || op.kind == OpKind::check_finite) {
      op.kind = OpKind::fill;
      op.inputs.clear();
      op.outputs = {op.outputs.back()};
      op.params = FillParams{0};
    }
    for (auto* operands : {&op.inputs, &op.outputs}) {
      for (TensorId& id : *operands) keep(id);
    }
    for (std::uint32_t& wait : op.waits) wait = kept.at(wait);
    kept[i] = std::uint32_t(rest.ops.size());
    rest.ops.push_back(std::move(op));
  }
  rest.frame_bytes = routine.frame_bytes;
  return rest;
}

}  // namespace

std::size_t UpdateCalls::begin_step() { return arena_call(cut_.begin_step); }

std::size_t UpdateCalls::update(const ReleasedGradients& gradients, std::vector<Wait> waits) {
  Routine routine = cut_.update.front().routine;
  for (Op& op : routine.ops) {
    auto& params = std::get<AdamParams>(op.params);
    params.begin = gradients.range.begin;
    params.end = gradients.range.begin + gradients.range.elements;
    params.elements = gradients.elements;
  }
  return last_released_ = arena_call(std::move(routine), {}, std::move(waits), &gradients);
}

std::size_t UpdateCalls::update(const std::vector<std::size_t>& reductions) {
  if (context_.strategy.gradients.release) return last_released_;
  const std::size_t first = build_.next_call();
  for (const UpdatePart& part : cut_.update) {
    if (begins_with_copy(part.routine) && owned_elements(build_.program) > 0) {
      call_in_parts(part.routine);
    } else if (part.each.empty()) {
      arena_call(part.routine);
    } else {
      segment_calls(part.each);
    }
  }
  for (const auto& [kind, id] : transients_) build_.buffer(id).end = build_.next_call();
  for (std::size_t call : reductions) build_.program.calls[first].waits.push_back({call, {}});
  return build_.next_call() - 1;
}

/// A routine on arenas: they get this stage's sizes.
std::size_t UpdateCalls::arena_call(Routine routine, std::optional<HostPart> part,
                                    std::vector<Wait> waits, const ReleasedGradients* released) {
  if (owned_elements(build_.program) == 0) routine = without_update(routine);
  if (routine.ops.empty()) return build_.next_call() - 1;
  std::vector<Binding> bindings;
  for (Slot& slot : routine.slots) {
    if (released != nullptr && slot.kind == SlotKind::gradient_arena) {
      bindings.push_back(released->at);
      slot.bytes = released->elements * bytes_of(layout_.gradient_type());
      continue;
    }
    bindings.push_back(arena_binding(slot.kind));
    slot.bytes = build_.buffer(bindings.back().buffer).bytes;
    if (!part || !(is_of_host(slot.kind) || is_moment(slot.kind))) continue;
    const Bytes element = width_of(routine, bindings.size() - 1);
    if (is_of_host(slot.kind)) bindings.back().offset = part->begin * element;
    slot.bytes = part->elements * element;
  }
  for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
    Tensor& arena = routine.tensors[i];
    if (!arena.arena) continue;
    const Slot& slot = routine.slots[*routine.places[i].slot];
    arena.shape = {slot.bytes.count() / bytes_of(arena.dtype).count()};
    if (part && is_moment(slot.kind)) arena.arena = false;
  }
  if (std::ranges::any_of(routine.ops, [](const Op& op) { return is_of_host(op.kind); }))
    place_host_part(part, routine, bindings);
  for (Op& op : routine.ops) {
    if (widens_own_part_ && widens_gradients(routine, op)) {
      routine.tensors[op.inputs[0].index()].shape = routine.tensors[op.outputs[0].index()].shape;
    }
    set_elements(op);
    // No tensor of these ranks counts in the norm: the sum of nothing.
    if (sums_norms(routine, op) && counted_segments() == 0) {
      op.kind = OpKind::fill;
      op.inputs.clear();
      op.params = FillParams{0};
    }
  }
  const std::size_t call =
      build_.add_call(build_.add_routine(routine), {}, {}, std::move(bindings), std::move(waits));
  if (released != nullptr) {
    build_.program.calls[call].layer = released->layer;
    build_.program.calls[call].micro_batch = released->micro_batch;
  }
  return call;
}

/// Returns how many elements of the rank's state are in the host's memory, its last ones.
std::int64_t UpdateCalls::on_host() const {
  return context_.strategy.optimizer.paged
             ? owned_elements(build_.program)
             : build_.program.at(arenas_.host_gradients).bytes.count() / kState.count();
}

void UpdateCalls::place_host_part(std::optional<HostPart> part, Routine& routine,
                                  std::vector<Binding>& bindings) const {
  const HostPart own = part.value_or(HostPart{0, on_host()});
  const std::int64_t begin = owned_elements(build_.program) - on_host() + own.begin;
  const bool paged = context_.strategy.optimizer.paged;
  const auto set = [&](auto& params) {
    if constexpr (requires { params.end; }) {
      params.begin = begin;
      params.end = begin + own.elements;
      params.elements = own.elements;
    }
  };
  for (Op& op : routine.ops)
    if (paged || row(op.kind).op_class == OpClass::host_memory) std::visit(set, op.params);
  if (!paged) cut_copies(build_.program, begin, routine, bindings);
}

/// The parts are about equal, one for each parameter, as in Megatron-LM
/// (megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py, build_cpu_optimizer_list) and in
/// bitsandbytes, whose paged optimizers update one parameter after the other. Above kMostParts the
/// overlap hardly grows, while steps take longer to simulate. Parts begin with a block of moments.
void UpdateCalls::call_in_parts(const Routine& routine) {
  constexpr std::int64_t kMostParts = 32;
  const bool paged = context_.strategy.optimizer.paged;
  const std::int64_t block = paged ? kMomentBlock : 1, all = on_host();
  const std::int64_t parts = std::min({kMostParts, std::int64_t(layout_.segments.size()), all});
  std::vector<HostPart> cut;
  for (std::int64_t i = 0, begin = 0; i < parts; ++i) {
    const std::int64_t end = i + 1 == parts ? all : all * (i + 1) / parts / block * block;
    if (end == begin) continue;
    cut.push_back({begin, end - begin});
    most_paged_ = std::max(most_paged_, end - begin);
    begin = end;
  }
  std::vector<Wait> before;
  if (!paged) before.push_back({build_.last_compute(), {}});
  for (const HostPart& part : cut) arena_call(routine, part, before);
}

bool UpdateCalls::sums_norms(const Routine& routine, const Op& op) const {
  if (op.kind != OpKind::reduce_sum) return false;
  const auto& slot = routine.places[op.inputs[0].index()].slot;
  return slot && routine.slots[*slot].kind == SlotKind::squared_norms;
}

void UpdateCalls::segment_calls(const std::vector<ParameterRoutine>& routines) {
  std::map<TensorId, RoutineId> added;
  for (std::size_t i = 0; i < layout_.segments.size(); ++i) {
    const auto found =
        std::find_if(routines.begin(), routines.end(), [&](const ParameterRoutine& candidate) {
          return candidate.parameter == layout_.parameter[i];
        });
    if (found == routines.end() || !updates(layout_.segments[i])) continue;
    const bool norm = has_slot(found->routine, SlotKind::squared_norms);
    if (norm && layout_.segments[i].norm_weight == 0) continue;  // another stage counts it
    const auto [known, fresh] = added.try_emplace(found->parameter);
    if (fresh) known->second = build_.add_routine(weighted(found->routine, layout_.segments[i]));
    std::vector<Binding> bindings;
    for (const Slot& slot : found->routine.slots) {
      bindings.push_back(segment_binding(slot.kind, layout_.segments[i]));
    }
    build_.add_call(known->second, layout_.segments[i].layer, {}, std::move(bindings), {});
    if (norm) ++next_norm_;
    if (!has_slot(found->routine, SlotKind::first_moment_arena)) continue;
    for (std::size_t moment = 0; moment < next_moment_.size(); ++moment)
      next_moment_[moment] += moment_elements(graph_, context_.job, layout_.parameter[i], moment);
  }
}

/// Sets the share of these ranks in the norm of all gradients, as the segment states it.
Routine UpdateCalls::weighted(Routine routine, const Segment& segment) {
  if (!has_slot(routine, SlotKind::squared_norms)) return routine;
  for (Op& op : routine.ops) {
    if (op.kind == OpKind::squared_norm || op.kind == OpKind::reduce_sum)
      std::get<FlatParams>(op.params).weight = segment.norm_weight;
  }
  return routine;
}

Binding UpdateCalls::arena_binding(SlotKind kind) {
  switch (kind) {
    case SlotKind::parameter_arena:
      return {arenas_.parameters, {}, {}};
    case SlotKind::master_parameter_arena:
      return {arenas_.masters, {}, {}};
    case SlotKind::gradient_arena:
      return {arenas_.gradients, {}, {}};
    case SlotKind::first_moment_arena:
      return {context_.strategy.optimizer.paged ? transient(kind) : arenas_.first_moment, {}, {}};
    case SlotKind::second_moment_arena:
      return {context_.strategy.optimizer.paged ? transient(kind) : arenas_.second_moment, {}, {}};
    case SlotKind::moment_scale_arena:
      return {arenas_.moment_scales, {}, {}};
    case SlotKind::host_parameter_arena:
      return {arenas_.host_parameters, {}, {}};
    case SlotKind::host_gradient_arena:
      return {arenas_.host_gradients, {}, {}};
    case SlotKind::host_first_moment_arena:
      return {arenas_.host_first_moment, {}, {}};
    case SlotKind::host_second_moment_arena:
      return {arenas_.host_second_moment, {}, {}};
    case SlotKind::scalars:
      return {arenas_.scalars, {}, {}};
    default:
      return {transient(kind), {}, {}};
  }
}

Binding UpdateCalls::segment_binding(SlotKind kind, const Segment& segment) {
  const std::int64_t own = state_offset(build_.program, segment);
  const Bytes state = own * kState;
  const bool follow = updates_matrices(context_.job);
  switch (kind) {
    case SlotKind::parameters:
      if (shards_parameters(context_.strategy)) {
        return {arenas_.parameters, own * bytes_of(layout_.parameter_type()), {}};
      }
      return {arenas_.parameters, layout_.parameters.offset(segment.offset), {}};
    case SlotKind::gradients:
      return {layout_.gradient_type() == kGradientType ? arenas_.gradients
                                                       : transient(SlotKind::main_gradients),
              (shards_gradients(context_.strategy) ? own : segment.offset) * kState,
              {}};
    case SlotKind::master_parameter_arena:
      return {arenas_.masters, state, {}};
    case SlotKind::first_moment_arena:
      return {arenas_.first_moment, follow ? next_moment_[0] * kState : state, {}};
    case SlotKind::second_moment_arena:
      return {arenas_.second_moment, follow ? next_moment_[1] * kState : state, {}};
    case SlotKind::scalars:
      return {arenas_.scalars, {}, {}};
    case SlotKind::squared_norms:
      return {transient(kind), next_norm_ * kState, {}};
    default:
      INVARIANT(false, "slot " + std::string(to_text(kind)) + " is not of one tensor");
  }
}

/// Buffers that exist from their first use to the end of the update.
BufferId UpdateCalls::transient(SlotKind kind) {
  const auto found = transients_.find(kind);
  if (found != transients_.end()) return found->second;
  // Tensors that replace gradients are as large as these. The update's copies are as large as the
  // tensors that it updates.
  const bool part = shards_gradients(context_.strategy) ||
                    (widens_own_part_ && kind == SlotKind::main_gradients && !build_.program.owner);
  std::int64_t count = part ? owned_elements(build_.program) : layout_.elements;
  if (kind == SlotKind::squared_norms) count = std::max<std::int64_t>(counted_segments(), 1);
  if (kind == SlotKind::tensor_norms) count = 2 * std::int64_t(layout_.segments.size());
  const TensorRole role = is_moment(kind) ? TensorRole::optimizer_state : TensorRole::activation;
  const Bytes bytes =
      is_moment(kind) ? most_paged_ * bytes_of(moment_dtype(context_.strategy)) : count * kState;
  const BufferId id =
      build_.add_buffer(std::string(to_text(kind)), role, bytes, build_.next_call());
  return transients_[kind] = id;
}

bool UpdateCalls::updates(const Segment& segment) const {
  return !segment.owner || segment.owner == build_.program.owner;
}

std::int64_t UpdateCalls::counted_segments() const {
  return std::count_if(layout_.segments.begin(), layout_.segments.end(), [&](const Segment& s) {
    return updates(s) && s.clip && s.norm_weight != 0;
  });
}

/// The elements that an op of one attribute group, or on owned tensors, works on, for its cost.
void UpdateCalls::set_elements(Op& op) const {
  std::visit(
      [&](auto& params) {
        if constexpr (requires {
                        params.group;
                        params.elements;
                      }) {
          if (!params.group && !build_.program.owner) return;
          for (const Segment& segment : layout_.segments) {
            const bool in_group = !params.group || segment.group == *params.group;
            if (in_group && updates(segment)) params.elements += segment.elements;
          }
        }
      },
      op.params);
}

}  // namespace plimsoll
