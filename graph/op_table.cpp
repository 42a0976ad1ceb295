// Answers of the op table.
#include "graph/op_table.h"

#include <algorithm>
#include <cmath>

#include "graph/op_rows.h"

namespace plimsoll {

namespace {

template <std::size_t I = 0>
OpParams params_alternative(std::size_t index) {
  if constexpr (I < std::variant_size_v<OpParams>) {
    return I == index ? OpParams(std::in_place_index<I>) : params_alternative<I + 1>(index);
  } else {
    INVARIANT(false, "no such parameter struct");
  }
}

}  // namespace

const OpRow& row(OpKind kind) { return kOpRows[std::size_t(kind)]; }

OpParams default_params(OpKind kind) { return params_alternative(row(kind).params); }

bool communicates(OpKind kind) {
  const OpClass op_class = row(kind).op_class;
  return op_class == OpClass::collective || op_class == OpClass::point_to_point;
}

bool is_of_host(OpKind kind) {
  const OpClass op_class = row(kind).op_class;
  return op_class == OpClass::to_host || op_class == OpClass::to_device ||
         op_class == OpClass::host_memory;
}

bool moves_rows(OpKind kind) {
  return kind == OpKind::exchange_rows || kind == OpKind::return_rows ||
         kind == OpKind::all_gather_rows || kind == OpKind::reduce_scatter_rows;
}

std::optional<std::size_t> in_place(const Op& op, Tensors tensors) {
  const std::optional<std::size_t> storage = row(op.kind).in_place;
  if (op.kind == OpKind::broadcast && op.inputs != op.outputs) return std::nullopt;
  if (op.kind != OpKind::reduce_scatter && op.kind != OpKind::all_gather) return storage;
  const auto elements_of = [](const Tensor& tensor) { return elements(tensor.shape); };
  const bool whole = elements_of(in(op, tensors, 0)) == elements_of(out(op, tensors, 0));
  return whole ? storage : std::nullopt;
}

const SignatureOperand& input_operand(const Op& op, std::size_t i) {
  const OperandList& list = row(op.kind).operands.inputs;
  return list[list.position(i, op.inputs.size())];
}

const SignatureOperand& output_operand(const Op& op, std::size_t i) {
  const OperandList& list = row(op.kind).operands.outputs;
  return list[list.position(i, op.outputs.size())];
}

bool input_is_f32(const Op& op, std::size_t i) {
  return input_operand(op, i).type == OperandType::f32;
}

bool output_is_f32(const Op& op, std::size_t i) {
  return output_operand(op, i).type == OperandType::f32 || accumulates(op, i);
}

bool accumulates(const Op& op, std::size_t i) {
  if (const auto* params = std::get_if<MatmulParams>(&op.params)) return params->accumulate;
  return (row(op.kind).operands.outputs.accumulates >> i & 1u) != 0;
}

bool updates_parameters(const Op& op) {
  const OpRow& own = row(op.kind);
  return own.writes_parameters && op.outputs.size() > own.operands.outputs.least();
}

namespace {
/// The weights of e experts are [e,k,n]; each has 1/e of the m rows, as with even routing.
MatmulShape grouped_shape(const Op& op, Tensors tensors) {
  const bool gradient = op.kind == OpKind::grouped_weight_gradient;
  const Shape& weight = (gradient ? out(op, tensors, 0) : in(op, tensors, 1)).shape;
  const std::int64_t experts = weight[0], k = weight[1], n = elements(weight) / (experts * k);
  const Tensor& all = in(op, tensors, 0);
  const auto used = std::int64_t(std::ceil(double(all.shape[0]) * all.filled));
  const std::int64_t rows = std::max<std::int64_t>((used + experts - 1) / experts, 1);
  if (gradient) return {experts, k, n, rows};
  return op.kind == OpKind::grouped_matmul ? MatmulShape{experts, rows, n, k}
                                           : MatmulShape{experts, rows, k, n};
}
}  // namespace

MatmulShape matmul_shape(const Op& op, Tensors tensors) {
  if (op.kind != OpKind::matmul && op.kind != OpKind::linear) return grouped_shape(op, tensors);
  const Verdict verdict = check_matmul(op, tensors);
  INVARIANT(bool(verdict), "matmul: " + verdict.reason());
  const auto& params = std::get<MatmulParams>(op.params);
  const Shape& a = in(op, tensors, 0).shape;
  const Shape& c = out(op, tensors, 0).shape;
  MatmulShape shape;
  const auto batch_dims = std::size_t(params.batch_dims);
  for (std::size_t i = 0; i < batch_dims; ++i) shape.batch *= c[i];
  shape.m = c[batch_dims];
  shape.n = elements(c) / (shape.batch * shape.m);
  shape.k = elements(a) / (shape.batch * shape.m);
  return shape;
}

MatmulParams matmul_params(const Op& op) {
  if (const auto* params = std::get_if<MatmulParams>(&op.params)) return *params;
  const bool gradient = op.kind == OpKind::grouped_weight_gradient;
  return {.batch_dims = 1,
          .transpose_a = gradient,
          .transpose_b = op.kind == OpKind::grouped_matmul_backward,
          .accumulate = gradient};
}

DType compute_dtype(const Op& op, Tensors tensors) {
  for (TensorId id : op.inputs) {
    if (is_floating(tensors[id.index()].dtype)) return tensors[id.index()].dtype;
  }
  return tensors[(op.outputs.empty() ? op.inputs.at(0) : op.outputs[0]).index()].dtype;
}

Flops flops(const Op& op, Tensors tensors) { return row(op.kind).flops(op, tensors); }

Bytes bytes_moved(const Op& op, Tensors tensors) { return row(op.kind).bytes(op, tensors); }

}  // namespace plimsoll
