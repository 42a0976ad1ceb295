// Adds the gradient ops, by the rules of the op table and those that need more than a rule.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/gradient_rule.h"
#include "graph/op_rows.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/graph/saved_tensors.h"

namespace plimsoll {

namespace {

/// Adds the gradient ops of one block after its forward ops, in reverse order.
class BlockBackward {
 public:
  BlockBackward(Graph& graph, BlockId block, const std::vector<Op>& forward, std::vector<Op>& out)
      : graph_(graph), block_(block), forward_(forward), out_(out) {}

  void run() {
    for (const Op& op : forward_) {
      const bool casts = op.kind == OpKind::cast;
      if (casts && graph_.at(op.inputs[0]).role == TensorRole::parameter)
        cast_of_.emplace(op.outputs[0], op.inputs[0]);
    }
    find_sinks();
    find_trained();
    Block& definition = graph_.at(block_);
    if (definition.output) {
      definition.output_gradient = gradient_like(*definition.output);
      contribute(*definition.output, *graph_.at(block_).output_gradient);
    }
    for (auto op = forward_.rbegin(); op != forward_.rend(); ++op) visit(*op);
    if (const auto input = graph_.at(block_).input)
      graph_.at(block_).input_gradient = gradient_of(*input);
  }

  /// Finds the values that depend on the block's input or on parameters that are trained. No other
  /// value needs a gradient. Layers before this one have something to train (check_job()), so the
  /// input always does.
  void find_trained() {
    trained_.resize(graph_.tensors.size());
    if (const auto input = graph_.at(block_).input) trained_[input->index()] = true;
    for (const Op& op : forward_) {
      const bool reached = std::ranges::any_of(op.inputs, [&](TensorId id) {
        return trained_[id.index()] || graph_.at(id).role == TensorRole::parameter;
      });
      for (const TensorId id : op.outputs) trained_[id.index()] = reached;
    }
  }

  /// Whether a rule of this class, and not of the op table, gives the gradients of a kind.
  static constexpr bool has_rule(OpKind kind) {
    return std::ranges::any_of(kOwnRules, [&](const OwnRule& rule) { return rule.kind == kind; });
  }

 private:
  /// Finds the results of attention with sinks. Sinks that stay f32 beside a narrower type are
  /// added between two casts.
  void find_sinks() {
    std::map<TensorId, TensorId> cast_from, cast_to;
    for (const Op& op : forward_) {
      if (op.kind != OpKind::cast) continue;
      cast_from.emplace(op.outputs[0], op.inputs[0]);
      cast_to.emplace(op.inputs[0], op.outputs[0]);
    }
    for (const Op& op : forward_) {
      if (op.kind != OpKind::add_sinks) continue;
      for (const std::size_t i : {0u, 1u}) {
        const auto wide = cast_from.find(op.inputs[i]);
        if (wide == cast_from.end()) {
          with_sinks_.emplace(op.inputs[i], op.outputs[i]);
        } else {
          with_sinks_.emplace(wide->second, cast_to.at(op.outputs[i]));
        }
      }
    }
  }

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

  bool is_parameter(TensorId value) const {
    return graph_.at(uncast(value)).role == TensorRole::parameter;
  }

  /// Returns the persistent gradient of a parameter, or of the parameter of a cast. It accumulates
  /// over micro-batches.
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

  /// Returns whether a value that forward computes, or a parameter, needs a gradient.
  bool needs_gradient(TensorId value) const {
    return trained_[value.index()] || graph_.at(value).role == TensorRole::parameter;
  }

  void contribute(TensorId value, TensorId gradient) {
    if (needs_gradient(value)) contributions_[value].push_back(gradient);
  }

  bool has_gradient(TensorId value) const { return contributions_.contains(value); }

  /// Returns the whole gradient of a value: the sum of the gradients that its readers gave.
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
    out_.push_back(op_of(Phase::backward, block_, kind, std::move(inputs), std::move(outputs),
                         std::move(params), stream));
  }

