// Ops become a routine: tensors get slots or places in the frame, and ops get waits.
#include "passes/cut/routine_builder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "graph/op_table.h"

namespace plimsoll {

namespace {

/// A Lifetime is memory that is used from op `first` to op `last`.
struct Lifetime {
  Bytes size;
  std::size_t first = 0, last = 0;
  Bytes offset;
};

/// Sets offsets so that lifetimes that overlap do not share bytes. The largest is placed first, at
/// the lowest free offset. Returns the extent.
Bytes place_lifetimes(std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return lifetimes[a].size > lifetimes[b].size;
  });
  std::vector<std::size_t> placed;  // in order of their offsets
  Bytes extent;
  for (std::size_t i : order) {
    Lifetime& life = lifetimes[i];
    for (std::size_t j : placed) {
      const Lifetime& other = lifetimes[j];
      if (life.first > other.last || other.first > life.last) continue;
      if (life.offset + life.size <= other.offset) break;
      life.offset = std::max(life.offset, other.offset + other.size);
    }
    extent = std::max(extent, life.offset + life.size);
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), life.offset,
                         [&](Bytes offset, std::size_t j) { return offset < lifetimes[j].offset; });
    placed.insert(behind, i);
  }
  return extent;
}

Bytes aligned(Bytes size) { return round_up(size, kBlockAlignment); }

/// Returns whether a tensor is state of the optimizer for one tensor.
bool is_state(const Tensor& tensor) {
  return tensor.role == TensorRole::optimizer_state || tensor.role == TensorRole::master_parameter;
}

}  // namespace

const std::vector<TensorId>* Crossing::of(SlotKind kind) const {
  if (kind == SlotKind::saved) return &saved;
  if (kind == SlotKind::saved_for_weights) return &saved_for_weights;
  if (kind == SlotKind::offloaded) return &offloaded;
  if (kind == SlotKind::deferred) return &deferred;
  return kind == SlotKind::carried ? &carried : nullptr;
}

Routine RoutineBuilder::build(std::string name, Phase phase, const std::vector<Op>& ops) {
  routine_.name = std::move(name);
  routine_.phase = phase;
  for (const Op& op : ops) add_op(op);
  share_storage();
  find_slots();
  add_waits();
  place_frame();
  add_ports();
  return std::move(routine_);
}

TensorId RoutineBuilder::local(TensorId global) {
  const auto [found, fresh] = local_.try_emplace(global, TensorId(routine_.tensors.size()));
  if (fresh) {
    Tensor tensor = graph_.at(global);
    tensor.block.reset();
    tensor.gradient_of.reset();
    tensor.tied_to.reset();
    if (one_tensor_ && tensor.arena) {  // one entry of a list
      tensor.shape = {1};
      tensor.arena = false;
    }
    routine_.tensors.push_back(std::move(tensor));
    routine_.places.emplace_back();
    global_.push_back(global);
  }
  return found->second;
}

void RoutineBuilder::add_op(Op op) {
  op.block.reset();
  for (TensorId& id : op.inputs) id = local(id);
  for (TensorId& id : op.outputs) id = local(id);
  routine_.ops.push_back(std::move(op));
}

/// Sets storage_[i] to the tensor whose place tensor i shares.
void RoutineBuilder::share_storage() {
  storage_.resize(routine_.tensors.size());
  std::iota(storage_.begin(), storage_.end(), 0);
  for (const Op& op : routine_.ops) {
    const std::optional<std::size_t> reused = in_place(op, routine_.tensors);
    if (!reused) continue;
    const std::size_t from = storage_[op.inputs[*reused].index()];
    const std::size_t to = storage_[op.outputs[0].index()];
    for (std::size_t& storage : storage_) {
      if (storage == to) storage = from;
    }
  }
}

