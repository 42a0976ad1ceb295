// Reads a routine once, and adds the copies that a framework makes beside its tensors.
#include "simulator/memory/routine_events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "graph/op_table.h"
#include "models/framework/op_by_op.h"

namespace plimsoll {
namespace {

/// Returns, by tensor, the first tensor that shares its memory: ops that work in place share it.
std::vector<std::size_t> storage_of(const Routine& routine, const Framework& framework) {
  std::vector<std::size_t> storage(routine.tensors.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (const Op& op : routine.ops) {
    const bool loss = op.kind == OpKind::cross_entropy_backward &&
                      (framework.memory.loss == LossMemory::in_place ||
                       framework.memory.loss == LossMemory::fused);
    const std::optional<std::size_t> reused =
        loss ? std::optional<std::size_t>(0) : in_place(op, routine.tensors);
    if (!reused) continue;
    const std::size_t from = storage[op.inputs[*reused].index()];
    std::replace(storage.begin(), storage.end(), storage[op.outputs[0].index()], from);
  }
  return storage;
}

/// Returns the casts between the logits, or their gradient, and the f32 tensor of the loss.
std::vector<const Op*> loss_casts(const Routine& routine) {
  std::vector<const Op*> casts;
  for (const Op& op : routine.ops) {
    if (op.kind != OpKind::cast) continue;
    const bool of_loss = std::ranges::any_of(routine.ops, [&](const Op& loss) {
      if (loss.kind == OpKind::logits_sum_exp) return loss.inputs[0] == op.outputs[0];
      return loss.kind == OpKind::cross_entropy_backward && loss.outputs[0] == op.inputs[0];
    });
    if (of_loss) casts.push_back(&op);
  }
  return casts;
}

class RoutineReader {
 public:
  RoutineReader(const Routine& routine, const Framework& framework, TensorNames& names)
      : routine_(routine),
        framework_(framework),
        names_(names),
        storage_(storage_of(routine, framework)) {
    for (const Tensor& tensor : routine.tensors) bytes_.push_back(bytes_of(tensor));
    const bool in_parts = framework.memory.loss == LossMemory::own_type_in_parts;
    if (framework.memory.loss == LossMemory::own_type || in_parts) join_loss_casts();
    if (in_parts) divide_loss_gradients();
    if (framework.memory.loss == LossMemory::gathered_by_op) gather_loss();
    if (framework.memory.copies.split_inputs) copy_split_inputs();
  }

  RoutineEvents read() {
    const std::size_t none = routine_.ops.size();
    std::vector<std::size_t> first(storage_.size(), none), last(storage_.size(), none);
    for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
      for (TensorId id : routine_.ops[i].inputs) last[storage_[id.index()]] = i;
      for (TensorId id : routine_.ops[i].outputs) {
        const std::size_t place = storage_[id.index()];
        if (first[place] == none) first[place] = i;
        last[place] = i;
      }
    }
    if (framework_.parallelism.overlap.tensor_gradients) hold_to_weight_gradients(last);
    std::vector<std::optional<std::uint32_t>> storage(storage_.size());
    for (std::size_t t = 0; t < storage_.size(); ++t) {
      if (storage_[t] != t || last[t] == none) continue;
      storage[t] = add_storage(t);
      if (first[t] == none) continue;
      result_.storages[*storage[t]].stream = stream_of(routine_.ops[first[t]]);
      result_.storages[*storage[t]].computed = computed_bytes(routine_.ops[first[t]], t);
    }
    for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
      for (std::size_t t = 0; t < storage_.size(); ++t) {
        if (storage[t] && first[t] == i) add(StorageEvent::Kind::write, *storage[t]);
      }
      add_rotary_copy(routine_.ops[i], last, storage);
      add_repeated_keys(routine_.ops[i], last, storage);
      add_operand_copies(routine_.ops[i], last, storage);
      add_scratch(routine_.ops[i]);
      for (std::size_t t = 0; t < storage_.size(); ++t) {
        if (storage[t] && last[t] == i) add(StorageEvent::Kind::last_use, *storage[t]);
      }
      for (const auto& [op, made] : copies_) {
        if (op == i) add(StorageEvent::Kind::last_use, made);
      }
    }
    return std::move(result_);
  }