  void matmul(const Op& op, TensorId dc) {
    MatmulParams of_a = std::get<MatmulParams>(op.params), of_b = of_a;
    INVARIANT(!of_a.transpose_a, "forward matmuls do not transpose their first operand");
    const TensorId a = op.inputs[0], b = op.inputs[1];
    const bool weight = is_parameter(b);
    if (op.inputs.size() == 3 && needs_gradient(op.inputs[2]))
      emit(OpKind::bias_gradient, {dc}, {parameter_gradient(op.inputs[2])});
    // c = a b: db = a^T dc, da = dc b^T.   c = a b^T: db = dc^T a, da = dc b.
    of_b.transpose_a = true;
    of_b.transpose_b = false;
    of_b.accumulate = weight;
    const bool transposed = std::get<MatmulParams>(op.params).transpose_b;
    if (needs_gradient(b)) {
      const TensorId db = weight ? parameter_gradient(b) : gradient_like(b);
      emit(OpKind::matmul, transposed ? std::vector{dc, a} : std::vector{a, dc}, {db}, of_b);
      if (!weight) contribute(b, db);
    }
    if (!needs_gradient(a)) return;
    of_a.transpose_b = !transposed;
    const TensorId da = gradient_like(a);
    emit(OpKind::matmul, {dc, b}, {da}, of_a);
    contribute(a, da);
  }

  /// Returns the op's operand for an operand of a rule, and nothing where the op lacks an optional
  /// operand.
  std::optional<TensorId> read(const RuleOperand& operand, const Op& op,
                               const std::vector<std::optional<TensorId>>& input_gradients) {
    using Role = RuleOperand::Role;
    const Signature& signature = row(op.kind).operands;
    const bool input = operand.role == Role::input || operand.role == Role::input_gradient;
    const auto index = input ? signature.inputs.index(operand.position, op.inputs.size())
                             : signature.outputs.index(operand.position, op.outputs.size());
    if (!index) return std::nullopt;
    switch (operand.role) {
      case Role::input:
        return op.inputs[*index];
      case Role::output: {
        const auto sunk = with_sinks_.find(op.outputs[*index]);
        return sunk == with_sinks_.end() ? op.outputs[*index] : sunk->second;
      }
      case Role::input_gradient:
        return input_gradients[*index];
      case Role::output_gradient:
        return gradient_of(op.outputs[*index]);
    }
    return std::nullopt;
  }

  /// Returns whether a step gives a gradient that is needed.
  bool needed_by(const RuleStep& step, const Op& op) const {
    const OperandList& inputs = row(op.kind).operands.inputs;
    return std::ranges::any_of(step.gradients(), [&](std::size_t position) {
      const auto index = inputs.index(position, op.inputs.size());
      return index && needs_gradient(op.inputs[*index]);
    });
  }

  static std::optional<std::size_t> input_of(const RuleStep& step, std::size_t gradient,
                                             const Op& op) {
    return row(op.kind).operands.inputs.index(step.gradients()[gradient], op.inputs.size());
  }
  bool is_frozen(TensorId value) const {
    return graph_.at(value).role == TensorRole::frozen_parameter;
  }

  /// Returns whether the op of a step can leave out this gradient and those behind it, which are
  /// all of frozen parameters.
  bool ends_before(const RuleStep& step, std::size_t gradient, const Op& op) const {
    for (std::size_t i = gradient; i < step.gradients().size(); ++i) {
      const auto index = input_of(step, i, op);
      if (index && !is_frozen(op.inputs[*index])) return false;
      if (!row(*step.kind).operands.outputs[i].optional) return false;
    }
    return true;
  }

  /// Returns memory for the gradient of a frozen parameter that an op gives with others.
  TensorId unread_gradient(TensorId parameter) {
    const TensorId id = gradient_like(parameter);
    emit(OpKind::fill, {}, {id}, FillParams{0});
    return id;
  }

