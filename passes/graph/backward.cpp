#include <map>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/graph/passes.h"
#include "passes/graph/saved_tensors.h"

namespace plimsoll {

namespace {

/// Adds the gradient ops of one block after its forward ops, in reverse order.
class BlockBackward {
 public:
  BlockBackward(Graph& graph, BlockId block, std::vector<Op>& out)
      : graph_(graph), block_(block), out_(out) {}

  void run(const std::vector<Op>& forward) {
    for (const Op& op : forward) {
      const bool casts = op.kind == OpKind::cast;
      if (casts && graph_.at(op.inputs[0]).role == TensorRole::parameter)
        cast_of_.emplace(op.outputs[0], op.inputs[0]);
    }
    Block& definition = graph_.at(block_);
    if (definition.output) {
      definition.output_gradient = gradient_like(*definition.output);
      contribute(*definition.output, *graph_.at(block_).output_gradient);
    }
    for (auto op = forward.rbegin(); op != forward.rend(); ++op) visit(*op, forward);
    if (const auto input = graph_.at(block_).input)
      graph_.at(block_).input_gradient = gradient_of(*input);
  }

 private:
  TensorId gradient_like(TensorId id) {
    Tensor tensor = graph_.at(id);
    tensor.name += ".gradient";
    if (const std::size_t count = names_[tensor.name]++; count > 0)
      tensor.name += std::to_string(count);
    tensor.role = TensorRole::activation;
    return graph_.add(std::move(tensor));
  }

  /// The parameter whose cast a value is, or the value itself.
  TensorId uncast(TensorId value) const {
    const auto found = cast_of_.find(value);
    return found == cast_of_.end() ? value : found->second;
  }

  /// The persistent gradient of a parameter, or of the one whose cast this is; accumulates over
  /// micro-batches.
  TensorId parameter_gradient(TensorId value) {
    const TensorId parameter = uncast(value);
    const auto [found, fresh] = parameter_gradients_.try_emplace(parameter, parameter);
    if (fresh) {
      Tensor tensor = graph_.at(parameter);
      tensor.name += ".gradient";
      tensor.role = TensorRole::gradient;
      tensor.dtype = DType::f32;  // whatever the parameter's type: it sums over micro-batches
      tensor.gradient_of = parameter;
      tensor.tied_to.reset();
      tensor.gradient_group.reset();
      tensor.init = Init::none;
      tensor.init_stddev = 0;
      tensor.decay = false;
      found->second = graph_.add(std::move(tensor));
    }
    return found->second;
  }

  void contribute(TensorId value, TensorId gradient) { contributions_[value].push_back(gradient); }

  bool has_gradient(TensorId value) const { return contributions_.contains(value); }

  /// The whole gradient of a value: the sum of what its readers gave.
  TensorId gradient_of(TensorId value) {
    std::vector<TensorId>& parts = contributions_[value];
    INVARIANT(!parts.empty(), "no gradient reaches " + graph_.at(value).name);
    while (parts.size() > 1) {
      const TensorId sum = gradient_like(value);
      emit(OpKind::add, {parts[0], parts[1]}, {sum});
      parts.erase(parts.begin());
      parts.front() = sum;
    }
    return parts.front();
  }

  void emit(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
            OpParams params = {}, Stream stream = Stream::compute) {
    Op op;
    op.kind = kind;
    op.phase = Phase::backward;
    op.block = block_;
    op.stream = stream;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.params = std::move(params);
    out_.push_back(std::move(op));
  }