 private:
  /// Makes the f32 tensor of the loss share the memory, and the size, of the narrow tensor.
  void join_loss_casts() {
    for (const Op* cast : loss_casts(routine_)) {
      const std::size_t from = cast->inputs[0].index(), to = cast->outputs[0].index();
      const bool widens = routine_.tensors[to].dtype == DType::f32;
      const std::size_t wide = widens ? to : from, narrow = widens ? from : to;
      bytes_[wide] = bytes_[narrow];
      std::ranges::replace(storage_, storage_[narrow], storage_[wide]);
    }
  }

  void divide_loss_gradients() {
    for (const Op& op : routine_.ops) {
      if (op.kind != OpKind::cross_entropy_backward) continue;
      const std::size_t gradient = storage_[op.outputs[0].index()];
      for (std::size_t t = 0; t < storage_.size(); ++t)
        if (storage_[t] == gradient) bytes_[t] = Bytes(bytes_[t].count() / kLossParts);
    }
  }

  /// Makes the f32 tensors of the loss as large as the logits of the whole vocabulary.
  void gather_loss() {
    for (const Op& op : routine_.ops) {
      const bool forward = op.kind == OpKind::logits_sum_exp;
      if (!forward && op.kind != OpKind::cross_entropy_backward) continue;
      Bytes& wide = bytes_[(forward ? op.inputs[0] : op.outputs[0]).index()];
      wide = wide * std::get<VocabularyParams>(op.params).split_degree;
    }
  }

  /// Makes the input of layers that mp splits by columns as large as the copies that they keep. The
  /// second dimension of a product has a layer's matrices: x [n,3,a,d], or [n,2,h] of gate and up.
  void copy_split_inputs() {
    std::map<std::size_t, std::size_t> copies;
    const bool splits = std::ranges::any_of(routine_.ops, [](const Op& op) {
      return communicates(op.kind) && op.stream == Stream::mp;
    });
    for (const Op& op : routine_.ops) {
      const bool ahead = op.phase == Phase::forward || op.phase == Phase::recompute;
      if (!splits || !ahead || op.kind != OpKind::matmul || matmul_params(op).batch_dims > 0)
        continue;
      const Shape& shape = routine_.tensors[op.outputs[0].index()].shape;
      if (shape.size() > 2) copies[op.inputs[0].index()] += std::size_t(shape[1]);
    }
    for (const auto& [tensor, count] : copies)
      bytes_[tensor] = bytes_[tensor] * std::int64_t(count);
  }

  /// Extends lifetimes where a layer's weight gradient is computed while the input's gradient is
  /// summed over mp. One function does both, and its tensors live to its end: the part of the input
  /// that it gathers again, and the gradient that it sums.
  void hold_to_weight_gradients(std::vector<std::size_t>& last) const {
    const auto hold = [&](TensorId id, std::size_t op) {
      std::size_t& use = last[storage_[id.index()]];
      if (use != routine_.ops.size()) use = std::max(use, op);
    };
    for (std::size_t i = 1; i < routine_.ops.size(); ++i) {
      const Op& product = routine_.ops[i];
      if (product.kind != OpKind::matmul || product.phase != Phase::backward ||
          routine_.tensors[product.outputs[0].index()].role != TensorRole::gradient)
        continue;
      if (sums_over_mp(routine_.ops[i - 1])) hold(routine_.ops[i - 1].inputs[0], i);
      for (std::size_t gather = 0; gather < i; ++gather) {
        const Op& op = routine_.ops[gather];
        if (op.kind == OpKind::all_gather && op.stream == Stream::mp &&
            op.outputs[0] == product.inputs.back())
          hold(op.inputs[0], i);
      }
    }
  }

  static bool sums_over_mp(const Op& op) {
    return op.stream == Stream::mp && op.phase == Phase::backward &&
           (op.kind == OpKind::all_reduce || op.kind == OpKind::reduce_scatter);
  }

  void add(StorageEvent::Kind kind, std::uint32_t storage) {
    result_.events.push_back({kind, storage});
  }

