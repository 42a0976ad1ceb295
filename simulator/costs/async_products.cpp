// Cuts products into parts, and takes what these hide off the communication.
#include "simulator/costs/async_products.h"

#include <algorithm>

namespace plimsoll {
namespace {

/// Whether the rows of a product are those of the tensor; a product that sums over rows has others.
bool has_rows_of(const Op& product, TensorId rows) {
  const auto* params = std::get_if<MatmulParams>(&product.params);
  return product.kind == OpKind::matmul && params != nullptr && !params->transpose_a &&
         params->batch_dims == 0 && product.inputs[0] == rows;
}

/// Returns the time of a product that is run in `parts` parts of its rows.
Seconds by_parts(const Routine& routine, const Op& product, std::int64_t parts,
                 const CostModel& costs, std::size_t kind) {
  std::vector<Tensor> tensors = routine.tensors;
  for (const TensorId id : {product.inputs[0], product.outputs[0]}) {
    std::int64_t& rows = tensors[id.index()].shape[0];
    rows = std::max<std::int64_t>(1, rows / parts);
  }
  return costs.local(product, tensors, kind).time * double(parts);
}

}  // namespace

Estimate exposed_communication(const Routine& routine, std::size_t op, const Estimate& whole,
                               std::int64_t ranks, const CostModel& costs, std::size_t kind) {
  const Op& communication = routine.ops[op];
  const bool gathers = communication.kind == OpKind::all_gather;
  // Backward scatters a sum of the input gradients of several linear layers (query, key and value;
  // gate and up), which the compiler does not take for a product.
  const bool scatters =
      communication.kind == OpKind::reduce_scatter && communication.phase != Phase::backward;
  if (!costs.framework().parallelism.overlap.async_tensor_parallel ||
      communication.stream != Stream::mp || (!gathers && !scatters) || ranks < 2 ||
      whole.time == Seconds(0))
    return whole;
  Seconds products, parts;
  for (const Op& product : routine.ops) {
    const bool feeds =
        gathers ? has_rows_of(product, communication.outputs[0])
                : product.kind == OpKind::matmul && product.outputs[0] == communication.inputs[0];
    if (!feeds) continue;
    products += costs.local(product, routine.tensors, kind).time;
    parts += by_parts(routine, product, ranks, costs, kind);
  }
  if (products == Seconds(0)) return whole;
  // Products take longer in parts, and hide all but one part of the communication.
  const Seconds covered = parts * (double(ranks - 1) / double(ranks));
  const Seconds longer = std::max(Seconds(0), parts - products);
  const Seconds left = std::min(whole.time, longer + std::max(Seconds(0), whole.time - covered));
  return {left, whole.spread * (left / whole.time), whole.provenance, whole.of_calibration};
}

}  // namespace plimsoll
