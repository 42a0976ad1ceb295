// Checks the types of an op's operands against its signature.
#include "runtime/operand_types.h"

#include <fmt/format.h>

#include "graph/op_table.h"

namespace plimsoll {

namespace {

/// The type of an op's values: that of its first operand whose type is not fixed.
DType value_type(const Op& op, std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (input_operand(op, i).type == OperandType::value) return tensors[op.inputs[i].index()].dtype;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (output_operand(op, i).type == OperandType::value && !accumulates(op, i))
      return tensors[op.outputs[i].index()].dtype;
  }
  return DType::f32;
}

DType expected_type(const SignatureOperand& operand, DType value_type) {
  switch (operand.type) {
    case OperandType::value:
      return value_type;
    case OperandType::f32:
    case OperandType::any:
      return DType::f32;
    case OperandType::i32:
      return DType::i32;
    case OperandType::u8:
      return DType::u8;
  }
  return value_type;
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
  const bool casts_copy =
      op.kind == OpKind::copy_to_device && tensors[op.inputs[0].index()].dtype == DType::f32;
  if (op.kind == OpKind::cast || op.kind == OpKind::cast_parameters || casts_copy)
    return Verdict::yes();
  const DType type = value_type(op, tensors);
  if (updates_parameters(op) && tensors[op.inputs[0].index()].dtype != DType::f32) {
    return Verdict::no(fmt::format("the {} backend updates masters in f32 alone", backend));
  }
  const auto* fill = std::get_if<FillParams>(&op.params);
  const bool zeroes = fill != nullptr && fill->value == 0;  // of any type
  if (type == DType::i32 && !zeroes) {
    return Verdict::no(
        fmt::format("the {} backend computes no {} of i32", backend, to_text(op.kind)));
  }
  const auto check = [&](TensorId id, const SignatureOperand& operand, bool or_f32) {
    const Tensor& tensor = tensors[id.index()];
    const DType expected = expected_type(operand, type);
    const bool any =
        operand.type == OperandType::any && is_floating(tensor.dtype) && !is_fp8(tensor.dtype);
    if (tensor.dtype == expected || any || (or_f32 && tensor.dtype == DType::f32))
      return Verdict::yes();
    return Verdict::no(fmt::format("the {} backend computes {} of {} in {}, not {}", backend,
                                   tensor.name, to_text(op.kind), to_text(expected),
                                   to_text(tensor.dtype)));
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const SignatureOperand& operand = input_operand(op, i);
    if (Verdict v = check(op.inputs[i], operand, may_be_f32(op, false, i)); !v) return v;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const SignatureOperand& operand = output_operand(op, i);
    if (Verdict v = check(op.outputs[i], operand, may_be_f32(op, true, i)); !v) return v;
  }
  return Verdict::yes();
}

}  // namespace plimsoll
