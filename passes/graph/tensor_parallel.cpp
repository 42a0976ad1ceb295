// Parameters and activations are split over mp.
#include <map>
#include <set>

#include "base/error.h"
#include "graph/op_table.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"

namespace plimsoll {

namespace {

/// Rewrites the ops of a graph for `degree` tensor-parallel ranks. Tracks which activations are
/// split (and along which dimension); all others are replicated.
class Splitter {
 public:
  /// `experts_apart`: experts are split by ranks of their own (passes/graph/expert_parallel.cpp).
  Splitter(Graph& graph, std::int64_t degree, bool experts_apart)
      : graph_(graph), degree_(degree), experts_apart_(experts_apart) {}

  bool run() {
    std::vector<bool> apart(graph_.tensors.size());
    for (const Op& op : graph_.ops) {
      const bool of_experts =
          op.kind == OpKind::grouped_matmul || op.kind == OpKind::grouped_bias_add;
      if (experts_apart_ && of_experts) apart[op.inputs[1].index()] = true;
    }
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      Tensor& tensor = graph_.tensors[i];
      const bool splits = is_one_parameter(tensor) && tensor.split && !apart[i];
      if (splits) split_parameter(tensor);
    }
    std::vector<Op> ops = std::move(graph_.ops);
    for (Op& op : ops) rewrite(op);
    graph_.ops = std::move(out_);
    graph_.grid.degree[std::size_t(Axis::mp)] = degree_;
    return true;
  }

 private:
  /// Pads the split dimension up to a multiple of the degree (vocabulary rows, dimension 0). With
  /// fewer key and value heads than ranks, consecutive ranks hold the same head, and each computes
  /// the part of its gradient that comes from its own query heads.
  void split_parameter(Tensor& parameter) {
    const std::int64_t dim = parameter.split->dim;
    std::int64_t& extent = parameter.shape[std::size_t(dim)];
    parameter.split = split_along(dim, extent, dim > 0);
    const std::int64_t part = (extent + parameter.split->degree - 1) / parameter.split->degree;
    parameter.split->padding = part * parameter.split->degree - extent;
    extent = part;
    if (parameter.split->copies == 1) return;
    parameter.gradient_group = Group{{Axis::mp}};
    if (parameter.split->copies < degree_) {
      parameter.gradient_group->mp_run = parameter.split->copies;
    }
  }

  Split split_along(std::int64_t dim, std::int64_t extent, bool may_copy) const {
    const bool copies = may_copy && extent < degree_;
    INVARIANT(!copies || degree_ % extent == 0, "ranks share heads evenly");
    return copies ? Split{dim, Axis::mp, extent, degree_ / extent} : Split{dim, Axis::mp, degree_};
  }

  std::optional<std::int64_t> split_of(TensorId id) const {
    if (graph_.at(id).split) return graph_.at(id).split->dim;
    return std::nullopt;
  }

  void split_activation(TensorId id, std::int64_t dim) {
    Tensor& tensor = graph_.at(id);
    std::int64_t& extent = tensor.shape[std::size_t(dim)];
    tensor.split = split_along(dim, extent, dim > 0 && tensor.shape.size() == 4);
    extent = (extent + tensor.split->degree - 1) / tensor.split->degree;
  }

  /// Splits heads [b,kv,g*s,d] of a value that is split by heads [n,parts,a,d]. Where ranks share a
  /// key and value head, each has some of its g query heads. In memory it is still 1/degree of
  /// [b,a,s,d].
  void split_into_heads(TensorId id, const Split& from) {
    Tensor& heads = graph_.at(id);
    if (from.copies > 1 || heads.shape[1] >= degree_) return split_activation(id, 1);
    heads.shape[2] = heads.shape[1] * heads.shape[2] / degree_;
    heads.shape[1] = 1;
    heads.split = Split{1, Axis::mp, degree_};
  }

  /// Products and softmax over heads: rows as in their first operand.
  void split_like(TensorId id, TensorId from) {
    Tensor& heads = graph_.at(id);
    const Tensor& first = graph_.at(from);
    for (std::size_t d = 0; d < 3; ++d) heads.shape[d] = first.shape[d];
    heads.split = first.split;
  }

