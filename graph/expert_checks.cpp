// Legality of the ops of a mixture of experts.
#include "graph/op_rows.h"

namespace plimsoll {

namespace {

using Tensors = std::span<const Tensor>;

const Shape& input_shape(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.inputs[i].index()].shape;
}
const Shape& output_shape(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.outputs[i].index()].shape;
}
bool is_matrix(const Shape& shape) { return shape.size() == 2; }

/// Rows of a value [m,...], by what they have in common.
std::int64_t columns(const Shape& shape) { return elements(shape) / shape[0]; }

}  // namespace

Verdict check_route(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::route_backward;
  const auto& params = std::get<RouteParams>(op.params);
  const Shape& logits = input_shape(op, tensors, backward ? 1 : 0);
  const Shape& weights = backward ? input_shape(op, tensors, 0) : output_shape(op, tensors, 0);
  const Shape& experts = backward ? input_shape(op, tensors, 2) : output_shape(op, tensors, 1);
  if (!is_matrix(logits) || !is_matrix(weights) || weights != experts || weights[0] != logits[0])
    return Verdict::no("weights and experts are not [n,k] for logits [n,e]");
  const std::int64_t most = logits[1], groups = params.groups;
  if (groups < 1 || most % groups != 0) return Verdict::no("groups do not divide the experts");
  const std::int64_t each = most / groups;
  if (params.top_groups < 1 || params.top_groups > groups)
    return Verdict::no("top_groups is not from 1 to the number of groups");
  if (params.group_best < 1 || params.group_best > each)
    return Verdict::no("group_best is not from 1 to the experts of a group");
  if (weights[1] < 1 || weights[1] > params.top_groups * each)
    return Verdict::no("a token chooses more experts than there are");
  return Verdict::yes();
}

Verdict check_balance(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::balance_experts_backward;
  const Shape &logits = input_shape(op, tensors, backward ? 0 : 1),
              &counts = input_shape(op, tensors, backward ? 1 : 2);
  if (!is_matrix(logits) || !is_matrix(counts) || logits[1] != counts[1])
    return Verdict::no("counts are not [b,e] for logits [n,e]");
  if (std::get<BalanceParams>(op.params).sequence < 1)
    return Verdict::no("sequences have no length");
  if (backward) {
    return output_shape(op, tensors, 0) == logits
               ? Verdict::yes()
               : Verdict::no("the gradient is not like the logits");
  }
  return input_shape(op, tensors, 0) == output_shape(op, tensors, 0)
             ? Verdict::yes()
             : Verdict::no("y is not like the weights");
}

Verdict check_place(const Op& op, Tensors tensors) {
  const auto& params = std::get<PlaceParams>(op.params);
  const Shape& experts = input_shape(op, tensors, 0);
  const Shape &rows = output_shape(op, tensors, 0), &ends = output_shape(op, tensors, 1),
              &counts = output_shape(op, tensors, 2);
  if (!is_matrix(experts) || !is_matrix(rows) || rows[1] != experts[1] ||
      experts[0] % rows[0] != 0) {
    return Verdict::no("rows are not those of the experts, or of a part of the tokens");
  }
  if (params.sequence < 1 || experts[0] % params.sequence != 0)
    return Verdict::no("the tokens are not whole sequences");
  if (params.parts < 1 || !is_matrix(counts) || counts[0] != experts[0] / params.sequence ||
      counts[1] != elements(ends) * params.parts) {
    return Verdict::no("counts are not [b,e], or ends are not of a part of the experts");
  }
  return params.capacity >= 0 && params.rows >= 1 ? Verdict::yes()
                                                  : Verdict::no("capacity or rows are negative");
}

Verdict check_received(const Op& op, Tensors tensors) {
  const auto& params = std::get<PlaceParams>(op.params);
  const Shape &all = input_shape(op, tensors, 0), &own = output_shape(op, tensors, 0);
  if (!is_matrix(all) || params.parts < 1 || all[1] != elements(own) * params.parts)
    return Verdict::no("ends are not of a part of the experts");
  return params.rows >= 1 ? Verdict::yes() : Verdict::no("rows are not positive");
}

Verdict check_exchange(const Op& op, Tensors tensors) {
  const Shape &from = input_shape(op, tensors, 0), &all = input_shape(op, tensors, 1),
              &to = output_shape(op, tensors, 0);
  if (std::get<CollectiveParams>(op.params).group.axes.empty())
    return Verdict::no("group has no axes");
  if (!is_matrix(all) || all[1] % all[0] != 0)
    return Verdict::no("the experts are not equal parts for the ranks");
  if (from.empty() || to.empty() || columns(from) != columns(to))
    return Verdict::no("rows change their length");
  return Verdict::yes();
}

Verdict check_dispatch(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::dispatch_rows_backward;
  const Shape& rows = input_shape(op, tensors, backward ? 2 : 1);
  const Shape& x = backward ? output_shape(op, tensors, 0) : input_shape(op, tensors, 0);
  const Shape& weights = backward ? output_shape(op, tensors, 1) : input_shape(op, tensors, 2);
  const Shape& y = backward ? input_shape(op, tensors, 0) : output_shape(op, tensors, 0);
  const Shape& row_weights = backward ? input_shape(op, tensors, 1) : output_shape(op, tensors, 1);
  if (!is_matrix(x) || !is_matrix(rows) || rows != weights || rows[0] != x[0])
    return Verdict::no("rows and weights are not [n,k] for x [n,h]");
  if (!is_matrix(y) || y[1] != x[1] || elements(row_weights) != y[0])
    return Verdict::no("y and row_weights are not [m,h] and [m]");
  return Verdict::yes();
}

Verdict check_combine(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::combine_rows_backward;
  const Shape& rows = input_shape(op, tensors, 1);
  const Shape& x = backward ? input_shape(op, tensors, 0) : output_shape(op, tensors, 0);
  const Shape& y = backward ? output_shape(op, tensors, 0) : input_shape(op, tensors, 0);
  if (!is_matrix(x) || !is_matrix(rows) || rows[0] != x[0])
    return Verdict::no("rows are not [n,k] for x [n,h]");
  return is_matrix(y) && y[1] == x[1] ? Verdict::yes() : Verdict::no("y is not [m,h]");
}

Verdict check_grouped(const Op& op, Tensors tensors) {
  const bool gradient = op.kind == OpKind::grouped_weight_gradient;
  const bool backward = op.kind == OpKind::grouped_matmul_backward;
  const Shape& weight = gradient ? output_shape(op, tensors, 0) : input_shape(op, tensors, 1);
  const Shape& x = backward ? output_shape(op, tensors, 0) : input_shape(op, tensors, 0);
  const Shape& y = backward   ? input_shape(op, tensors, 0)
                   : gradient ? input_shape(op, tensors, 1)
                              : output_shape(op, tensors, 0);
  if (weight.size() < 3 || elements(input_shape(op, tensors, 2)) != weight[0])
    return Verdict::no("the weight is not [e,h,f] for ends [e]");
  if (x.size() < 2 || y.size() < 2 || x[0] != y[0] || columns(x) != weight[1] ||
      columns(y) != elements(weight) / (weight[0] * weight[1])) {
    return Verdict::no("x and y are not [m,h] and [m,f] for a weight [e,h,f]");
  }
  return Verdict::yes();
}

}  // namespace plimsoll
