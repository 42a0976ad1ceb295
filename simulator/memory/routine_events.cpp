#include "simulator/memory/routine_events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// By tensor: the first one that lies in the same place, by ops that work in place.
std::vector<std::size_t> storage_of(const Routine& routine, const Framework& framework) {
  std::vector<std::size_t> storage(routine.tensors.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (const Op& op : routine.ops) {
    const bool loss = op.kind == OpKind::cross_entropy_backward &&
                      (framework.loss_memory == LossMemory::in_place ||
                       framework.loss_memory == LossMemory::fused);
    const std::optional<std::size_t> reused =
        loss ? std::optional<std::size_t>(0) : in_place(op, routine.tensors);
    if (!reused) continue;
    const std::size_t from = storage[op.inputs[*reused].index()];
    std::replace(storage.begin(), storage.end(), storage[op.outputs[0].index()], from);
  }
  return storage;
}

/// Casts between the logits or their gradient and what the loss reads or gives in f32.
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
  RoutineReader(const Routine& routine, const Framework& framework, Names& names)
      : routine_(routine),
        framework_(framework),
        names_(names),
        storage_(storage_of(routine, framework)) {
    for (const Tensor& tensor : routine.tensors) bytes_.push_back(bytes_of(tensor));
    if (framework.loss_memory == LossMemory::own_type) join_loss_casts();
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
    if (framework_.overlap_tensor_gradients) hold_to_weight_gradients(last);
    std::vector<std::optional<std::uint32_t>> piece(storage_.size());
    for (std::size_t t = 0; t < storage_.size(); ++t) {
      if (storage_[t] != t || last[t] == none) continue;
      piece[t] = add_piece(t);
      if (first[t] == none) continue;
      result_.pieces[*piece[t]].stream = stream_of(routine_.ops[first[t]]);
      result_.pieces[*piece[t]].computed = computed_bytes(routine_.ops[first[t]], t);
    }
    for (std::size_t i = 0; i < routine_.ops.size(); ++i) {
      for (std::size_t t = 0; t < storage_.size(); ++t) {
        if (piece[t] && first[t] == i) add(Event::Kind::write, *piece[t]);
      }
      add_rotary_copy(routine_.ops[i], last, piece);
      add_operand_copies(routine_.ops[i], last, piece);
      add_scratch(routine_.ops[i]);
      for (std::size_t t = 0; t < storage_.size(); ++t) {
        if (piece[t] && last[t] == i) add(Event::Kind::last_use, *piece[t]);
      }
      for (const auto& [op, made] : copies_) {
        if (op == i) add(Event::Kind::last_use, made);
      }
    }
    return std::move(result_);
  }

 private:
  /// The tensor that the loss reads and gives in f32 is the narrow tensor itself.
  void join_loss_casts() {
    for (const Op* cast : loss_casts(routine_)) {
      const std::size_t from = cast->inputs[0].index(), to = cast->outputs[0].index();
      const bool forward = cast->phase == Phase::forward;
      const std::size_t wide = forward ? to : from, narrow = forward ? from : to;
      bytes_[wide] = bytes_[narrow];
      std::ranges::replace(storage_, storage_[narrow], storage_[wide]);
    }
  }

  /// Where a layer's weight gradient is computed beside the sum of its input's over mp, one
  /// function does both, and what it was given and made lives to its end: the part of the input
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

  void add(Event::Kind kind, std::uint32_t piece) { result_.events.push_back({kind, piece}); }

  std::uint32_t add_piece(std::size_t tensor) {
    Piece piece;
    piece.slot = routine_.places[tensor].slot;
    piece.offset = routine_.places[tensor].offset;
    for (std::size_t t = 0; t < storage_.size(); ++t) {
      if (storage_[t] == tensor) piece.bytes = std::max(piece.bytes, bytes_[t]);
    }
    piece.name = names_.of(routine_.tensors[tensor].name);
    piece.role = routine_.tensors[tensor].role;
    return push(piece);
  }

  std::uint32_t push(const Piece& piece) {
    result_.pieces.push_back(piece);
    return std::uint32_t(result_.pieces.size() - 1);
  }

  /// Collectives over ranks that read different sequences have memory of their own stream; those
  /// within a layer, and transfers, that of computation.
  static std::uint32_t stream_of(const Op& op) {
    return communicates(op.kind) && op.stream == Stream::data ? 1 : 0;
  }

  /// The bytes of a gradient, as backward computes it before it is added to anything.
  Bytes computed_bytes(const Op& op, std::size_t tensor) const {
    const Tensor& gradient = routine_.tensors[tensor];
    if (gradient.role != TensorRole::gradient || communicates(op.kind)) return Bytes();
    return elements(gradient.shape) * bytes_of(compute_dtype(op, routine_.tensors));
  }

  /// A turned tensor of rotary is new and lives as long as the one it was turned from.
  void add_rotary_copy(const Op& op, const std::vector<std::size_t>& last,
                       const std::vector<std::optional<std::uint32_t>>& pieces) {
    if (op.kind != OpKind::rotary || !framework_.copies_rotary) return;
    const std::size_t place = storage_[op.inputs[0].index()];
    const Tensor& product = routine_.tensors[place];
    Piece copy = result_.pieces[*pieces[place]];
    copy.bytes = Bytes(bytes_of(product).count() / product.shape[1] *
                       std::get<RotaryParams>(op.params).rotated);
    copy.offset += kBeside;
    copy.name = names_.of(product.name + ".turned");
    const std::uint32_t made = push(copy);
    add(Event::Kind::write, made);
    copies_.emplace_back(last[place], made);
  }

  /// Tensors that the ops of a formula keep beside a tensor that the kernel here keeps, and as long
  /// as it: GELU's operand, the results of norms and softmax. They are counted in halves of that
  /// tensor: for GELU half of x, erf's operand and 1 + erf instead of x (4); of a norm x - mean,
  /// twice, and the quotient, in f32 (12); of a softmax its values and those after dropout in f32
  /// instead of 16 bits (6).
  static int halves_kept(OpKind kind) {
    switch (kind) {
      case OpKind::gelu:
      case OpKind::bias_gelu:
        return 4;
      case OpKind::layer_norm:
        return 12;
      case OpKind::softmax:
        return 6;
      default:
        return 0;
    }
  }

  void add_operand_copies(const Op& op, const std::vector<std::size_t>& last,
                          const std::vector<std::optional<std::uint32_t>>& pieces) {
    const int halves = halves_kept(op.kind);
    if (!framework_.elementwise_by_op || halves == 0) return;
    const bool of_input = op.kind == OpKind::gelu || op.kind == OpKind::bias_gelu;
    const std::size_t place = storage_[(of_input ? op.inputs[0] : op.outputs[0]).index()];
    if (!pieces[place]) return;
    Piece copy = result_.pieces[*pieces[place]];
    copy.bytes = Bytes(copy.bytes.count() * halves / 2);
    copy.offset += kBeside;
    copy.name = names_.of(routine_.tensors[place].name + ".operands");
    const std::uint32_t made = push(copy);
    add(Event::Kind::write, made);
    copies_.emplace_back(last[place], made);
  }

  /// Copies of the logits that the loss has while it runs. LossMemory::by_op: what forward frees
  /// before backward begins leaves a hole for the gradients, which lie in it as far as they fit.
  void add_loss_copies(const Op& op) {
    const Tensor& logits = routine_.tensors[op.inputs[0].index()];
    const Bytes f32 = elements(logits.shape) * bytes_of(DType::f32);
    const bool forward = op.kind == OpKind::logits_sum_exp;
    std::vector<Bytes> copies;
    if (framework_.loss_memory == LossMemory::fused && forward) copies = {bytes_of(logits)};
    if (framework_.loss_memory == LossMemory::by_op) {
      if (forward) copies.push_back(elements(logits.shape) * bytes_of(DType::bf16));
      const bool split = std::get<VocabularyParams>(op.params).split_degree > 1;
      copies.insert(copies.end(), split ? 2 : 1, f32);
    }
    std::vector<std::uint32_t> made;
    for (const Bytes bytes : copies) {
      Piece piece;
      piece.bytes = bytes;
      piece.name = names_.of(logits.name + (forward ? ".copy" : ".gradient.of_softmax"));
      // The first tensor of forward is what the model gave, in its own type.
      piece.output = framework_.loss_memory == LossMemory::by_op && forward && made.empty();
      made.push_back(push(piece));
      add(Event::Kind::write, made.back());
    }
    for (const std::uint32_t piece : made) add(Event::Kind::last_use, piece);
  }

  /// Memory that an op has while it runs.
  void add_scratch(const Op& op) {
    if (op.kind == OpKind::logits_sum_exp || op.kind == OpKind::cross_entropy_backward)
      add_loss_copies(op);
    if (framework_.adds_gradients_in_matmul && !framework_.stands_in_for_gradients) return;
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

  /// Beside the gradient that it is added to.
  void add_new_gradient(const Op& op, const Tensor& gradient) {
    // Products of 8-bit operands give 16 bits.
    const Bytes element = std::max(bytes_of(compute_dtype(op, routine_.tensors)), Bytes(2));
    Piece piece;
    piece.bytes = elements(gradient.shape) * element;
    piece.stays =
        framework_.stands_in_for_gradients && op.kind == OpKind::matmul && !gives_loss_gradient();
    piece.name = names_.of(piece.stays ? fmt::format("in_place_of_gradient.{}", gradient.shape)
                                       : gradient.name + ".new");
    const std::uint32_t made = push(piece);
    add(Event::Kind::write, made);
    if (!piece.stays) add(Event::Kind::last_use, made);
  }

  /// Whether this is backward of the block that has the loss.
  bool gives_loss_gradient() const {
    return std::ranges::any_of(
        routine_.ops, [](const Op& op) { return op.kind == OpKind::cross_entropy_backward; });
  }

  const Routine& routine_;
  const Framework& framework_;
  Names& names_;
  std::vector<std::size_t> storage_;
  std::vector<Bytes> bytes_;                                   // by tensor
  std::vector<std::pair<std::size_t, std::uint32_t>> copies_;  // last op, piece
  RoutineEvents result_;
};

}  // namespace

RoutineEvents read_events(const Routine& routine, const Framework& framework, Names& names) {
  return RoutineReader(routine, framework, names).read();
}

}  // namespace plimsoll
