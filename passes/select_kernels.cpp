#include "passes/passes.h"

namespace plimsoll {

namespace {

/// A fresh tensor in the block of `like`.
TensorId derived(Graph& graph, TensorId like, const std::string& suffix, Shape shape) {
  Tensor tensor;
  tensor.name = graph.at(like).name + suffix;
  tensor.shape = std::move(shape);
  tensor.dtype = graph.at(like).dtype;
  tensor.block = graph.at(like).block;
  return graph.add(std::move(tensor));
}

void lower_linear(Graph& graph, const Op& op, bool fused_bias, std::vector<Op>& ops) {
  Op matmul = op;
  matmul.kind = OpKind::matmul;
  if (op.inputs.size() < 3 || fused_bias) {
    ops.push_back(std::move(matmul));
    return;
  }
  const TensorId bias = op.inputs[2], y = op.outputs[0];
  const TensorId product = derived(graph, y, ".unbiased", graph.at(y).shape);
  matmul.inputs.pop_back();
  matmul.outputs = {product};
  Op bias_add = op;
  bias_add.kind = OpKind::bias_add;
  bias_add.inputs = {product, bias};
  bias_add.params = std::monostate{};
  ops.push_back(std::move(matmul));
  ops.push_back(std::move(bias_add));
}

/// Unfused attention: scores and probabilities are materialised.
void lower_attention(Graph& graph, const Op& op, std::vector<Op>& ops) {
  const TensorId q = op.inputs[0], k = op.inputs[1], v = op.inputs[2], context = op.outputs[0];
  const auto& params = std::get<AttentionParams>(op.params);
  Shape square = graph.at(q).shape;
  square.back() = params.sequence;
  const TensorId scores = derived(graph, context, ".scores", square);
  const TensorId probabilities = derived(graph, context, ".probabilities", square);
  Op step = op;
  step.kind = OpKind::matmul;
  step.inputs = {q, k};
  step.outputs = {scores};
  step.params = MatmulParams{.batch_dims = 2, .transpose_b = true, .scale = params.scale};
  ops.push_back(step);
  step.kind = OpKind::causal_softmax;
  step.inputs = {scores};
  step.outputs = {probabilities};
  step.params = std::monostate{};
  ops.push_back(step);
  step.kind = OpKind::matmul;
  step.inputs = {probabilities, v};
  step.outputs = {context};
  step.params = MatmulParams{.batch_dims = 2};
  ops.push_back(step);
}

}  // namespace

bool select_kernels(Graph& graph, const PassContext& context) {
  std::vector<Op> ops;
  bool changed = false;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::linear) {
      lower_linear(graph, op, context.framework.fused_bias, ops);
    } else if (op.kind == OpKind::attention) {
      lower_attention(graph, op, ops);
    } else {
      ops.push_back(op);
      continue;
    }
    changed = true;
  }
  graph.ops = std::move(ops);
  return changed;
}

}  // namespace plimsoll