  /// Applies a step of a rule. A parameter has one gradient of the step; the gradient of another
  /// value is one term of its whole gradient.
  void apply(const RuleStep& step, const Op& op,
             std::vector<std::optional<TensorId>>& input_gradients) {
    std::vector<TensorId> reads, gradients;
    for (const RuleOperand& operand : step.reads()) {
      if (const auto id = read(operand, op, input_gradients)) reads.push_back(*id);
    }
    if (!needed_by(step, op)) return;
    for (std::size_t i = 0; i < step.gradients().size(); ++i) {
      const auto index = input_of(step, i, op);
      if (!index) continue;
      const TensorId x = op.inputs[*index];
      if (step.kind && is_frozen(x)) {
        if (!ends_before(step, i, op)) gradients.push_back(unread_gradient(x));
        continue;
      }
      if (!step.kind) return contribute(x, reads.at(0));
      const bool parameter = is_parameter(x);
      gradients.push_back(parameter ? parameter_gradient(x) : gradient_like(x));
      input_gradients[*index] = gradients.back();
      if (!parameter) contribute(x, gradients.back());
    }
    if (gradients.empty()) return;
    const bool same = row(*step.kind).params == op.params.index();
    emit(*step.kind, std::move(reads), std::move(gradients), same ? op.params : OpParams(),
         op.stream);
  }

  /// The loss is where gradients start: d logits = weight * (softmax - one hot).
  void token_loss(const Op& op) {
    for (const Op& other : forward_) {
      if (other.kind != OpKind::logits_sum_exp) continue;
      const TensorId logits = other.inputs[0], dlogits = gradient_like(logits);
      emit(OpKind::cross_entropy_backward, {logits, other.inputs[2], op.outputs[0]}, {dlogits},
           op.params);
      contribute(logits, dlogits);
    }
  }

  /// A communication over the op's group gives the gradient of its input.
  void collective(const Op& op, OpKind kind, TensorId dy) {
    const TensorId dx = gradient_like(op.inputs[0]);
    const auto* params = std::get_if<CollectiveParams>(&op.params);
    const bool own_part = params == nullptr;  // of what all mp ranks have
    emit(kind, {dy}, {dx}, CollectiveParams{own_part ? Group{{Axis::mp}} : params->group},
         own_part ? Stream::mp : op.stream);
    contribute(op.inputs[0], dx);
  }

  /// Returns whether a value is gathered for split computations only. Its gradients are then
  /// partial sums, which one reduce-scatter sums and splits.
  bool only_copied(TensorId id) const {
    bool gathered = false, copied = true;
    for (const Op& op : forward_) {
      gathered = gathered || (op.kind == OpKind::all_gather && op.outputs[0] == id);
      for (TensorId input : op.inputs) {
        copied = copied && (input != id || op.kind == OpKind::copy_to_group);
      }
    }
    return gathered && copied;
  }

  void copy_to_group(const Op& op, TensorId dy) {
    if (only_copied(op.inputs[0])) return contribute(op.inputs[0], dy);
    collective(op, OpKind::all_reduce, dy);
  }

  void all_gather(const Op& op, TensorId dy) {
    if (only_copied(op.outputs[0])) return collective(op, OpKind::reduce_scatter, dy);
    const TensorId dx = gradient_like(op.inputs[0]);
    emit(OpKind::own_part, {dy}, {dx});
    contribute(op.inputs[0], dx);
  }

  void gather_parts(const Op& op, TensorId dy) { collective(op, OpKind::all_gather, dy); }

  void visit(const Op& op) {
    if (op.kind == OpKind::token_loss) return token_loss(op);
    bool reached = false;
    for (TensorId id : op.outputs) reached = reached || has_gradient(id);
    const bool needed =
        std::ranges::any_of(op.inputs, [&](TensorId id) { return needs_gradient(id); });
    if (!reached || !needed) return;  // the loss, or nothing that is trained, depends on it
    const TensorId dy = gradient_of(op.outputs[0]);
    for (const OwnRule& own : kOwnRules) {
      if (own.kind == op.kind) return (this->*own.rule)(op, dy);
    }
    const GradientRule& rule = gradient_rule(op.kind);
    INVARIANT(rule.count > 0, "no gradient for " + std::string(to_text(op.kind)));
    std::vector<std::optional<TensorId>> input_gradients(op.inputs.size());
    for (const RuleStep& step : rule.steps()) apply(step, op, input_gradients);
  }

