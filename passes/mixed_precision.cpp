#include <map>

#include "graph/op_types.h"
#include "passes/passes.h"

namespace plimsoll {

namespace {

/// The loss is computed from f32 logits, as vocab_parallel_logits.float() in Megatron-LM
/// core/tensor_parallel/cross_entropy.py.
bool needs_f32(OpKind kind) {
  return kind == OpKind::logits_max || kind == OpKind::logits_sum_exp || kind == OpKind::token_loss;
}

/// Gives forward ops operands of the type they compute in, by casts before them: one for each
/// tensor and block.
class CastInserter {
 public:
  CastInserter(Graph& graph, DType type) : graph_(graph), type_(type) {}

  void run() {
    for (Op& op : graph_.ops) {
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const Tensor& operand = graph_.at(op.inputs[i]);
        const bool parameter = operand.role == TensorRole::parameter;
        if (needs_f32(op.kind) ? operand.dtype == type_ : parameter && !input_is_f32(op, i))
          op.inputs[i] = cast(op.inputs[i], needs_f32(op.kind) ? DType::f32 : type_, op);
      }
      ops_.push_back(std::move(op));
    }
    graph_.ops = std::move(ops_);
  }

 private:
  TensorId cast(TensorId from, DType type, const Op& reader) {
    const auto [found, fresh] = casts_.try_emplace({from, reader.block}, from);
    if (!fresh) return found->second;
    Tensor copy;
    copy.name = graph_.at(from).name + "." + std::string(to_text(type));
    copy.dtype = type;
    copy.shape = graph_.at(from).shape;
    copy.block = reader.block;
    Op cast;
    cast.kind = OpKind::cast;
    cast.phase = reader.phase;
    cast.block = reader.block;
    cast.inputs = {from};
    cast.outputs = {found->second = graph_.add(std::move(copy))};
    ops_.push_back(std::move(cast));
    return found->second;
  }

  Graph& graph_;
  DType type_;
  std::map<std::pair<TensorId, std::optional<BlockId>>, TensorId> casts_;
  std::vector<Op> ops_;
};

}  // namespace

bool mixed_precision(Graph& graph, const PassContext& context) {
  const DType type = context.job.precision;
  if (type == DType::f32) return false;
  std::vector<bool> stays(graph.tensors.size());
  for (const Op& op : graph.ops) {
    const bool reduces = op.kind == OpKind::reduce_from_group;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      // A reduction has the type of what it reduces.
      stays[op.outputs[i].index()] =
          reduces ? bool(stays[op.inputs[0].index()]) : output_is_f32(op, i);
    }
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    Tensor& tensor = graph.tensors[i];
    const bool value = tensor.role != TensorRole::scalar && tensor.role != TensorRole::parameter;
    if (value && tensor.dtype == DType::f32 && !stays[i]) tensor.dtype = type;
  }
  CastInserter(graph, type).run();
  return true;
}

}  // namespace plimsoll