/// Returns the slot of a tensor, and nothing for a frame temporary.
std::optional<RoutineBuilder::CrossingPlace> RoutineBuilder::crossing_place(TensorId global) const {
  if (const auto other = crossing_.lies_as.find(global); other != crossing_.lies_as.end())
    return crossing_place(other->second);
  const Tensor& tensor = graph_.at(global);
  if (tensor.role == TensorRole::scalar && tensor.block)
    return CrossingPlace{state_slot(global), {}};
  if (tensor.role == TensorRole::scalar) {
    return CrossingPlace{SlotKind::scalars, tensor.element.value_or(0) * bytes_of(tensor.dtype)};
  }
  if (tensor.arena || is_state(tensor)) return CrossingPlace{arena_slot(global), {}};
  if (tensor.role == TensorRole::workspace)
    return CrossingPlace{SlotKind::weight_copies, *offset_in(weight_copies(), global)};
  if (one_tensor_ && tensor.role == TensorRole::parameter)
    return CrossingPlace{SlotKind::parameters, {}};
  if (one_tensor_ && tensor.gradient_of) return CrossingPlace{SlotKind::gradients, {}};
  if (tensor.role == TensorRole::frozen_parameter) return place_of_frozen(global);
  if (tensor.role == TensorRole::parameter || tensor.gradient_of) return place_in_bundle(global);
  if (!block_) return std::nullopt;
  const Block& block = graph_.at(*block_);
  if (block.input == global) return CrossingPlace{SlotKind::input, {}};
  if (block.output == global) return CrossingPlace{SlotKind::output, {}};
  if (block.input_gradient == global) return CrossingPlace{SlotKind::input_gradient, {}};
  if (block.output_gradient == global) return CrossingPlace{SlotKind::output_gradient, {}};
  for (SlotKind kind : {SlotKind::saved, SlotKind::saved_for_weights, SlotKind::offloaded,
                        SlotKind::deferred, SlotKind::carried}) {
    if (const auto offset = offset_in(*crossing_.of(kind), global))
      return CrossingPlace{kind, *offset};
  }
  return std::nullopt;
}

RoutineBuilder::CrossingPlace RoutineBuilder::place_of_frozen(TensorId global) const {
  if (graph_.at(global).tied_to) return {SlotKind::tied_parameters, {}};
  const auto entry =
      std::ranges::find(bundle_->frozen, global, [](const FrozenEntry& e) { return e.parameter; });
  INVARIANT(entry != bundle_->frozen.end(),
            graph_.at(global).name + " is not in its block's range");
  return {SlotKind::frozen_parameters, entry->offset};
}

/// Returns the slot of a parameter or of its gradient.
RoutineBuilder::CrossingPlace RoutineBuilder::place_in_bundle(TensorId global) const {
  const Tensor& tensor = graph_.at(global);
  const bool gradient = tensor.gradient_of.has_value();
  const TensorId parameter = gradient ? *tensor.gradient_of : global;
  if (graph_.at(parameter).tied_to) {
    return CrossingPlace{gradient ? SlotKind::tied_gradients : SlotKind::tied_parameters, {}};
  }
  const std::size_t entry = bundle_entry(parameter);
  if (scattered_) {
    return CrossingPlace{gradient ? SlotKind::gradients : SlotKind::parameters, {}, entry};
  }
  const Bytes offset = bundle_->bundle[entry].offset * bytes_of(tensor.dtype);
  const Bytes gathered = bundle_->gathered_elements * bytes_of(tensor.dtype);
  if (gradient) return CrossingPlace{SlotKind::gradients, offset};
  if (offset < gathered) return CrossingPlace{SlotKind::parameters, offset};
  return CrossingPlace{SlotKind::resident_parameters, offset - gathered};
}

SlotKind RoutineBuilder::arena_slot(TensorId global) const {
  const Tensor& tensor = graph_.at(global);
  const auto of = [&](SlotKind device, SlotKind host) { return tensor.on_host ? host : device; };
  if (tensor.role == TensorRole::parameter) return SlotKind::parameter_arena;
  if (tensor.role == TensorRole::master_parameter)
    return of(SlotKind::master_parameter_arena, SlotKind::host_parameter_arena);
  if (tensor.role == TensorRole::gradient) return SlotKind::gradient_arena;
  if (tensor.on_host && tensor.role == TensorRole::communication)
    return SlotKind::host_gradient_arena;
  if (tensor.role == TensorRole::activation) return list_slot(global);
  const auto is_input = [&](std::size_t i, std::initializer_list<OpKind> of) {
    return std::ranges::any_of(graph_.ops, [&](const Op& op) {
      return std::ranges::find(of, op.kind) != of.end() && op.inputs[i] == global;
    });
  };
  if (is_input(4, {OpKind::adamw_8bit})) return SlotKind::moment_scale_arena;
  // A moment that is in the host's memory between updates lies as that of the update does.
  const auto copy = std::ranges::find_if(graph_.ops, [&](const Op& op) {
    return op.kind == OpKind::copy_to_device && op.inputs[0] == global;
  });
  if (copy != graph_.ops.end())
    return arena_slot(copy->outputs[0]) == SlotKind::second_moment_arena
               ? SlotKind::host_second_moment_arena
               : SlotKind::host_first_moment_arena;
  const bool second =
      is_input(3, {OpKind::adamw, OpKind::adamw_8bit, OpKind::lamb_norms, OpKind::host_adamw}) ||
      is_input(4, {OpKind::adafactor_norm});
  return second ? of(SlotKind::second_moment_arena, SlotKind::host_second_moment_arena)
                : of(SlotKind::first_moment_arena, SlotKind::host_first_moment_arena);
}