  std::uint32_t add_storage(std::size_t tensor) {
    TensorStorage storage;
    storage.slot = routine_.places[tensor].slot;
    storage.offset = routine_.places[tensor].offset;
    for (std::size_t t = 0; t < storage_.size(); ++t) {
      if (storage_[t] == tensor) storage.bytes = std::max(storage.bytes, bytes_[t]);
    }
    storage.name = names_.of(routine_.tensors[tensor].name);
    storage.role = routine_.tensors[tensor].role;
    return push(storage);
  }

  std::uint32_t push(const TensorStorage& storage) {
    result_.storages.push_back(storage);
    return std::uint32_t(result_.storages.size() - 1);
  }

  /// Returns the stream whose memory an op's output takes. Collectives over ranks that read
  /// different sequences have a stream of their own; all other ops use that of computation.
  static std::uint32_t stream_of(const Op& op) {
    return communicates(op.kind) && op.stream == Stream::data ? 1 : 0;
  }

  /// Returns the bytes of a gradient as backward computes it, before it is added to another.
  Bytes computed_bytes(const Op& op, std::size_t tensor) const {
    const Tensor& gradient = routine_.tensors[tensor];
    if (gradient.role != TensorRole::gradient || communicates(op.kind)) return Bytes();
    return elements(gradient.shape) * bytes_of(compute_dtype(op, routine_.tensors));
  }

  /// Returns whether an RMS norm wrote the value.
  bool is_normed(TensorId id) const {
    return std::any_of(routine_.ops.begin(), routine_.ops.end(), [&](const Op& op) {
      return op.kind == OpKind::rms_norm && op.outputs[0] == id;
    });
  }

  /// Adds the output of a rotary embedding, which lives as long as the op's input. The value of a
  /// norm is not kept beside its turned one: backward reads what the norm read.
  void add_rotary_copy(const Op& op, const std::vector<std::size_t>& last,
                       const std::vector<std::optional<std::uint32_t>>& storages) {
    if (op.kind != OpKind::rotary || !framework_.memory.copies.rotary) return;
    if (is_normed(op.inputs[0])) return;
    const std::size_t place = storage_[op.inputs[0].index()];
    const Tensor& product = routine_.tensors[place];
    TensorStorage copy = result_.storages[*storages[place]];
    const auto& params = std::get<RotaryParams>(op.params);
    const std::int64_t parts = std::max<std::int64_t>(params.rotated, params.growth.span > 0);
    copy.bytes = Bytes(bytes_of(product).count() / product.shape[1] * parts);
    copy.is_copy = true;
    copy.name = names_.of(product.name + ".turned");
    const std::uint32_t made = push(copy);
    add(StorageEvent::Kind::write, made);
    copies_.emplace_back(last[place], made);
  }

  /// Adds keys and values that are repeated for each query head, instead of those of each group.
  void add_repeated_keys(const Op& op, const std::vector<std::size_t>& last,
                         const std::vector<std::optional<std::uint32_t>>& storages) {
    if (!framework_.kernels.attention.repeats_keys || op.kind != OpKind::flash_attention ||
        op.inputs.size() != 2)
      return;
    const Shape& queries = routine_.tensors[op.inputs[0].index()].shape;
    const Shape& keys = routine_.tensors[op.inputs[1].index()].shape;
    const std::int64_t more = queries[2] / keys[2] - 1;
    const std::size_t place = storage_[op.inputs[1].index()];
    if (more == 0 || !storages[place]) return;
    TensorStorage copy = result_.storages[*storages[place]];
    copy.bytes = copy.bytes * more;
    copy.is_copy = true;
    copy.name = names_.of(routine_.tensors[place].name + ".repeated");
    const std::uint32_t made = push(copy);
    add(StorageEvent::Kind::write, made);
    copies_.emplace_back(last[place], made);
  }

