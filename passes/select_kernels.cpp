#include <algorithm>

#include "base/error.h"
#include "passes/passes.h"

namespace plimsoll {

namespace {

/// Rewrites the abstract ops of a forward graph into the kernels of one framework.
class KernelSelector {
 public:
  KernelSelector(Graph& graph, const Framework& framework)
      : graph_(graph), framework_(framework), readers_(graph.tensors.size()) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      for (TensorId id : graph.ops[i].inputs) readers_[id.index()].push_back(i);
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
      } else if (op.kind == OpKind::split_heads && framework_.flash_attention &&
                 lower_flash_attention(op)) {
      } else if (op.kind == OpKind::attention) {
        lower_attention(op);
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
    if (biased && give_bias_to_reader(y, op.inputs[2])) {
      matmul.inputs.pop_back();
      ops_.push_back(std::move(matmul));
      return;
    }
    if (!biased || framework_.fused_bias) {
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
  bool give_bias_to_reader(TensorId y, TensorId bias) {
    Op* reader = only_reader(y);
    if (reader == nullptr) return false;
    if (reader->kind == OpKind::gelu && framework_.fused_bias_gelu) {
      reader->kind = OpKind::bias_gelu;
      reader->inputs = {y, bias};
      return true;
    }
    if (reader->kind == OpKind::add && framework_.fused_bias_add) {
      const TensorId residual = reader->inputs[0] == y ? reader->inputs[1] : reader->inputs[0];
      reader->kind = OpKind::bias_residual_add;
      reader->inputs = {y, bias, residual};
      return true;
    }
    return false;
  }

  /// split_heads, attention, merge_heads -> one kernel that reads query, key and value where the
  /// linear layer wrote them.
  bool lower_flash_attention(const Op& split) {
    const Op* attention = only_reader(split.outputs[0]);
    if (attention == nullptr || attention->kind != OpKind::attention) return false;
    const Op* merge = only_reader(attention->outputs[0]);
    if (merge == nullptr || merge->kind != OpKind::merge_heads) return false;
    const Shape& heads = graph_.at(split.outputs[0]).shape;  // [b,a,s,d]
    const TensorId sums =
        derived(attention->outputs[0], ".log_sum_exp", {heads[0], heads[1], heads[2]});
    Op flash = split;
    flash.kind = OpKind::flash_attention;
    flash.outputs = {merge->outputs[0], sums};
    flash.params = attention->params;
    ops_.push_back(std::move(flash));
    for (const Op* op : {attention, merge}) taken_[std::size_t(op - graph_.ops.data())] = true;
    return true;
  }

  /// Unfused attention: scores and probabilities are materialised.
  void lower_attention(const Op& op) {
    const TensorId q = op.inputs[0], k = op.inputs[1], v = op.inputs[2], context = op.outputs[0];
    const auto& params = std::get<AttentionParams>(op.params);
    Shape square = graph_.at(q).shape;
    square.back() = params.sequence;
    const TensorId scores = derived(context, ".scores", square);
    const TensorId probabilities = derived(context, ".probabilities", square);
    Op step = op;
    step.kind = OpKind::matmul;
    step.inputs = {q, k};
    step.outputs = {scores};
    step.params = MatmulParams{.batch_dims = 2, .transpose_b = true, .scale = params.scale};
    ops_.push_back(step);
    step.kind = OpKind::causal_softmax;
    step.inputs = {scores};
    step.outputs = {probabilities};
    step.params = std::monostate{};
    ops_.push_back(step);
    step.kind = OpKind::matmul;
    step.inputs = {probabilities, v};
    step.outputs = {context};
    step.params = MatmulParams{.batch_dims = 2};
    ops_.push_back(step);
  }

  Graph& graph_;
  const Framework& framework_;
  std::vector<std::vector<std::size_t>> readers_;  // ops, by tensor
  std::vector<bool> taken_;                        // ops that another's kernel includes
  std::vector<Op> ops_;
};

}  // namespace

bool select_kernels(Graph& graph, const PassContext& context) {
  if (!KernelSelector(graph, context.framework).run()) return false;
  if (context.framework.flash_attention) remove_unused_tensors(graph);
  return true;
}

}  // namespace plimsoll