/// Returns the slot of a router's state, by the op that adds to it, if there is one.
SlotKind RoutineBuilder::state_slot(TensorId global) const {
  for (const Op& op : graph_.ops) {
    if (op.outputs[0] != global) continue;
    if (op.kind == OpKind::count_choices) return SlotKind::expert_load;
    if (op.kind == OpKind::bias_gradient) return SlotKind::layer_choices;
  }
  return SlotKind::selection_bias;
}

/// Returns the slot of an arena that exists during the update only, by the op that writes it.
SlotKind RoutineBuilder::list_slot(TensorId global) const {
  for (const Op& op : graph_.ops) {
    if (std::find(op.outputs.begin(), op.outputs.end(), global) == op.outputs.end()) continue;
    if (op.kind == OpKind::cast) return SlotKind::main_gradients;
    if (op.kind == OpKind::square) return SlotKind::squares;
    if (op.kind == OpKind::scale) return SlotKind::scaled_gradients;
    if (op.kind == OpKind::lamb_norms) return SlotKind::tensor_norms;
  }
  return SlotKind::squared_norms;
}

std::size_t RoutineBuilder::bundle_entry(TensorId parameter) const {
  for (std::size_t i = 0; i < bundle_->bundle.size(); ++i) {
    if (bundle_->bundle[i].parameter == parameter) return i;
  }
  INVARIANT(false, graph_.at(parameter).name + " is not in its block's bundle");
}

/// Tensors that last for a step beside the parameters of the block, in order.
std::vector<TensorId> RoutineBuilder::weight_copies() const {
  const BlockId home = graph_.at(*block_).variant_of.value_or(*block_);
  std::vector<TensorId> copies;
  for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    if (tensor.role == TensorRole::workspace && tensor.block == home) copies.push_back(TensorId(i));
  }
  return copies;
}

Bytes RoutineBuilder::size_of(const std::vector<TensorId>& list) const {
  Bytes total;
  for (TensorId id : list) total += aligned(bytes_of(graph_.at(id)));
  return total;
}

std::optional<Bytes> RoutineBuilder::offset_in(const std::vector<TensorId>& list,
                                               TensorId global) const {
  Bytes offset;
  for (TensorId id : list) {
    if (id == global) return offset;
    offset += aligned(bytes_of(graph_.at(id)));
  }
  return std::nullopt;
}

Bytes RoutineBuilder::slot_bytes(SlotKind kind, TensorId global) const {
  if (kind == SlotKind::scalars) return kScalars * bytes_of(DType::f32);
  if (one_tensor_) return bytes_of(routine_.tensors[local_.at(global).index()]);
  if (scattered_ && (kind == SlotKind::parameters || kind == SlotKind::gradients)) {
    return bytes_of(graph_.at(global));
  }
  const std::int64_t all = bundle_ == nullptr ? 0 : bundle_->bundle_elements;
  const std::int64_t gathered = bundle_ == nullptr ? 0 : bundle_->gathered_elements;
  const Bytes element = bytes_of(graph_.at(global).dtype);
  if (kind == SlotKind::gradients) return all * element;
  if (kind == SlotKind::parameters) return gathered * element;
  if (kind == SlotKind::frozen_parameters) {
    const FrozenEntry& last = bundle_->frozen.back();
    return last.offset + bytes_of(graph_.at(last.parameter));
  }
  if (kind == SlotKind::resident_parameters) return (all - gathered) * element;
  if (kind == SlotKind::weight_copies) return size_of(weight_copies());
  if (const std::vector<TensorId>* list = crossing_.of(kind)) return size_of(*list);
  return bytes_of(graph_.at(global));
}

void RoutineBuilder::find_slots() {
  using Key = std::pair<SlotKind, std::optional<std::size_t>>;
  std::map<Key, Bytes> kinds;  // in order of SlotKind
  std::vector<std::optional<CrossingPlace>> crossing_places(routine_.tensors.size());
  for (std::size_t i = 0; i < routine_.tensors.size(); ++i) {
    const auto found = crossing_place(global_[i]);
    if (!found) continue;
    const auto other = crossing_.lies_as.find(global_[i]);
    const TensorId placed = other == crossing_.lies_as.end() ? global_[i] : other->second;
    kinds.emplace(Key{found->kind, found->entry}, slot_bytes(found->kind, placed));
    auto& shared = crossing_places[storage_[i]];
    INVARIANT(!shared || *shared == *found,
              routine_.tensors[i].name + " would have to be in two places");
    shared = found;
  }
  for (const auto& [key, bytes] : kinds) routine_.slots.push_back({key.first, bytes, key.second});
  in_frame_.resize(routine_.tensors.size());
  for (std::size_t i = 0; i < routine_.tensors.size(); ++i) {
    const auto& shared = crossing_places[storage_[i]];
    in_frame_[i] = !shared;
    if (!shared) continue;
    routine_.places[i].offset = shared->offset;
    const auto slot = kinds.find({shared->kind, shared->entry});
    routine_.places[i].slot = std::size_t(std::distance(kinds.begin(), slot));
  }
}