  void matmul(const Op& op, TensorId dc) {
    MatmulParams of_a = std::get<MatmulParams>(op.params), of_b = of_a;
    INVARIANT(!of_a.transpose_a, "forward matmuls do not transpose their first operand");
    const TensorId a = op.inputs[0], b = op.inputs[1];
    const bool weight = graph_.at(uncast(b)).role == TensorRole::parameter;
    if (op.inputs.size() == 3)
      emit(OpKind::bias_gradient, {dc}, {parameter_gradient(op.inputs[2])});
    // c = a b: db = a^T dc, da = dc b^T.   c = a b^T: db = dc^T a, da = dc b.
    of_b.transpose_a = true;
    of_b.transpose_b = false;
    of_b.accumulate = weight;
    const TensorId db = weight ? parameter_gradient(b) : gradient_like(b);
    const bool transposed = std::get<MatmulParams>(op.params).transpose_b;
    emit(OpKind::matmul, transposed ? std::vector{dc, a} : std::vector{a, dc}, {db}, of_b);
    if (!weight) contribute(b, db);
    of_a.transpose_b = !transposed;
    const TensorId da = gradient_like(a);
    emit(OpKind::matmul, {dc, b}, {da}, of_a);
    contribute(a, da);
  }

  void layer_norm(const Op& op, TensorId dy) {
    const TensorId x = op.inputs[0], gamma = op.inputs[1], beta = op.inputs[2];
    const TensorId dx = gradient_like(x);
    emit(OpKind::layer_norm_backward, {dy, x, gamma, op.outputs[1], op.outputs[2]},
         {dx, parameter_gradient(gamma), parameter_gradient(beta)}, op.params);
    contribute(x, dx);
  }

  void rms_norm(const Op& op, TensorId dy) {
    const TensorId x = op.inputs[0], gamma = op.inputs[1], dx = gradient_like(x);
    emit(OpKind::rms_norm_backward, {dy, x, gamma, op.outputs[1]}, {dx, parameter_gradient(gamma)},
         op.params);
    contribute(x, dx);
  }

  /// y = x + a row of a table; the table's gradient sums over where its rows were added.
  void table_add(const Op& op, OpKind kind, TensorId dy) {
    emit(kind, {dy}, {parameter_gradient(op.inputs[1])}, op.params);
    contribute(op.inputs[0], dy);
  }

  void split_heads(const Op& op) {
    std::vector<TensorId> gradients;
    for (TensorId id : op.outputs) gradients.push_back(gradient_of(id));
    unary(op, OpKind::split_heads_backward, std::move(gradients));
  }

  /// The gradient of the packed query, key and value, or of the query and the packed key and value.
  void flash_attention(const Op& op, TensorId dy) {
    std::vector<TensorId> inputs = {dy}, gradients;
    for (TensorId id : op.inputs) {
      inputs.push_back(id);
      gradients.push_back(gradient_like(id));
      contribute(id, gradients.back());
    }
    inputs.insert(inputs.end(), op.outputs.begin(), op.outputs.end());
    emit(OpKind::flash_attention_backward, std::move(inputs), std::move(gradients), op.params);
  }

  /// y = residual + dropout(x + bias).
  void bias_dropout_add(const Op& op, TensorId dy) {
    const TensorId dx = gradient_like(op.inputs[0]);
    emit(OpKind::masked_dropout_backward, {dy, op.outputs[1]}, {dx}, op.params);
    if (op.inputs.size() == 3)
      emit(OpKind::bias_gradient, {dx}, {parameter_gradient(op.inputs[2])});
    contribute(op.inputs[1], dy);
    contribute(op.inputs[0], dx);
  }

  /// The loss is where gradients start: d logits = weight * (softmax - one hot).
  void token_loss(const Op& op, const std::vector<Op>& forward) {
    for (const Op& other : forward) {
      if (other.kind != OpKind::logits_sum_exp) continue;
      const TensorId logits = other.inputs[0], dlogits = gradient_like(logits);
      emit(OpKind::cross_entropy_backward, {logits, other.inputs[2], op.outputs[0]}, {dlogits},
           op.params);
      contribute(logits, dlogits);
    }
  }

