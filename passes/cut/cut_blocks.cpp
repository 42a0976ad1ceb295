// Blocks of a Graph are cut into routines with slots, frames and bundles.
#include "passes/cut/cut_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/cut/place_lifetimes.h"
#include "passes/cut/program_builder.h"
#include "passes/cut/split_backward.h"
#include "passes/cut/update_runs.h"

namespace plimsoll {

namespace {

Bytes aligned(Bytes size) { return round_up(size, kBlockAlignment); }

/// A Crossing has the tensors that one routine of a block leaves for another, beside its borders.
/// The tensors of each list lie one after another in its slot, so that all routines agree.
struct Crossing {
  std::vector<TensorId> saved, saved_for_weights, deferred;

  const std::vector<TensorId>* of(SlotKind kind) const {
    if (kind == SlotKind::saved) return &saved;
    if (kind == SlotKind::saved_for_weights) return &saved_for_weights;
    return kind == SlotKind::deferred ? &deferred : nullptr;
  }
};

/// Builds one routine: local tensors, storage shared by in-place ops, slots, waits, ports, frame.
class RoutineBuilder {
 public:
  RoutineBuilder(const Graph& graph, const CutBlock* bundle, std::optional<BlockId> block,
                 Crossing crossing = {}, bool scattered = false)
      : graph_(graph),
        bundle_(bundle),
        block_(block),
        crossing_(std::move(crossing)),
        scattered_(scattered) {}
  /// A routine of once-per-step ops on one tensor: each operand is a slot of its own.
  static RoutineBuilder of_one_tensor(const Graph& graph) {
    RoutineBuilder builder(graph, nullptr, {});
    builder.one_tensor_ = true;
    return builder;
  }

