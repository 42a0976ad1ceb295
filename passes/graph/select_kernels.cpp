// Abstract ops are replaced by the kernels of a framework.
#include <algorithm>
#include <utility>

#include "passes/graph/passes.h"

namespace plimsoll {

namespace {

/// Rewrites the abstract ops of a forward graph into the kernels of one framework.
class KernelSelector {
 public:
  KernelSelector(Graph& graph, const Framework& framework, bool keeps_scores)
      : graph_(graph),
        framework_(framework),
        keeps_scores_(keeps_scores),
        readers_(graph.tensors.size()),
        writers_(graph.tensors.size()) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      for (TensorId id : graph.ops[i].inputs) readers_[id.index()].push_back(i);
      for (TensorId id : graph.ops[i].outputs) writers_[id.index()] = i;
    }
    taken_.resize(graph.ops.size());
  }

  bool run() {
    bool changed = false;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op op = graph_.ops[i];
      if (taken_[i]) continue;
      if (op.kind == OpKind::linear) {
        lower_linear(op);
      } else if (op.kind == OpKind::split_heads && !keeps_scores_ && feeds_flash_attention(op)) {
        // The kernel reads query, key and value where the linear layers wrote them.
      } else if (op.kind == OpKind::attention && !keeps_scores_ && fuses(op)) {
        lower_flash_attention(op);
      } else if (op.kind == OpKind::attention) {
        lower_attention(op);
      } else if (op.kind == OpKind::dropout && framework_.kernels.stores_dropout_masks) {
        emit_dropout(op);
      } else {
        ops_.push_back(op);
        continue;
      }
      changed = true;
    }
    graph_.ops = std::move(ops_);
    return changed;
  }

 private:
  /// A fresh tensor in the block of `like`.
  TensorId derived(TensorId like, const std::string& suffix, Shape shape) {
    Tensor tensor;
    tensor.name = graph_.at(like).name + suffix;
    tensor.shape = std::move(shape);
    tensor.dtype = graph_.at(like).dtype;
    tensor.block = graph_.at(like).block;
    return graph_.add(std::move(tensor));
  }

  /// The op that alone reads this value, if one does, or nothing.
  Op* only_reader(TensorId id) {
    const std::vector<std::size_t>& readers = readers_[id.index()];
    return readers.size() == 1 ? &graph_.ops[readers[0]] : nullptr;
  }

  void lower_linear(const Op& op) {
    Op matmul = op;
    matmul.kind = OpKind::matmul;
    const TensorId y = op.outputs[0];
    const bool biased = op.inputs.size() == 3;
    if (biased && give_bias_to_reader(op)) {
      matmul.inputs.pop_back();
      ops_.push_back(std::move(matmul));
      return;
    }
    if (!biased) fuse_unbiased(y);
    if (!biased || framework_.kernels.bias.in_matmul) {
      ops_.push_back(std::move(matmul));
      return;
    }
    const TensorId product = derived(y, ".unbiased", graph_.at(y).shape);
    matmul.inputs.pop_back();
    matmul.outputs = {product};
    Op bias_add = op;
    bias_add.kind = OpKind::bias_add;
    bias_add.inputs = {product, op.inputs[2]};
    bias_add.params = std::monostate{};
    ops_.push_back(std::move(matmul));
    ops_.push_back(std::move(bias_add));
  }

  /// The GELU or residual add after a linear layer takes over its bias.
  bool give_bias_to_reader(const Op& linear) {
    const TensorId y = linear.outputs[0], bias = linear.inputs[2];
    Op* reader = only_reader(y);
    if (reader == nullptr) return false;
    if (reader->kind == OpKind::gelu && framework_.kernels.bias.in_gelu) {
      reader->kind = OpKind::bias_gelu;
      reader->inputs = {y, bias};
      return true;
    }
    if (!framework_.kernels.bias.in_add) return false;
    if (reader->kind == OpKind::dropout) return fuse_dropout_add(*reader, y, bias);
    if (reader->kind == OpKind::add) {
      const TensorId residual = reader->inputs[0] == y ? reader->inputs[1] : reader->inputs[0];
      if (!is_trained(linear.inputs[1]) && is_of_adapter(residual)) return false;
      reader->kind = OpKind::bias_residual_add;
      reader->inputs = {y, bias, residual};
      return true;
    }
    return false;
  }

  bool is_trained(TensorId weight) const { return graph_.at(weight).role == TensorRole::parameter; }

  /// Returns whether a value that is added to the product of a frozen weight is an adapter's:
  /// itself a product, or a multiple of one.
  bool is_of_adapter(TensorId value) const {
    const auto writes = [&](const Op& op) {
      return (op.kind == OpKind::linear || op.kind == OpKind::multiply) && op.outputs[0] == value;
    };
    return std::ranges::any_of(graph_.ops, writes);
  }

  /// A kernel without a bias takes in the dropout and the residual add after the layer.
  void fuse_unbiased(TensorId y) {
    Op* reader = only_reader(y);
    if (reader == nullptr || reader->kind != OpKind::dropout || !framework_.kernels.bias.in_add)
      return;
    fuse_dropout_add(*reader, y, {});
  }

  /// residual + dropout(y + bias) as one kernel, where the residual is added right after.
  bool fuse_dropout_add(Op& dropout, TensorId y, std::optional<TensorId> bias) {
    Op* add = only_reader(dropout.outputs[0]);
    if (add == nullptr || add->kind != OpKind::add || !framework_.kernels.stores_dropout_masks)
      return false;
    const TensorId dropped = dropout.outputs[0];
    const TensorId residual = add->inputs[0] == dropped ? add->inputs[1] : add->inputs[0];
    add->kind = OpKind::bias_dropout_add;
    add->inputs = {y, residual};
    if (bias) add->inputs.push_back(*bias);
    add->outputs.push_back(mask_of(dropped));
    add->params = dropout.params;
    taken_[std::size_t(&dropout - graph_.ops.data())] = true;
    return true;
  }

  TensorId mask_of(TensorId dropped) {
    const TensorId mask = derived(dropped, ".mask", graph_.at(dropped).shape);
    graph_.at(mask).dtype = DType::u8;
    return mask;
  }

  /// Emits dropout as the framework has it: drawn again in backward, or with its mask kept.
  void emit_dropout(Op dropout) {
    if (framework_.kernels.stores_dropout_masks) {
      dropout.kind = OpKind::masked_dropout;
      dropout.outputs.push_back(mask_of(dropout.outputs[0]));
    }
    ops_.push_back(std::move(dropout));
  }

  const Op& writer(TensorId id) const { return graph_.ops[writers_[id.index()]]; }

  /// Returns whether only merge_heads reads the output of this attention, and split_heads wrote its
  /// inputs.
  bool fuses(const Op& attention) {
    const Op* merge = only_reader(attention.outputs[0]);
    if (merge == nullptr || merge->kind != OpKind::merge_heads) return false;
    const auto heads = attention.inputs.begin();
    return std::all_of(heads, heads + std::ptrdiff_t(kHeads), [&](TensorId id) {
      return only_reader(id) != nullptr && writer(id).kind == OpKind::split_heads;
    });
  }
  bool feeds_flash_attention(const Op& split) {
    const Op* attention = only_reader(split.outputs[0]);
    return attention != nullptr && attention->kind == OpKind::attention && fuses(*attention);
  }

  /// split_heads, attention, merge_heads -> one kernel. It draws its dropout again in backward.
  void lower_flash_attention(const Op& attention) {
    const Op& merge = *only_reader(attention.outputs[0]);
    const Shape heads = graph_.at(attention.inputs[0]).shape;  // [b,a,s,d]
    const TensorId sums =
        derived(attention.outputs[0], ".log_sum_exp", {heads[0], heads[1], heads[2]});
    Op flash = attention;
    flash.kind = OpKind::flash_attention;
    flash.inputs.clear();
    for (std::size_t i = 0; i < kHeads; ++i) {  // whose linear layers may be one
      const TensorId packed = writer(attention.inputs[i]).inputs[0];
      if (flash.inputs.empty() || flash.inputs.back() != packed) flash.inputs.push_back(packed);
    }
    flash.outputs = {merge.outputs[0], sums};
    if (attention.inputs.size() > kHeads) flash.outputs = add_sinks(attention, flash);
    ops_.push_back(std::move(flash));
    if (sinks_) ops_.push_back(*std::exchange(sinks_, {}));
    taken_[std::size_t(&merge - graph_.ops.data())] = true;
  }

  /// Makes the op that adds the sinks to the results of a kernel. Returns what the kernel gives.
  std::vector<TensorId> add_sinks(const Op& attention, const Op& flash) {
    const TensorId y = flash.outputs[0], sums = flash.outputs[1];
    const std::vector<TensorId> given = {derived(y, ".unsunk", graph_.at(y).shape),
                                         derived(sums, ".unsunk", graph_.at(sums).shape)};
    Op& op = sinks_.emplace(attention);
    op.kind = OpKind::add_sinks;
    op.inputs = {given[0], given[1], attention.inputs[kHeads]};
    op.outputs = flash.outputs;
    op.params = std::monostate{};
    return given;
  }

  /// Unfused attention: scores and probabilities are materialised.
  void lower_attention(const Op& op) {
    const TensorId q = op.inputs[0], k = op.inputs[1], v = op.inputs[2], context = op.outputs[0];
    const auto params = std::get<AttentionParams>(op.params);
    Shape square = graph_.at(q).shape;
    square.back() = params.sequence;
    TensorId scores = derived(context, ".scores", square);
    TensorId probabilities = derived(context, ".probabilities", square);
    Op step = op;
    const auto emit = [&](OpKind kind, std::vector<TensorId> inputs, TensorId output,
                          OpParams with) {
      step.kind = kind;
      step.inputs = std::move(inputs);
      step.outputs = {output};
      step.params = std::move(with);
      kind == OpKind::dropout ? emit_dropout(step) : ops_.push_back(step);
    };
    emit(OpKind::matmul, {q, k}, scores,
         MatmulParams{.batch_dims = 2, .transpose_b = true, .scale = params.scale});
    if (params.soft_cap > 0) {
      const TensorId capped = derived(context, ".capped", square);
      emit(OpKind::soft_cap, {scores}, capped, CapParams{params.soft_cap});
      scores = capped;
    }
    std::vector<TensorId> weighed = {scores};
    if (op.inputs.size() > kHeads) weighed.push_back(op.inputs[kHeads]);
    emit(OpKind::softmax, std::move(weighed), probabilities,
         AttentionParams{.sequence = params.sequence,
                         .causal = params.causal,
                         .window = params.window,
                         .chunks = params.chunks,
                         .alibi_heads = params.alibi_heads,
                         .alibi_scale = params.alibi_scale,
                         .within_examples = params.within_examples});
    if (params.dropout > 0) {
      const TensorId dropped = derived(context, ".dropped", square);
      emit(OpKind::dropout, {probabilities}, dropped,
           DropoutParams{params.dropout, params.seed, params.site});
      probabilities = dropped;
    }
    emit(OpKind::matmul, {probabilities, v}, context, MatmulParams{.batch_dims = 2});
  }

  static constexpr std::size_t kHeads = 3;  // query, key and value, before sinks

  Graph& graph_;
  const Framework& framework_;
  bool keeps_scores_;
  std::vector<std::vector<std::size_t>> readers_;  // ops, by tensor
  std::vector<std::size_t> writers_;               // op, by tensor
  std::vector<bool> taken_;                        // ops that another's kernel includes
  std::vector<Op> ops_;
  std::optional<Op> sinks_;  // of the kernel that is next
};

}  // namespace

bool select_kernels(Graph& graph, const PassContext& context) {
  const bool separates = context.framework.kernels.attention.separate_qkv &&
                         keeps_scores(context.framework, context.strategy);
  const bool separated = separates && separate_qkv(graph);
  const bool keeps = keeps_scores(context.framework, context.strategy);
  if (!KernelSelector(graph, context.framework, keeps).run()) return separated;
  if (!keeps) remove_unused_tensors(graph);
  return true;
}

}  // namespace plimsoll
