// Legality of the ops that make 8-bit operands of products.
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

bool is_maximum(const Tensor& tensor) {
  return tensor.dtype == DType::f32 && elements(tensor.shape) == 1;
}

bool is_wide(const Tensor& tensor) { return is_floating(tensor.dtype) && !is_fp8(tensor.dtype); }

}  // namespace

Verdict check_absolute_maximum(const Op& op, Tensors tensors) {
  if (!is_wide(in(op, tensors, 0))) return Verdict::no("x is not wider than 8 bits");
  return is_maximum(out(op, tensors, 0)) ? Verdict::yes()
                                         : Verdict::no("the maximum is not one f32");
}

Verdict check_quantize(const Op& op, Tensors tensors) {
  const Tensor& x = in(op, tensors, 0);
  if (!is_wide(x)) return Verdict::no("x is not wider than 8 bits");
  if (op.inputs.size() == 2 && !is_maximum(in(op, tensors, 1)))
    return Verdict::no("the maximum is not one f32");
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const Tensor& y = out(op, tensors, i);
    if (!is_fp8(y.dtype)) return Verdict::no("output " + std::to_string(i) + " is not of 8 bits");
    if (y.dtype != out(op, tensors, 0).dtype) return Verdict::no("the outputs differ in dtype");
    if (elements(y.shape) != elements(x.shape))
      return Verdict::no("x and output " + std::to_string(i) + " differ in size");
  }
  return Verdict::yes();
}

Verdict check_transpose(const Op& op, Tensors tensors) {
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  if (!is_fp8(x.dtype) || x.dtype != y.dtype)
    return Verdict::no("input and output are not of one 8-bit type");
  return elements(x.shape) == elements(y.shape) ? Verdict::yes()
                                                : Verdict::no("input and output differ in size");
}

}  // namespace plimsoll