  /// Some frameworks run a formula op by op, and keep more tensors than one kernel does. Returns
  /// the size of these tensors in halves of the tensor that the kernel keeps. GELU keeps half of x,
  /// erf's operand and 1 + erf instead of x (4). GeGLU does so with the half of x that is the gate,
  /// and keeps GELU's value (3). SwiGLU keeps SiLU's value in addition to both halves of x (1). A
  /// layer norm keeps x - mean, twice, and the quotient, in f32 (12). An RMS norm keeps x in f32
  /// instead of 16 bits, and the quotient in 16 bits (4; rms_norm before PyTorch 2.8, ATen
  /// native/layer_norm.cpp). A softmax keeps its values, and those after dropout, in f32 instead of
  /// 16 bits (6).
  static int halves_kept(OpKind kind) {
    switch (kind) {
      case OpKind::gelu:
        return 4;
      case OpKind::geglu:
        return 3;
      case OpKind::swiglu:
        return 1;
      case OpKind::layer_norm:
        return 12;
      case OpKind::rms_norm:
        return 4;
      case OpKind::softmax:
        return 6;
      default:
        return 0;
    }
  }

  void add_operand_copies(const Op& op, const std::vector<std::size_t>& last,
                          const std::vector<std::optional<std::uint32_t>>& storages) {
    const int halves = halves_kept(op.kind);
    if (halves == 0 || !runs_by_op(framework_, op.kind)) return;
    const bool of_input =
        op.kind == OpKind::gelu || op.kind == OpKind::geglu || op.kind == OpKind::swiglu;
    const std::size_t place = storage_[(of_input ? op.inputs[0] : op.outputs[0]).index()];
    if (!storages[place]) return;
    TensorStorage copy = result_.storages[*storages[place]];
    copy.bytes = Bytes(copy.bytes.count() * halves / 2);
    copy.is_copy = true;
    copy.name = names_.of(routine_.tensors[place].name + ".operands");
    const std::uint32_t made = push(copy);
    add(StorageEvent::Kind::write, made);
    copies_.emplace_back(last[place], made);
  }

  /// Returns the type of the logits that the model computes. The loss reads them in f32.
  DType logits_type(const Op& op) const {
    for (const Op* cast : loss_casts(routine_)) {
      if (cast->outputs[0] == op.inputs[0]) return routine_.tensors[cast->inputs[0].index()].dtype;
      if (cast->inputs[0] == op.outputs[0]) return routine_.tensors[cast->outputs[0].index()].dtype;
    }
    return DType::f32;
  }

  /// A tensor of the loss in addition to those of the Program.
  struct LossCopy {
    Bytes bytes;
    bool output = false;  ///< the logits as the model computed them, in the model's type
    /// The stage's other buffer keeps the tensor: logits of the micro-batch before.
    bool of_last = false;
    /// The next tensor takes the place of this one in its buffer.
    bool replaced = false;
  };

  /// Returns the copies of the logits, in the order in which the loss makes them.
  std::vector<LossCopy> loss_copies(const Op& op) const {
    const std::int64_t degree = std::get<VocabularyParams>(op.params).split_degree;
    const std::int64_t part = elements(routine_.tensors[op.inputs[0].index()].shape);
    const bool forward = op.kind == OpKind::logits_sum_exp;
    const auto of = [](std::int64_t count, DType type) { return count * bytes_of(type); };
    switch (framework_.memory.loss) {
      case LossMemory::fused:
        if (forward) return {{of(part, DType::f32)}};
        return {};
      case LossMemory::by_op: {
        std::vector<LossCopy> copies(degree > 1 ? 2 : 1, {of(part, DType::f32)});
        if (forward) copies.insert(copies.begin(), {of(part, logits_type(op)), true});
        return copies;
      }
      case LossMemory::gathered_by_op: {
        const Bytes narrow = of(part * degree, logits_type(op)),
                    wide = of(part * degree, DType::f32);
        if (!forward) return {{wide}, {narrow}};
        std::vector<LossCopy> copies = {
            {narrow, false, true}, {narrow, false, false, true}, {narrow, true}, {wide}};
        // The ranks' parts are gathered one by one and then put side by side.
        if (degree > 1) copies.insert(copies.begin(), {narrow});
        return copies;
      }
      default:
        return {};
    }
  }