bool RoutineBuilder::is_fresh(const Op& op,
                              const std::vector<std::optional<std::size_t>>& producer) const {
  const std::size_t output = op.outputs[0].index();
  return in_frame_[output] && !producer[storage_[output]];
}

/// An op waits for the producers of its inputs that run on other streams, unless an earlier op of
/// its own stream did already. A communication into memory of its own, or of the frame where
/// nothing is yet, also waits for the computation issued before it, which may have used that
/// memory.
void RoutineBuilder::add_waits() {
  std::vector<std::optional<std::size_t>> producer(routine_.tensors.size());
  std::array<std::array<std::int64_t, kStreams>, kStreams> waited;
  for (auto& of_stream : waited) of_stream.fill(-1);
  std::int64_t last_compute = -1;
  for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
    Op& op = routine_.ops[i];
    auto& seen = waited[std::size_t(op.stream)];
    std::array<std::int64_t, kStreams> latest;
    latest.fill(-1);
    for (TensorId id : op.inputs) {
      const auto& from = producer[storage_[id.index()]];
      if (!from || routine_.ops[*from].stream == op.stream) continue;
      auto& last = latest[std::size_t(routine_.ops[*from].stream)];
      last = std::max(last, std::int64_t(*from));
    }
    if (op.stream == Stream::compute) {
      last_compute = std::int64_t(i);
    } else if (!in_place(op, routine_.tensors) || is_fresh(op, producer)) {
      latest[std::size_t(Stream::compute)] = last_compute;
    }
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      if (latest[stream] <= seen[stream]) continue;
      seen[stream] = latest[stream];
      op.waits.push_back(std::uint32_t(latest[stream]));
    }
    for (TensorId id : op.outputs) producer[storage_[id.index()]] = i;
  }
}

/// Returns the index of the last op at which op `i`'s use of memory is known to be over. On
/// another stream than compute this is where an op waits for it.
std::size_t RoutineBuilder::over_at(std::size_t i) const {
  if (routine_.ops[i].stream == Stream::compute) return i;
  for (std::size_t later = i + 1; later < routine_.ops.size(); ++later) {
    for (std::uint32_t wait : routine_.ops[later].waits) {
      if (wait >= i && routine_.ops[wait].stream == routine_.ops[i].stream) return later;
    }
  }
  return routine_.ops.size() - 1;
}

void RoutineBuilder::place_frame() {
  std::map<std::size_t, Lifetime> lives;  // by storage
  for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
    const Op& op = routine_.ops[i];
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (TensorId id : *ids) {
        if (!in_frame_[id.index()]) continue;
        const auto [found, fresh] = lives.try_emplace(storage_[id.index()]);
        Lifetime& life = found->second;
        if (fresh) life.first = i;
        life.last = std::max(life.last, over_at(i));
        life.size = std::max(life.size, aligned(bytes_of(routine_.tensors[id.index()])));
      }
    }
  }
  std::vector<Lifetime> list;
  for (const auto& [storage, life] : lives) list.push_back(life);
  routine_.frame_bytes = place_lifetimes(list);
  std::size_t next = 0;
  for (auto& [storage, life] : lives) life.offset = list[next++].offset;
  for (std::size_t i = 0; i < routine_.tensors.size(); ++i) {
    if (in_frame_[i]) routine_.places[i].offset = lives.at(storage_[i]).offset;
  }
}

bool RoutineBuilder::is_read_outside(std::size_t tensor) const {
  const TensorId global = global_[tensor];
  if (crossing_.awaited.contains(global)) return true;
  if (crossing_.lies_as.contains(global) || graph_.at(global).arena) return false;
  const auto found = crossing_place(global);
  return found && (found->kind == SlotKind::gradients || found->kind == SlotKind::tied_gradients ||
                   found->kind == SlotKind::output || found->kind == SlotKind::input_gradient);
}

/// One port per tensor that something outside may read: the last op that writes it.
void RoutineBuilder::add_ports() {
  for (std::size_t i = 0; i < routine_.tensors.size(); ++i) {
    if (!is_read_outside(i)) continue;
    std::optional<std::size_t> last;
    for (std::size_t op = 0; op < routine_.ops.size(); ++op) {
      for (TensorId id : routine_.ops[op].outputs) {
        if (id.index() == i) last = op;
      }
    }
    if (last) routine_.ports.push_back({TensorId(i), std::uint32_t(*last)});
  }
}

}  // namespace plimsoll
