#include "runtime/operand_types.h"

#include <fmt/format.h>

#include "graph/op_table.h"
#include "graph/op_types.h"

namespace plimsoll {

namespace {

/// The input that holds token ids, or -1.
int token_input(OpKind kind) {
  switch (kind) {
    case OpKind::embedding:
    case OpKind::update_loss_scale:
      return 0;
    case OpKind::embedding_backward:
    case OpKind::gather_rows:
    case OpKind::gather_rows_backward:
    case OpKind::cross_entropy_backward:
      return 1;
    case OpKind::logits_sum_exp:
      return 2;
    default:
      return -1;
  }
}

/// The type of an op's values: that of its first operand that is not f32 by rule.
DType value_type(const Op& op, std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (int(i) != token_input(op.kind) && !input_is_f32(op, i))
      return tensors[op.inputs[i].index()].dtype;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (!output_is_f32(op, i)) return tensors[op.outputs[i].index()].dtype;
  }
  return DType::f32;
}

/// A product's bias and result may be f32 beside 16-bit operands: both are summed in f32 anyway. So
/// may gradients of parameters, which an op adds to.
bool may_be_f32(const Op& op, bool output, std::size_t i) {
  if (output && accumulates(op, i)) return true;
  return op.kind == OpKind::matmul && (output || i == 2);
}

}  // namespace

Verdict check_operand_types(const Op& op, std::span<const Tensor> tensors,
                            std::string_view backend) {
  const bool loads = std::holds_alternative<DataParams>(op.params) && op.inputs.empty();
  if (op.kind == OpKind::cast || op.kind == OpKind::cast_parameters) return Verdict::yes();
  const DType type = value_type(op, tensors);
  const auto* fill = std::get_if<FillParams>(&op.params);
  const bool zeroes = fill != nullptr && fill->value == 0;  // of any type
  if (type == DType::i32 && !loads && !zeroes) {
    return Verdict::no(
        fmt::format("the {} backend computes no {} of i32", backend, to_text(op.kind)));
  }
  const auto check = [&](TensorId id, DType expected, bool or_f32) {
    const Tensor& tensor = tensors[id.index()];
    if (tensor.dtype == expected || (or_f32 && tensor.dtype == DType::f32)) return Verdict::yes();
    return Verdict::no(fmt::format("the {} backend computes {} of {} in {}, not {}", backend,
                                   tensor.name, to_text(op.kind), to_text(expected),
                                   to_text(tensor.dtype)));
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const DType expected = int(i) == token_input(op.kind) ? DType::i32
                           : input_is_f32(op, i)          ? DType::f32
                                                          : type;
    if (Verdict v = check(op.inputs[i], expected, may_be_f32(op, false, i)); !v) return v;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const bool flag = op.kind == OpKind::check_finite && i == 1;
    const bool f32 = output_is_f32(op, i) && !accumulates(op, i);
    const DType expected = loads || flag ? DType::i32 : f32 ? DType::f32 : type;
    if (Verdict v = check(op.outputs[i], expected, may_be_f32(op, true, i)); !v) return v;
  }
  return Verdict::yes();
}

}  // namespace plimsoll