  Op group_op(const Op& near, OpKind kind, TensorId input, TensorId output, Reduction reduction) {
    return op_near(near, kind, {input}, {output}, CollectiveParams{Group{{Axis::mp}}, reduction},
                   Stream::mp);
  }

  /// A replicated value entering a split computation: one copy_to_group per value.
  TensorId copied(const Op& near, TensorId x) {
    const auto [found, fresh] = copies_.try_emplace(x, x);
    if (fresh) {
      found->second = add_like(graph_, x, ".copied");
      out_.push_back(group_op(near, OpKind::copy_to_group, x, found->second, Reduction::sum));
    }
    return found->second;
  }

  /// Lets `op` write a partial value; its old output is the result of the reduction. A bias is
  /// added once, after the reduction.
  void emit_partial(Op op, Reduction reduction) {
    const TensorId whole = op.outputs[0];
    const TensorId partial = add_like(graph_, whole, ".partial");
    op.outputs[0] = partial;
    std::optional<TensorId> bias;
    if (op.kind == OpKind::matmul && op.inputs.size() == 3) {
      bias = op.inputs[2];
      op.inputs.pop_back();
    }
    out_.push_back(op);
    const TensorId reduced = bias ? add_like(graph_, whole, ".reduced") : whole;
    out_.push_back(group_op(op, OpKind::reduce_from_group, partial, reduced, reduction));
    if (!bias) return;
    out_.push_back(op_near(op, OpKind::bias_add, {reduced, *bias}, {whole}));
  }

  void rewrite_matmul(Op op) {
    const auto& params = std::get<MatmulParams>(op.params);
    const Tensor& weight = graph_.at(op.inputs[1]);
    if (!is_one_parameter(weight)) {  // attention: batch over heads
      if (split_of(op.inputs[0])) split_like(op.outputs[0], op.inputs[0]);
      out_.push_back(std::move(op));
    } else if (!weight.split) {
      out_.push_back(std::move(op));
    } else if (weight.split->dim == 0 && !params.transpose_b) {  // row parallel
      INVARIANT(split_of(op.inputs[0]).has_value(), "row-parallel matmul needs a split input");
      emit_partial(std::move(op), Reduction::sum);
    } else {  // column parallel; [v,h] transposed: rows of the weight are columns of the output
      const std::int64_t dim = params.transpose_b ? 1 : weight.split->dim;
      op.inputs[0] = copied(op, op.inputs[0]);
      split_activation(op.outputs[0], dim);
      out_.push_back(std::move(op));
    }
  }

  void rewrite(Op& op) {
    if (auto* vocabulary = std::get_if<VocabularyParams>(&op.params))
      vocabulary->split_degree = degree_;
    switch (op.kind) {
      case OpKind::matmul:
        return rewrite_matmul(std::move(op));
      case OpKind::embedding:
        return emit_partial(std::move(op), Reduction::sum);
      case OpKind::logits_max:
        return emit_partial(std::move(op), Reduction::max);
      case OpKind::logits_sum_exp:
        return emit_partial(std::move(op), Reduction::sum);
      case OpKind::split_heads:  // [n,parts,a,d] -> [b,a,s,d]
        if (split_of(op.inputs[0])) {
          const Split from = *graph_.at(op.inputs[0]).split;
          for (TensorId id : op.outputs) split_into_heads(id, from);
        }
        break;
      case OpKind::swiglu:  // [n,2,f] -> [n,f]
      case OpKind::geglu:
        if (split_of(op.inputs[0]) && op.inputs.size() > 1 && !of_rows_.contains(op.inputs[1]))
          op.inputs[1] = copied(op, op.inputs[1]);
        [[fallthrough]];
      case OpKind::merge_heads:
        if (split_of(op.inputs[0])) split_activation(op.outputs[0], 1);
        break;
      case OpKind::add_sinks:  // [n,a*d], [b,kv,g*s]
        if (split_of(op.inputs[0])) {
          for (std::size_t i : {0u, 1u}) {
            graph_.at(op.outputs[i]).shape = graph_.at(op.inputs[i]).shape;
            graph_.at(op.outputs[i]).split = graph_.at(op.inputs[i]).split;
          }
        }
        break;
      case OpKind::grouped_bias_add:  // to partial sums, of which each rank has the whole bias
        if (!experts_apart_ && !split_of(op.inputs[0]))
          std::get<GroupedBiasParams>(op.params).ranks = degree_;
        split_as_input(op);
        break;
      case OpKind::flash_attention:  // [n,parts,a,d] -> [n,a*d], [b,kv,g*s]
        if (split_of(op.inputs[0])) {
          split_activation(op.outputs[0], 1);
          split_into_heads(op.outputs[1], *graph_.at(op.inputs[0]).split);
        }
        break;
      case OpKind::dispatch_rows:  // to experts that are split
        if (experts_apart_) break;
        op.inputs[0] = copied(op, op.inputs[0]);
        op.inputs[2] = copied(op, op.inputs[2]);
        of_rows_.insert(op.outputs[1]);
        break;
      case OpKind::grouped_matmul:
        if (!experts_apart_) split_experts(op);
        break;
      case OpKind::combine_rows:  // of what each rank has a part
        if (experts_apart_) break;
        return emit_partial(std::move(op), Reduction::sum);
      case OpKind::share_rope_key:  // [n,1,a,c], [n,1,1,p] -> [n,1,a,d], [n,1,a,e]
        if (split_of(op.inputs[0])) {
          op.inputs[1] = copied(op, op.inputs[1]);
          for (TensorId id : op.outputs) split_activation(id, 2);
        }
        break;
      case OpKind::join_tokens:  // of gate and up [n,f] -> [n,2,f]
        if (split_of(op.inputs[0])) split_activation(op.outputs[0], 2);
        break;
      case OpKind::rms_norm:  // of heads [n,1,a,d] that are split: rstd [n,1,a]
        split_head_norm(op);
        break;
      default:
        row(op.kind).keeps_split ? split_as_input(op) : refuse_split_inputs(op);
    }
    out_.push_back(std::move(op));
  }

