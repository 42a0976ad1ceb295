// Points of a calibration are described, and rows of ops measured.
#include "models/calibration/calibration.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {

bool has_rows(OpKind kind) { return row(kind).rows != OpRows::none; }

std::int64_t row_length(const Op& op, std::span<const Tensor> tensors) {
  if (!has_rows(op.kind)) return 0;
  // The weight of an RMS norm may be as long as several dimensions of the values.
  const bool normed = op.kind == OpKind::rms_norm && op.inputs.size() == 2;
  const bool normed_back = op.kind == OpKind::rms_norm_backward && op.inputs.size() == 4;
  if (normed || normed_back) return elements(tensors[op.inputs[normed ? 1 : 2].index()].shape);
  const Tensor* widest = nullptr;
  const auto consider = [&](TensorId id) {
    const Tensor& tensor = tensors[id.index()];
    if (!widest || elements(tensor.shape) > elements(widest->shape)) widest = &tensor;
  };
  std::for_each(op.inputs.begin(), op.inputs.end(), consider);
  std::for_each(op.outputs.begin(), op.outputs.end(), consider);
  return widest->shape.empty() ? 1 : widest->shape.back();
}

bool adds_up(OpKind communication) {
  return communication == OpKind::all_reduce || communication == OpKind::reduce_scatter ||
         communication == OpKind::reduce || communication == OpKind::reduce_scatter_rows;
}

OpKind measured_as(OpKind communication) {
  switch (communication) {
    case OpKind::recv:
      return OpKind::send;
    case OpKind::reduce:
    case OpKind::reduce_scatter_rows:
      return OpKind::reduce_scatter;
    case OpKind::broadcast:
    case OpKind::all_gather_rows:
      return OpKind::all_gather;
    default:
      return communication;
  }
}

std::string describe(const CollectivePoint& point) {
  std::string text = fmt::format("{} of {}", to_text(point.kind), point.ranks);
  if (point.dtype != DType::f32) text += fmt::format(" in {}", to_text(point.dtype));
  if (point.communicator == CommunicatorKind::local) return text;
  if (point.nodes > 1) text += fmt::format(" over {} nodes", point.nodes);
  if (point.groups_per_node > 1) text += fmt::format(", {} groups per node", point.groups_per_node);
  return text;
}

}  // namespace plimsoll
