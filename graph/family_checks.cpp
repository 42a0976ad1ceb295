// Legality of ops that only some model families have.
#include "graph/op_checks.h"

namespace plimsoll {

namespace {

using Tensors = std::span<const Tensor>;

const Tensor& in(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.inputs[i].index()];
}
const Tensor& out(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.outputs[i].index()];
}

Verdict check_mask(const Tensor& mask, const Tensor& y) {
  return mask.dtype == DType::u8 && elements(mask.shape) == elements(y.shape)
             ? Verdict::yes()
             : Verdict::no("the mask is not one u8 per element");
}

Verdict check_rate(const Op& op) {
  const double rate = std::get<DropoutParams>(op.params).rate;
  return rate > 0 && rate < 1 ? Verdict::yes() : Verdict::no("the rate is not between 0 and 1");
}

}  // namespace

Verdict check_predicted(const Op& op, Tensors tensors) {
  const auto& params = std::get<DataParams>(op.params);
  const Tensor& ids = out(op, tensors, 0);
  if (ids.dtype != DType::i32) return Verdict::no("rows or targets are not i32");
  if (params.predicted < 1 || params.predicted > params.sequence ||
      elements(ids.shape) % params.predicted != 0) {
    return Verdict::no("there are not as many as predicted positions in whole sequences");
  }
  return Verdict::yes();
}

Verdict check_token_types(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::token_type_add_backward;
  const Shape& x = in(op, tensors, 0).shape;
  const Shape& table = (backward ? out(op, tensors, 0) : in(op, tensors, 1)).shape;
  const std::int64_t sequence = std::get<DataParams>(op.params).sequence;
  if (x.size() != 2 || table.size() != 2 || x[1] != table[1]) {
    return Verdict::no("x does not have the table's columns");
  }
  if (sequence < 1 || x[0] % sequence != 0) return Verdict::no("x is not whole sequences");
  return table[0] <= sequence ? Verdict::yes() : Verdict::no("more token types than positions");
}

Verdict check_rms_norm(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::rms_norm_backward;
  const Shape& x = in(op, tensors, backward ? 1 : 0).shape;
  const Shape& gamma = in(op, tensors, backward ? 2 : 1).shape;
  const Tensor& rstd = backward ? in(op, tensors, 3) : out(op, tensors, 1);
  if (x.size() != 2 || elements(gamma) != x[1])
    return Verdict::no("gamma does not match the rows of x");
  return elements(rstd.shape) == x[0] ? Verdict::yes()
                                      : Verdict::no("rstd does not have one element per row");
}

Verdict check_swiglu(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::swiglu_backward;
  const Shape& x = in(op, tensors, backward ? 1 : 0).shape;
  const Shape& y = backward ? in(op, tensors, 0).shape : out(op, tensors, 0).shape;
  if (x.size() != 3 || x[1] != 2 || y != Shape{x[0], x[2]}) {
    return Verdict::no("x is not [n,2,f] for y [n,f]");
  }
  return Verdict::yes();
}

Verdict check_gather(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::gather_rows_backward;
  const Tensor& rows = in(op, tensors, 1);
  const Shape& x = backward ? out(op, tensors, 0).shape : in(op, tensors, 0).shape;
  const Shape& y = backward ? in(op, tensors, 0).shape : out(op, tensors, 0).shape;
  if (rows.dtype != DType::i32) return Verdict::no("rows are not i32");
  if (x.size() != 2 || y != Shape{elements(rows.shape), x[1]}) {
    return Verdict::no("y does not have one row of x per index");
  }
  return Verdict::yes();
}

Verdict check_dropout(const Op& op, Tensors tensors) {
  if (const Verdict rate = check_rate(op); !rate) return rate;
  return elementwise(op, tensors);
}

Verdict check_masked_dropout(const Op& op, Tensors tensors) {
  if (const Verdict rate = check_rate(op); !rate) return rate;
  const bool backward = op.kind == OpKind::masked_dropout_backward;
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  if (elements(x.shape) != elements(y.shape)) return Verdict::no("input and output differ in size");
  return check_mask(backward ? in(op, tensors, 1) : out(op, tensors, 1), y);
}

Verdict check_bias_dropout_add(const Op& op, Tensors tensors) {
  if (const Verdict rate = check_rate(op); !rate) return rate;
  const Tensor &x = in(op, tensors, 0), &residual = in(op, tensors, 1), &y = out(op, tensors, 0);
  if (elements(x.shape) != elements(y.shape) || elements(residual.shape) != elements(y.shape)) {
    return Verdict::no("x, the residual and the output differ in size");
  }
  if (op.inputs.size() == 3 &&
      elements(in(op, tensors, 2).shape) * y.shape[0] != elements(y.shape)) {
    return Verdict::no("bias does not have one element per column");
  }
  return check_mask(out(op, tensors, 1), y);
}

}  // namespace plimsoll
