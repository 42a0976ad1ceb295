#include <map>

#include "passes/passes.h"

namespace plimsoll {

namespace {

/// The loss is computed from f32 logits, as vocab_parallel_logits.float() in Megatron-LM
/// core/tensor_parallel/cross_entropy.py.
bool needs_f32(OpKind kind) {
  return kind == OpKind::logits_max || kind == OpKind::logits_sum_exp || kind == OpKind::token_loss;
}

/// Statistics over a row or the batch stay f32 whatever the values are.
bool gives_f32(const Op& op, std::size_t output) {
  if (op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm ||
      op.kind == OpKind::flash_attention) {
    return output > 0;
  }
  return needs_f32(op.kind);
}

}  // namespace

bool mixed_precision(Graph& graph, const PassContext& context) {
  const DType type = context.job.precision;
  if (type == DType::f32) return false;
  std::vector<bool> stays(graph.tensors.size());
  for (const Op& op : graph.ops) {
    const bool reduces = op.kind == OpKind::reduce_from_group;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      // A reduction has the type of what it reduces.
      stays[op.outputs[i].index()] = reduces ? bool(stays[op.inputs[0].index()]) : gives_f32(op, i);
    }
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    Tensor& tensor = graph.tensors[i];
    if (tensor.dtype != DType::f32 || tensor.role == TensorRole::scalar || stays[i]) continue;
    tensor.dtype = type;
  }
  std::map<TensorId, TensorId> casts;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    for (TensorId& id : op.inputs) {
      if (!needs_f32(op.kind) || graph.at(id).dtype != type) continue;
      const auto [found, fresh] = casts.try_emplace(id, id);
      if (fresh) {
        Tensor wide = graph.at(id);
        wide.name += ".f32";
        wide.dtype = DType::f32;
        Op cast;
        cast.kind = OpKind::cast;
        cast.phase = op.phase;
        cast.block = op.block;
        cast.inputs = {id};
        cast.outputs = {found->second = graph.add(std::move(wide))};
        ops.push_back(std::move(cast));
      }
      id = found->second;
    }
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
  return true;
}

}  // namespace plimsoll