  /// One input, one output, gradient by an op of its own.
  void unary(const Op& op, OpKind kind, std::vector<TensorId> inputs) {
    const TensorId dx = gradient_like(op.inputs[0]);
    emit(kind, std::move(inputs), {dx}, op.params);
    contribute(op.inputs[0], dx);
  }

  /// A communication over mp gives the gradient of the op's input.
  void collective(const Op& op, OpKind kind, TensorId dy) {
    const TensorId dx = gradient_like(op.inputs[0]);
    emit(kind, {dy}, {dx}, CollectiveParams{Group{{Axis::mp}}}, Stream::mp);
    contribute(op.inputs[0], dx);
  }

  void own_part(const Op& op, TensorId dy) {
    const TensorId dx = gradient_like(op.inputs[0]);
    emit(OpKind::own_part, {dy}, {dx});
    contribute(op.inputs[0], dx);
  }

  /// Gathered for split computations only: their gradients are partial sums, which one
  /// reduce-scatter sums and hands back.
  static bool only_copied(TensorId id, const std::vector<Op>& forward) {
    bool gathered = false, copied = true;
    for (const Op& op : forward) {
      gathered = gathered || (op.kind == OpKind::all_gather && op.outputs[0] == id);
      for (TensorId input : op.inputs) {
        copied = copied && (input != id || op.kind == OpKind::copy_to_group);
      }
    }
    return gathered && copied;
  }

  void visit(const Op& op, const std::vector<Op>& forward) {
    if (op.kind == OpKind::token_loss) return token_loss(op, forward);
    bool reached = false;
    for (TensorId id : op.outputs) reached = reached || has_gradient(id);
    if (!reached) return;  // nothing that was trained for depends on it
    const TensorId dy = gradient_of(op.outputs[0]);
    switch (op.kind) {
      case OpKind::matmul:
        return matmul(op, dy);
      case OpKind::layer_norm:
        return layer_norm(op, dy);
      case OpKind::embedding:
        return emit(OpKind::embedding_backward, {dy, op.inputs[0]},
                    {parameter_gradient(op.inputs[1])}, op.params);
      case OpKind::position_add:
        return table_add(op, OpKind::position_add_backward, dy);
      case OpKind::token_type_add:
        return table_add(op, OpKind::token_type_add_backward, dy);
      case OpKind::gather_rows:
        return unary(op, OpKind::gather_rows_backward, {dy, op.inputs[1]});
      case OpKind::rms_norm:
        return rms_norm(op, dy);
      case OpKind::bias_add:
        emit(OpKind::bias_gradient, {dy}, {parameter_gradient(op.inputs[1])});
        return contribute(op.inputs[0], dy);
      case OpKind::add:
        contribute(op.inputs[0], dy);
        return contribute(op.inputs[1], dy);
      case OpKind::gelu:
        return unary(op, OpKind::gelu_backward, {dy, op.inputs[0]});
      case OpKind::squared_relu:
        return unary(op, OpKind::squared_relu_backward, {dy, op.inputs[0]});
      case OpKind::swiglu:
        return unary(op, OpKind::swiglu_backward, {dy, op.inputs[0]});
      case OpKind::rotary:
        return unary(op, OpKind::rotary_backward, {dy});
      case OpKind::dropout:  // draws the same mask again
        return unary(op, OpKind::dropout, {dy});
      case OpKind::masked_dropout:
        return unary(op, OpKind::masked_dropout_backward, {dy, op.outputs[1]});
      case OpKind::bias_dropout_add:
        return bias_dropout_add(op, dy);
      case OpKind::bias_gelu: {
        const TensorId dx = gradient_like(op.inputs[0]);
        emit(OpKind::bias_gelu_backward, {dy, op.inputs[0], op.inputs[1]}, {dx});
        emit(OpKind::bias_gradient, {dx}, {parameter_gradient(op.inputs[1])});
        return contribute(op.inputs[0], dx);
      }
      case OpKind::bias_residual_add:
        emit(OpKind::bias_gradient, {dy}, {parameter_gradient(op.inputs[1])});
        contribute(op.inputs[2], dy);
        return contribute(op.inputs[0], dy);
      case OpKind::cast:
        return unary(op, OpKind::cast, {dy});
      case OpKind::flash_attention:
        return flash_attention(op, dy);
      case OpKind::softmax:
        return unary(op, OpKind::softmax_backward, {dy, op.outputs[0]});
      case OpKind::merge_heads:
        return unary(op, OpKind::merge_heads_backward, {dy});
      case OpKind::split_heads:
        return split_heads(op);
      case OpKind::reduce_from_group:
        return contribute(op.inputs[0], dy);
      case OpKind::copy_to_group:
        if (only_copied(op.inputs[0], forward)) return contribute(op.inputs[0], dy);
        return collective(op, OpKind::all_reduce, dy);
      case OpKind::all_gather:
        if (only_copied(op.outputs[0], forward)) return collective(op, OpKind::reduce_scatter, dy);
        return own_part(op, dy);
      case OpKind::reduce_scatter:
      case OpKind::own_part:
        return collective(op, OpKind::all_gather, dy);
      default:
        INVARIANT(false, "no gradient for " + std::string(to_text(op.kind)));
    }
  }