  /// Experts [e,h,2,f] are split by columns, which makes their rows so. Those [e,f,h] are split by
  /// rows and give partial sums, which combine_rows adds up before the ranks do. Of adapters, each
  /// rank has the whole of what reads or gives narrow rows, and a part of its gradient.
  void split_experts(const Op& op) {
    Tensor& weight = graph_.at(op.inputs[1]);
    if (!weight.split) {
      weight.gradient_group = Group{{Axis::mp}};
      return;
    }
    const std::int64_t dim = weight.split->dim;
    if (dim > 1) return split_activation(op.outputs[0], dim - 1);
    INVARIANT(split_of(op.inputs[0]).has_value(), "row-parallel experts need split rows");
  }

  /// Each rank norms its own heads, with weights that all ranks have.
  void split_head_norm(const Op& op) {
    const std::optional<Split> split = graph_.at(op.inputs[0]).split;
    if (!split) return;
    const Shape& heads = graph_.at(op.inputs[0]).shape;
    INVARIANT(split->dim == 2 && heads.size() == 4, "heads are split whole");
    if (op.inputs.size() > 1) graph_.at(op.inputs[1]).gradient_group = Group{{Axis::mp}};
    graph_.at(op.outputs[0]).shape = heads;
    graph_.at(op.outputs[1]).shape = {heads[0], heads[1], heads[2]};
    for (const TensorId id : op.outputs) graph_.at(id).split = split;
  }

  void split_as_input(const Op& op) {
    if (!split_of(op.inputs[0])) return;
    for (TensorId id : op.outputs) {
      graph_.at(id).shape = graph_.at(op.inputs[0]).shape;
      graph_.at(id).split = graph_.at(op.inputs[0]).split;
    }
  }

  void refuse_split_inputs(const Op& op) const {
    for (TensorId id : op.inputs) {
      INVARIANT(!split_of(id) || is_one_parameter(graph_.at(id)),
                "op " + std::string(to_text(op.kind)) + " cannot read a split value");
    }
  }

  Graph& graph_;
  std::int64_t degree_;
  bool experts_apart_;
  std::vector<Op> out_;
  std::map<TensorId, TensorId> copies_;
  std::set<TensorId> of_rows_;  // weights of experts' rows, which were copied as weights of choices
};

}  // namespace

bool tensor_parallel(Graph& graph, const PassContext& context) {
  if (context.strategy.mp == 1) return false;
  return Splitter(graph, context.strategy.mp, experts_apart(context.strategy)).run();
}

}  // namespace plimsoll