  Routine build(std::string name, Phase phase, const std::vector<Op>& ops) {
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

 private:
  TensorId local(TensorId global) {
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

  void add_op(Op op) {
    op.block.reset();
    for (TensorId& id : op.inputs) id = local(id);
    for (TensorId& id : op.outputs) id = local(id);
    routine_.ops.push_back(std::move(op));
  }

  /// Sets storage_[i] to the tensor whose place tensor i shares.
  void share_storage() {
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

  struct CrossingPlace {
    SlotKind kind;
    Bytes offset;
    std::optional<std::size_t> entry{};  ///< of the bundle, where its tensors are scattered
    bool operator==(const CrossingPlace&) const = default;
  };

  /// Returns the slot of a tensor, and nothing for a frame temporary.
  std::optional<CrossingPlace> crossing_place(TensorId global) const {
    const Tensor& tensor = graph_.at(global);
    if (tensor.role == TensorRole::scalar && tensor.block)
      return CrossingPlace{is_counted(global) ? SlotKind::expert_load : SlotKind::selection_bias,
                           {}};
    if (tensor.role == TensorRole::scalar) {
      return CrossingPlace{SlotKind::scalars, tensor.element.value_or(0) * bytes_of(tensor.dtype)};
    }
    if (tensor.arena || is_state(tensor)) return CrossingPlace{arena_slot(global), {}};
    if (tensor.role == TensorRole::workspace)
      return CrossingPlace{SlotKind::weight_copies, *offset_in(weight_copies(), global)};
    if (one_tensor_ && tensor.role == TensorRole::parameter)
      return CrossingPlace{SlotKind::parameters, {}};
    if (one_tensor_ && tensor.gradient_of) return CrossingPlace{SlotKind::gradients, {}};
    const bool gradient = tensor.gradient_of.has_value();
    if (tensor.role == TensorRole::parameter || gradient) {
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
    if (!block_) return std::nullopt;
    const Block& block = graph_.at(*block_);
    if (block.input == global) return CrossingPlace{SlotKind::input, {}};
    if (block.output == global) return CrossingPlace{SlotKind::output, {}};
    if (block.input_gradient == global) return CrossingPlace{SlotKind::input_gradient, {}};
    if (block.output_gradient == global) return CrossingPlace{SlotKind::output_gradient, {}};
    for (SlotKind kind : {SlotKind::saved, SlotKind::saved_for_weights, SlotKind::deferred}) {
      if (const auto offset = offset_in(*crossing_.of(kind), global))
        return CrossingPlace{kind, *offset};
    }
    return std::nullopt;
  }

  SlotKind arena_slot(TensorId global) const {
    const Tensor& tensor = graph_.at(global);
    if (tensor.role == TensorRole::parameter) return SlotKind::parameter_arena;
    if (tensor.role == TensorRole::master_parameter) return SlotKind::master_parameter_arena;
    if (tensor.role == TensorRole::gradient) return SlotKind::gradient_arena;
    if (tensor.role == TensorRole::activation) return list_slot(global);
    const auto second = [&](const Op& op) {
      const bool two = op.kind == OpKind::adamw || op.kind == OpKind::lamb_norms;
      return two && op.inputs[3] == global;
    };
    const bool found = std::any_of(graph_.ops.begin(), graph_.ops.end(), second);
    return found ? SlotKind::second_moment_arena : SlotKind::first_moment_arena;
  }

  bool is_counted(TensorId global) const {
    return std::ranges::any_of(graph_.ops, [&](const Op& op) {
      return op.kind == OpKind::count_choices && op.outputs[0] == global;
    });
  }

  /// Returns the slot of an arena that exists during the update only, by the op that writes it.
  SlotKind list_slot(TensorId global) const {
    for (const Op& op : graph_.ops) {
      if (std::find(op.outputs.begin(), op.outputs.end(), global) == op.outputs.end()) continue;
      if (op.kind == OpKind::cast) return SlotKind::main_gradients;
      if (op.kind == OpKind::square) return SlotKind::squares;
      if (op.kind == OpKind::scale) return SlotKind::scaled_gradients;
      if (op.kind == OpKind::lamb_norms) return SlotKind::tensor_norms;
    }
    return SlotKind::squared_norms;
  }

  /// Returns whether a tensor is state of the optimizer for one tensor.
  static bool is_state(const Tensor& tensor) {
    return tensor.role == TensorRole::optimizer_state ||
           tensor.role == TensorRole::master_parameter;
  }

  std::size_t bundle_entry(TensorId parameter) const {
    for (std::size_t i = 0; i < bundle_->bundle.size(); ++i) {
      if (bundle_->bundle[i].parameter == parameter) return i;
    }
    INVARIANT(false, graph_.at(parameter).name + " is not in its block's bundle");
  }

  /// Tensors that last for a step beside the parameters of the block, in order.
  std::vector<TensorId> weight_copies() const {
    const BlockId home = graph_.at(*block_).variant_of.value_or(*block_);
    std::vector<TensorId> copies;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& tensor = graph_.tensors[i];
      if (tensor.role == TensorRole::workspace && tensor.block == home)
        copies.push_back(TensorId(i));
    }
    return copies;
  }

  Bytes size_of(const std::vector<TensorId>& list) const {
    Bytes total;
    for (TensorId id : list) total += aligned(bytes_of(graph_.at(id)));
    return total;
  }

  std::optional<Bytes> offset_in(const std::vector<TensorId>& list, TensorId global) const {
    Bytes offset;
    for (TensorId id : list) {
      if (id == global) return offset;
      offset += aligned(bytes_of(graph_.at(id)));
    }
    return std::nullopt;
  }

  Bytes slot_bytes(SlotKind kind, TensorId global) const {
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
    if (kind == SlotKind::resident_parameters) return (all - gathered) * element;
    if (kind == SlotKind::weight_copies) return size_of(weight_copies());
    if (const std::vector<TensorId>* list = crossing_.of(kind)) return size_of(*list);
    return bytes_of(graph_.at(global));
  }

  void find_slots() {
    using Key = std::pair<SlotKind, std::optional<std::size_t>>;
    std::map<Key, Bytes> kinds;  // in order of SlotKind
    std::vector<std::optional<CrossingPlace>> crossing_places(routine_.tensors.size());
    for (std::size_t i = 0; i < routine_.tensors.size(); ++i) {
      const auto found = crossing_place(global_[i]);
      if (!found) continue;
      kinds.emplace(Key{found->kind, found->entry}, slot_bytes(found->kind, global_[i]));
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

  bool is_fresh(const Op& op, const std::vector<std::optional<std::size_t>>& producer) const {
    const std::size_t output = op.outputs[0].index();
    return in_frame_[output] && !producer[storage_[output]];
  }

  /// An op waits for the producers of its inputs that run on other streams, unless an earlier op of
  /// its own stream did already. A communication into memory of its own, or of the frame where
  /// nothing is yet, also waits for the computation issued before it, which may have used that
  /// memory.
  void add_waits() {
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
  std::size_t over_at(std::size_t i) const {
    if (routine_.ops[i].stream == Stream::compute) return i;
    for (std::size_t later = i + 1; later < routine_.ops.size(); ++later) {
      for (std::uint32_t wait : routine_.ops[later].waits) {
        if (wait >= i && routine_.ops[wait].stream == routine_.ops[i].stream) return later;
      }
    }
    return routine_.ops.size() - 1;
  }

  void place_frame() {
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

  /// One port per tensor that something outside may read: the last op that writes it.
  void add_ports() {
    for (std::size_t i = 0; i < routine_.tensors.size(); ++i) {
      const auto found = crossing_place(global_[i]);
      if (!found || graph_.at(global_[i]).arena) continue;
      const SlotKind kind = found->kind;
      if (kind != SlotKind::gradients && kind != SlotKind::tied_gradients &&
          kind != SlotKind::output && kind != SlotKind::input_gradient) {
        continue;
      }
      std::optional<std::size_t> last;
      for (std::size_t op = 0; op < routine_.ops.size(); ++op) {
        for (TensorId id : routine_.ops[op].outputs) {
          if (id.index() == i) last = op;
        }
      }
      if (last) routine_.ports.push_back({TensorId(i), std::uint32_t(*last)});
    }
  }

  const Graph& graph_;
  const CutBlock* bundle_;
  std::optional<BlockId> block_;
  const Crossing crossing_;
  bool one_tensor_ = false;
  bool scattered_ = false;
  Routine routine_;
  std::map<TensorId, TensorId> local_;
  std::vector<TensorId> global_;      // by local index
  std::vector<std::size_t> storage_;  // by local index
  std::vector<bool> in_frame_;        // by local index
};

/// Lays out the bundle. Parameters that stay whole in stage 3 come last. Within either kind those
/// of experts with a grid of their own come behind the others. Within each of these, parameters
/// with partial gradients come last, by group, so that gradients that are summed together lie
/// together.
void lay_out_bundle(const Graph& graph, BlockId block, std::int64_t alignment,
                    const ResidentParameters& resident, CutBlock& cut) {
  using Kind = std::tuple<bool, bool, std::optional<Group>>;
  std::map<Kind, std::vector<TensorId>> by_group;
  for (std::size_t i = graph.tensors.size(); i-- > 0;) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.role != TensorRole::parameter || tensor.arena || tensor.tied_to ||
        tensor.block != block)
      continue;
    const bool stays = resident.has(tensor);
    by_group[{stays, is_of_experts(tensor), tensor.gradient_group}].push_back(TensorId(i));
  }
  for (const auto& [key, parameters] : by_group) {
    for (TensorId id : parameters) {
      const std::int64_t count = elements(graph.at(id).shape);
      cut.bundle.push_back({id, cut.bundle_elements, count});
      cut.bundle_elements += padded(count, alignment);
    }
    if (!std::get<0>(key)) cut.gathered_elements = cut.bundle_elements;
  }
}

/// Sorts saved tensors by the routine that reads them last, and finds those that the first part of
/// backward leaves for the second.
Crossing crossing_of(const Graph& graph, BlockId block, const BackwardParts& backward) {
  std::set<TensorId> late, written;
  for (const Op& op : backward.weight) late.insert(op.inputs.begin(), op.inputs.end());
  for (const Op& op : backward.input) written.insert(op.outputs.begin(), op.outputs.end());
  Crossing crossing;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorId id(i);
    const Tensor& tensor = graph.at(id);
    if (tensor.role == TensorRole::saved && tensor.block == block) {
      (late.contains(id) ? crossing.saved_for_weights : crossing.saved).push_back(id);
    } else if (late.contains(id) && written.contains(id) && !tensor.gradient_of) {
      crossing.deferred.push_back(id);
    }
  }
  return crossing;
}

}  // namespace

CutBlock cut_block(const Graph& graph, BlockId block, std::int64_t alignment,
                   BackwardCut backward_cut, const ResidentParameters& resident, bool scattered,
                   const std::function<std::vector<Op>(std::vector<Op>)>& rewrite) {
  CutBlock target;
  const BlockId home = graph.at(block).variant_of.value_or(block);
  lay_out_bundle(graph, home, alignment, resident, target);
  std::vector<Op> forward, copies;
  BackwardParts backward;
  for (const Op& op : graph.ops) {
    if (op.block != block || op.phase == Phase::optimizer) continue;
    if (op.phase != Phase::forward) {
      backward.input.push_back(op);
    } else {
      (runs_once_per_step(graph, op) ? copies : forward).push_back(op);
    }
  }
  if (backward_cut == BackwardCut::split) backward = split_backward(graph, block, backward.input);
  Crossing crossing = crossing_of(graph, block, backward);
  if (rewrite) {
    std::set<TensorId> named;
    for (std::vector<Op>* ops : {&forward, &backward.input, &backward.weight}) {
      *ops = rewrite(std::move(*ops));
      for (const Op& op : *ops) {
        named.insert(op.inputs.begin(), op.inputs.end());
        named.insert(op.outputs.begin(), op.outputs.end());
      }
    }
    for (auto* list : {&crossing.saved, &crossing.saved_for_weights, &crossing.deferred}) {
      std::erase_if(*list, [&](TensorId id) { return !named.contains(id); });
    }
  }
  const auto build = [&](const char* role, Phase phase, const std::vector<Op>& ops) {
    return RoutineBuilder(graph, &target, block, crossing, scattered)
        .build(graph.at(block).name + role, phase, ops);
  };
  if (!copies.empty()) target.weight_copies = build(".weight_copies", Phase::forward, copies);
  target.forward = build(".forward", Phase::forward, forward);
  target.backward = build(".backward", Phase::backward, backward.input);
  if (backward.weight.empty()) return target;
  target.weight_gradient = build(".weight_gradient", Phase::backward_weight, backward.weight);
  return target;
}

CutGraph cut_blocks(const Graph& graph, std::int64_t alignment, BackwardCut backward_cut,
                    const ResidentParameters& resident, bool scattered) {
  CutGraph cut;
  scattered = scattered || mixes_types(graph);
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    cut.blocks.push_back(
        cut_block(graph, BlockId(b), alignment, backward_cut, resident, scattered));
  }
  std::vector<Op> begin;
  for (const Op& op : graph.ops) {
    if (!op.block && begins_step(graph, op)) begin.push_back(op);
  }
  cut.begin_step = RoutineBuilder(graph, nullptr, {}).build("begin_step", Phase::optimizer, begin);
  for (const UpdateRun& run : update_runs(graph)) {
    UpdatePart& part = cut.update.emplace_back();
    if (!run.whole.empty()) {
      const std::size_t index = cut.update.size() - 1;
      const std::string name = index == 0 ? "optimizer" : fmt::format("optimizer{}", index);
      part.routine = RoutineBuilder(graph, nullptr, {}).build(name, Phase::optimizer, run.whole);
    }
    for (const auto& [parameter, ops] : run.of_tensors) {
      const std::string name =
          fmt::format("{}.{}", to_text(ops.back().kind), graph.at(parameter).name);
      part.each.push_back(
          {parameter, RoutineBuilder::of_one_tensor(graph).build(name, Phase::optimizer, ops)});
    }
  }
  return cut;
}

}  // namespace plimsoll