  Graph& graph_;
  BlockId block_;
  std::vector<Op>& out_;
  std::map<TensorId, std::vector<TensorId>> contributions_;
  std::map<TensorId, TensorId> parameter_gradients_;
  std::map<TensorId, TensorId> cast_of_;  // parameter, by copy in the type that is computed in
  std::map<std::string, std::size_t> names_;
};

/// Forward: reduce_from_group is an all-reduce, copy_to_group nothing at all.
void lower_conjugates(Graph& graph) {
  std::map<TensorId, TensorId> same;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    for (TensorId& id : op.inputs) {
      if (const auto found = same.find(id); found != same.end()) id = found->second;
    }
    if (op.kind == OpKind::copy_to_group) {
      same.emplace(op.outputs[0], op.inputs[0]);
      continue;
    }
    if (op.kind == OpKind::reduce_from_group) op.kind = OpKind::all_reduce;
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
}

/// Gathered tensors are not kept for backward but gathered again, from the part that is kept
/// (Korthikanti et al. 2022, section 4.2.2; Megatron-LM's linear_with_grad_accumulation).
void gather_again(Graph& graph) {
  std::map<TensorId, Op> gathers;
  std::map<TensorId, TensorId> again;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    if (op.phase == Phase::forward && op.kind == OpKind::all_gather) gathers[op.outputs[0]] = op;
    if (op.phase == Phase::backward) {
      for (TensorId& id : op.inputs) {
        const auto gather = gathers.find(id);
        if (gather == gathers.end()) continue;
        const auto [found, fresh] = again.try_emplace(id, id);
        if (fresh) {
          Tensor copy = graph.at(id);
          copy.name += ".again";
          found->second = graph.add(std::move(copy));
          Op repeated = gather->second;
          repeated.phase = Phase::backward;
          repeated.outputs = {found->second};
          ops.push_back(std::move(repeated));
        }
        id = found->second;
      }
    }
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
}

}  // namespace

bool backward(Graph& graph, const PassContext& context) {
  if (graph.blocks.empty()) return false;
  std::vector<Op> ops;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    std::vector<Op> forward;
    for (const Op& op : graph.ops) {
      if (op.block == BlockId(b)) forward.push_back(op);
    }
    ops.insert(ops.end(), forward.begin(), forward.end());
    BlockBackward(graph, BlockId(b), ops).run(forward);
  }
  graph.ops = std::move(ops);
  lower_conjugates(graph);
  if (context.framework.gathers_tokens_again) gather_again(graph);
  mark_saved(graph);
  remove_unused_tensors(graph);
  return true;
}

}  // namespace plimsoll