  /// Adds the copies of the logits that the loss has while it runs. With LossMemory::by_op forward
  /// frees them before backward begins, and gradients lie in the hole as far as they fit.
  void add_loss_copies(const Op& op) {
    const std::string& logits = routine_.tensors[op.inputs[0].index()].name;
    const bool forward = op.kind == OpKind::logits_sum_exp;
    std::vector<std::uint32_t> made, replaced;
    for (const LossCopy& copy : loss_copies(op)) {
      TensorStorage storage;
      storage.bytes = copy.bytes;
      storage.name = names_.of(logits + (forward ? ".copy" : ".gradient.of_softmax"));
      if (copy.of_last) storage.name = names_.of(logits + ".of_last");
      storage.output = copy.output || copy.of_last;
      storage.stays = copy.of_last;
      const std::uint32_t pushed = push(storage);
      add(StorageEvent::Kind::write, pushed);
      for (const std::uint32_t storage : std::exchange(replaced, {}))
        add(StorageEvent::Kind::last_use, storage);
      if (!copy.of_last) (copy.replaced ? replaced : made).push_back(pushed);
    }
    for (const std::uint32_t storage : made) add(StorageEvent::Kind::last_use, storage);
  }

  bool has_placeholders() const {
    return framework_.kernels.products.add_gradients &&
           framework_.memory.copies.gradient_placeholders;
  }

  /// Adds the memory that an op has while it runs.
  void add_scratch(const Op& op) {
    if (op.kind == OpKind::logits_sum_exp || op.kind == OpKind::cross_entropy_backward)
      add_loss_copies(op);
    if (framework_.kernels.products.add_gradients && !has_placeholders()) return;
    for (TensorId id : op.outputs) {
      const Tensor& gradient = routine_.tensors[id.index()];
      // Zeroed or added to in place: no new tensor.
      const bool in_place =
          op.inputs.empty() || std::find(op.inputs.begin(), op.inputs.end(), id) != op.inputs.end();
      if (gradient.role != TensorRole::gradient || op.phase == Phase::optimizer ||
          communicates(op.kind) || in_place)
        continue;
      add_new_gradient(op, gradient);
    }
  }

  /// Adds a new gradient, which exists beside the gradient that it is added to.
  void add_new_gradient(const Op& op, const Tensor& gradient) {
    // Products of 8-bit operands give 16 bits.
    const Bytes element = std::max(bytes_of(compute_dtype(op, routine_.tensors)), Bytes(2));
    TensorStorage storage;
    storage.bytes = elements(gradient.shape) * element;
    storage.stays = has_placeholders() && op.kind == OpKind::matmul && !gives_loss_gradient();
    storage.name = names_.of(storage.stays ? fmt::format("in_place_of_gradient.{}", gradient.shape)
                                           : gradient.name + ".new");
    const std::uint32_t made = push(storage);
    add(StorageEvent::Kind::write, made);
    if (!storage.stays) add(StorageEvent::Kind::last_use, made);
  }

  /// Whether this routine is backward of the block that has the loss.
  bool gives_loss_gradient() const {
    return std::ranges::any_of(
        routine_.ops, [](const Op& op) { return op.kind == OpKind::cross_entropy_backward; });
  }

  const Routine& routine_;
  const Framework& framework_;
  TensorNames& names_;
  std::vector<std::size_t> storage_;
  std::vector<Bytes> bytes_;                                   // by tensor
  std::vector<std::pair<std::size_t, std::uint32_t>> copies_;  // last op, storage
  RoutineEvents result_;
};

}  // namespace

RoutineEvents read_events(const Routine& routine, const Framework& framework, TensorNames& names) {
  return RoutineReader(routine, framework, names).read();
}

std::vector<RoutineEvents> events_of(const Program& program, const Framework& framework,
                                     TensorNames& names) {
  std::vector<RoutineEvents> events;
  for (std::size_t r = 0; r < program.routines.size(); ++r) {
    RoutineEvents read = read_events(program.routines[r], framework, names);
    const auto calls = std::ranges::count_if(
        program.calls, [&](const Call& call) { return call.routine.index() == r; });
    // A step of one micro-batch has no output of the micro-batch before.
    std::erase_if(read.events, [&](const StorageEvent& event) {
      const TensorStorage& storage = read.storages[event.storage];
      return calls < 2 && storage.stays && storage.output;
    });
    events.push_back(std::move(read));
  }
  return events;
}

}  // namespace plimsoll