  struct OwnRule {
    OpKind kind;
    void (BlockBackward::*rule)(const Op&, TensorId);
  };
  static constexpr std::array kOwnRules = {
      OwnRule{OpKind::matmul, &BlockBackward::matmul},
      OwnRule{OpKind::copy_to_group, &BlockBackward::copy_to_group},
      OwnRule{OpKind::all_gather, &BlockBackward::all_gather},
      OwnRule{OpKind::reduce_scatter, &BlockBackward::gather_parts},
      OwnRule{OpKind::own_part, &BlockBackward::gather_parts},
  };

  Graph& graph_;
  BlockId block_;
  const std::vector<Op>& forward_;
  std::vector<Op>& out_;
  std::vector<bool> trained_;  // of forward, by tensor: depends on what is trained
  std::map<TensorId, std::vector<TensorId>> contributions_;
  std::map<TensorId, TensorId> parameter_gradients_;
  std::map<TensorId, TensorId> with_sinks_;  // results of attention, by those without its sinks
  std::map<TensorId, TensorId> cast_of_;     // parameter, by copy in the type that is computed in
  std::map<std::string, std::size_t> names_;
};

constexpr bool has_all_own_rules() {
  return std::ranges::all_of(kOpRows, [](const OpRow& row) {
    const bool own = BlockBackward::has_rule(row.kind) || row.kind == OpKind::token_loss;
    return own == (row.backward == kInBackwardPass);
  });
}
static_assert(has_all_own_rules(), "the op table and this pass disagree on whose rule a kind has");

/// In forward, reduce_from_group becomes an all-reduce and copy_to_group vanishes.
void lower_conjugates(Graph& graph) {
  std::map<TensorId, TensorId> same;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    rename(op.inputs, same);
    if (op.kind == OpKind::copy_to_group) {
      same.emplace(op.outputs[0], op.inputs[0]);
      continue;
    }
    if (op.kind == OpKind::reduce_from_group) op.kind = OpKind::all_reduce;
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
}

/// Backward repeats ops of a kind rather than keep what they give: gathered tensors (Korthikanti et
/// al. 2022, section 4.2.2; Megatron-LM's linear_with_grad_accumulation), and weights of 4 bits
/// (bitsandbytes autograd/_functions.py, MatMul4Bit).
void repeat_in_backward(Graph& graph, OpKind kind) {
  std::map<TensorId, Op> repeated_ops;
  std::map<TensorId, TensorId> again;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    if (op.phase == Phase::forward && op.kind == kind) repeated_ops[op.outputs[0]] = op;
    if (op.phase == Phase::backward) {
      for (TensorId& id : op.inputs) {
        const auto found_op = repeated_ops.find(id);
        if (found_op == repeated_ops.end()) continue;
        const auto [found, fresh] = again.try_emplace(id, id);
        if (fresh) {
          found->second = add_like(graph, id, ".again");
          Op repeated = found_op->second;
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
  const std::vector<std::vector<Op>> forward = ops_by_block(graph);
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    ops.insert(ops.end(), forward[b].begin(), forward[b].end());
    BlockBackward(graph, BlockId(b), forward[b], ops).run();
  }
  graph.ops = std::move(ops);
  lower_conjugates(graph);
  if (context.framework.parallelism.gathers_tokens_again)
    repeat_in_backward(graph, OpKind::all_gather);
  repeat_in_backward(graph, OpKind::unpack_weight);
  mark_saved(graph);
  remove_unused_tensors(graph);
  return true;
}

}  // namespace plimsoll
