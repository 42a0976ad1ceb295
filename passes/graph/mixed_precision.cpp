// Casts are inserted so that activations have the job's type.
#include <map>

#include "graph/op_table.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"

namespace plimsoll {

namespace {

/// Returns whether a kind computes from f32 logits, as vocab_parallel_logits.float() in Megatron-LM
/// core/tensor_parallel/cross_entropy.py does for the loss.
bool needs_f32(OpKind kind) {
  return kind == OpKind::logits_max || kind == OpKind::logits_sum_exp || kind == OpKind::token_loss;
}

/// Gives forward ops operands of the type in which they compute, by casts before them: one for each
/// tensor and block. An op that reads a parameter that `stays` f32 computes in f32, and its output
/// is cast back.
class CastInserter {
 public:
  CastInserter(Graph& graph, DType type, std::vector<bool> stays)
      : graph_(graph), type_(type), stays_(std::move(stays)) {}

  void run() {
    for (Op& op : graph_.ops) {
      const bool widens = reads_f32_parameter(op), wide = widens || needs_f32(op.kind);
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const Tensor& operand = graph_.at(op.inputs[i]);
        const bool parameter = is_one_parameter(operand) && operand.dtype == DType::f32;
        if (is_wide_bias(op, i)) continue;
        if (wide ? operand.dtype == type_ : parameter && !input_is_f32(op, i))
          op.inputs[i] = cast(op.inputs[i], wide ? DType::f32 : type_, op);
      }
      widens ? push_widened(std::move(op)) : ops_.push_back(std::move(op));
    }
    graph_.ops = std::move(ops_);
  }

 private:
  bool stays(TensorId id) const { return id.index() < stays_.size() && stays_[id.index()]; }

  /// Products add an f32 bias to their f32 sums.
  bool is_wide_bias(const Op& op, std::size_t i) const {
    return op.kind == OpKind::matmul && i == 2 && stays(op.inputs[i]);
  }

  bool reads_f32_parameter(const Op& op) const {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (stays(op.inputs[i]) && !is_wide_bias(op, i)) return true;
    }
    return false;
  }

  /// The op's results are f32; their readers get them in the type that they had.
  void push_widened(Op op) {
    std::vector<Op> casts;
    for (TensorId& id : op.outputs) {
      if (graph_.at(id).dtype != type_) continue;
      Tensor wide = graph_.at(id);
      wide.name += ".wide";
      wide.dtype = DType::f32;
      const TensorId narrow = std::exchange(id, graph_.add(std::move(wide)));
      casts.push_back(op_near(op, OpKind::cast, {id}, {narrow}));
    }
    // In place it overwrites the copy that it was given.
    if (in_place(op, graph_.tensors)) casts_.clear(), ++rounds_;
    ops_.push_back(std::move(op));
    for (Op& cast : casts) ops_.push_back(std::move(cast));
  }

  TensorId cast(TensorId from, DType type, const Op& reader) {
    const auto [found, fresh] = casts_.try_emplace({from, reader.block}, from);
    if (!fresh) return found->second;
    Tensor copy;
    copy.name = graph_.at(from).name + "." + std::string(to_text(type));
    if (rounds_ > 0) copy.name += std::to_string(rounds_);
    copy.dtype = type;
    copy.shape = graph_.at(from).shape;
    copy.filled = graph_.at(from).filled;
    copy.block = reader.block;
    found->second = graph_.add(std::move(copy));
    ops_.push_back(op_near(reader, OpKind::cast, {from}, {found->second}));
    return found->second;
  }

  Graph& graph_;
  DType type_;
  std::vector<bool> stays_;  // by tensor
  std::map<std::pair<TensorId, std::optional<BlockId>>, TensorId> casts_;
  std::int64_t rounds_ = 0;  ///< how often they were made anew
  std::vector<Op> ops_;
};

}  // namespace

bool mixed_precision(Graph& graph, const PassContext& context) {
  const DType type = context.job.precision;
  if (type == DType::f32) return false;
  // Frozen parameters have the type in which they are read, and no casts.
  const std::vector<bool> f32_parameters = matched_parameters(graph, context.job.fp32_parameters);
  std::vector<bool> stays(graph.tensors.size()), read_in_f32(graph.tensors.size());
  for (const Op& op : graph.ops) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (input_is_f32(op, i)) read_in_f32[op.inputs[i].index()] = true;
    // Values that are communicated keep their type.
    const bool same = communicates(op.kind) || op.kind == OpKind::reduce_from_group ||
                      op.kind == OpKind::copy_to_group || op.kind == OpKind::own_part;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      stays[op.outputs[i].index()] =
          same ? bool(stays[op.inputs[0].index()]) : output_is_f32(op, i);
    }
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    Tensor& tensor = graph.tensors[i];
    const bool value = tensor.role != TensorRole::scalar && tensor.role != TensorRole::parameter;
    const bool frozen = tensor.role == TensorRole::frozen_parameter;
    const bool wide = frozen ? bool(f32_parameters[i] || read_in_f32[i]) : bool(stays[i]);
    if (value && tensor.dtype == DType::f32 && !wide) tensor.dtype = type;
  }
  CastInserter(graph, type, f32_parameters).run();
  return true;
}

}  // namespace plimsoll
