// Bytes and FLOPs of op kinds.
#include <algorithm>

#include "graph/op_rows.h"

namespace plimsoll {

namespace {

/// Rows of experts move as far as they are expected to be used.
std::int64_t moved(const Tensor& tensor) {
  const std::int64_t bytes = bytes_of(tensor).count();
  return tensor.filled == 1 ? bytes : std::int64_t(double(bytes) * tensor.filled);
}

std::int64_t total_bytes(const std::vector<TensorId>& ids, Tensors tensors) {
  std::int64_t total = 0;
  for (TensorId id : ids) total += moved(tensors[id.index()]);
  return total;
}

/// By an update of masters: as many as there are of them, or as it updates of a range.
Bytes parameters_written(const Op& op, Tensors tensors) {
  if (!updates_parameters(op)) return Bytes(0);
  const auto* adam = std::get_if<AdamParams>(&op.params);
  const bool range = adam != nullptr && adam->end > 0;
  return (range ? adam->elements : elements(in(op, tensors, 0).shape)) *
         bytes_of(tensors[op.outputs.back().index()].dtype);
}

/// Elements of a group of segments, or of those a rank owns, or of everything that input `i` holds.
/// A rank that owns nothing has no such op without a group (passes/schedule/update_calls.cpp).
template <class Params>
std::int64_t worked_on(const Op& op, Tensors tensors, std::size_t i) {
  const auto& params = std::get<Params>(op.params);
  return params.group || params.elements > 0 ? params.elements : elements(in(op, tensors, i).shape);
}

/// Returns the FLOPs of products over the columns of queries, and over those of values, which y
/// has.
Flops attention_flops(const Op& op, Tensors tensors, const Tensor& y, double of_queries,
                      double of_values) {
  const auto& params = std::get<AttentionParams>(op.params);
  const double scores = double(params.sequence) * share_in_window(params);
  const bool backward = op.kind == OpKind::flash_attention_backward;
  const Shape& q = in(op, tensors, backward ? 1 : 0).shape;
  const double queries = double(q[0] * q[2] * q[3]);
  return Flops((of_queries * queries + of_values * double(elements(y.shape))) * 2 * scores);
}

}  // namespace

Bytes operand_bytes(const Op& op, Tensors tensors) {
  std::int64_t total = total_bytes(op.inputs, tensors) + total_bytes(op.outputs, tensors);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (accumulates(op, i)) total += bytes_of(out(op, tensors, i)).count();
  }
  return Bytes(total);
}

Bytes payload_bytes(const Op& op, Tensors tensors) {
  if (moves_rows(op.kind))
    return Bytes(std::max(moved(in(op, tensors, 0)), moved(out(op, tensors, 0))));  // rows alone
  return Bytes(std::max(total_bytes(op.inputs, tensors), total_bytes(op.outputs, tensors)));
}

/// Only the rows that occur are read.
Bytes embedding_bytes(const Op& op, Tensors tensors) {
  return bytes_of(in(op, tensors, 0)) + 2 * bytes_of(out(op, tensors, 0));
}

/// Rows are read, added to the table's and written there.
Bytes embedding_backward_bytes(const Op& op, Tensors tensors) {
  const Tensor& dx = in(op, tensors, 0);
  const Bytes rows = elements(dx.shape) * bytes_of(out(op, tensors, 0).dtype);
  return bytes_of(in(op, tensors, 1)) + bytes_of(dx) + 2 * rows;
}

Bytes own_part_bytes(const Op& op, Tensors tensors) { return 2 * bytes_of(out(op, tensors, 0)); }

/// Only the rows asked for are read.
Bytes gather_rows_bytes(const Op& op, Tensors tensors) {
  return bytes_of(in(op, tensors, 1)) + 2 * bytes_of(out(op, tensors, 0));
}

Bytes squared_norm_bytes(const Op& op, Tensors tensors) {
  return worked_on<FlatParams>(op, tensors, 0) / std::get<FlatParams>(op.params).shards *
         bytes_of(in(op, tensors, 0).dtype);
}

Bytes reduce_sum_bytes(const Op& op, Tensors tensors) {
  if (op.inputs.size() > 1 || !std::get<FlatParams>(op.params).group)
    return operand_bytes(op, tensors);
  return worked_on<FlatParams>(op, tensors, 0) * bytes_of(in(op, tensors, 0).dtype);
}

Bytes read_and_written_bytes(const Op& op, Tensors tensors) {
  return 2 * worked_on<FlatParams>(op, tensors, 0) * bytes_of(in(op, tensors, 0).dtype);
}

// Updates count owned elements only: parameters and state are read and written, gradients read.
Bytes adamw_bytes(const Op& op, Tensors tensors) {
  const auto type = [&](std::size_t i) { return bytes_of(in(op, tensors, i).dtype); };
  const std::int64_t updated = worked_on<AdamParams>(op, tensors, 2);
  const std::int64_t scales =
      op.kind == OpKind::adamw_8bit ? 2 * moment_blocks(updated) : std::int64_t{0};
  return updated * (2 * (type(0) + type(2) + type(3)) + type(1)) + parameters_written(op, tensors) +
         2 * scales * bytes_of(DType::f32);
}

Bytes sgd_bytes(const Op& op, Tensors tensors) {
  return 5 * worked_on<SgdParams>(op, tensors, 2) * bytes_of(DType::f32) +
         parameters_written(op, tensors);
}

/// The moments are written, and the parameters read only.
Bytes lamb_norms_bytes(const Op& op, Tensors tensors) {
  return 6 * worked_on<LambParams>(op, tensors, 2) * bytes_of(DType::f32);
}

/// The parameters are written, and the moments read only.
Bytes lamb_bytes(const Op& op, Tensors tensors) {
  return 4 * worked_on<LambParams>(op, tensors, 1) * bytes_of(DType::f32) +
         parameters_written(op, tensors);
}

Bytes cast_parameters_bytes(const Op& op, Tensors tensors) {
  const Tensor& masters = in(op, tensors, 0);
  return bytes_of(masters) + elements(masters.shape) * bytes_of(out(op, tensors, 0).dtype);
}

Bytes host_copy_bytes(const Op& op, Tensors tensors) {
  const Tensor &from = in(op, tensors, 0), &to = out(op, tensors, 0);
  const bool outwards = row(op.kind).op_class == OpClass::to_host;
  return elements((outwards ? to : from).shape) * bytes_of((outwards ? from : to).dtype);
}

Flops no_flops(const Op&, Tensors) { return Flops(0); }

Flops matmul_flops(const Op& op, Tensors tensors) {
  const MatmulShape shape = matmul_shape(op, tensors);
  return Flops(2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k));
}

/// Each row is multiplied by one expert's weight.
Flops grouped_matmul_flops(const Op& op, Tensors tensors) {
  const bool gradient = op.kind == OpKind::grouped_weight_gradient;
  const Shape& weight = (gradient ? out(op, tensors, 0) : in(op, tensors, 1)).shape;
  const double rows = double(in(op, tensors, 0).shape[0]) * in(op, tensors, 0).filled;
  const std::int64_t of_one_expert = elements(weight) / weight[0];
  return Flops(2 * rows * double(of_one_expert));
}

Flops flash_attention_flops(const Op& op, Tensors tensors) {
  return attention_flops(op, tensors, out(op, tensors, 0), 1, 1);
}

Flops flash_attention_backward_flops(const Op& op, Tensors tensors) {
  return attention_flops(op, tensors, in(op, tensors, 0), 3, 2);
}

}  // namespace plimsoll
