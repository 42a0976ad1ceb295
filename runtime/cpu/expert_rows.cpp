// Rows of experts with the bias of their expert, or times their weights.
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// Rows [m,f] of e experts. Expert i has those up to its end.
struct BiasedRows {
  std::int64_t rows, columns, experts;
  float share;  ///< of the bias, that this rank adds
  explicit BiasedRows(const KernelRequest& request)
      : rows(request.input(0).shape[0]),
        columns(request.input_elements(0) / rows),
        experts(request.input(1).shape[0]),
        share(1 / float(request.params<GroupedBiasParams>().ranks)) {}

  RowBlocks blocks() const { return {rows, columns, 1}; }
  RowBlocks biases() const { return {experts, columns, 1}; }
  /// Calls visit(expert, row) for the rows that experts have. Returns the first row behind them.
  template <class Visit>
  std::int64_t each(const std::int32_t* ends, Visit visit) const {
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      for (; row < ends[e]; ++row) visit(e, row);
    }
    return row;
  }
};

}  // namespace

KernelPointer prepare_grouped_bias_add(const KernelRequest& request) {
  const BiasedRows s(request);
  const bool weighted = request.op.inputs.size() > 3;
  Scratch scratch(request);
  const Rows x(request.input(0), s.blocks(), scratch), bias(request.input(1), s.biases(), scratch),
      y(request.output(0), s.blocks(), scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const auto add = [&](std::int64_t expert, std::int64_t row, float factor) {
      const float *from = x.read(in[0], row, 1), *more = bias.read(in[1], expert, 1);
      float* to = y.target(out[0], row);
      for (std::int64_t i = 0; i < s.columns; ++i) to[i] = from[i] + factor * more[i];
      y.store(out[0], row, 1);
    };
    std::int64_t row = s.each(ids(in, 2), [&](std::int64_t expert, std::int64_t at) {
      add(expert, at, weighted ? s.share * floats(in, 3)[at] : s.share);
    });
    for (; row < s.rows; ++row) add(0, row, 0);
  });
}

KernelPointer prepare_grouped_bias_backward(const KernelRequest& request) {
  const BiasedRows s(request);
  const bool weighted = request.op.inputs.size() > 3;
  Scratch scratch(request);
  const Rows dy(request.input(0), s.blocks(), scratch), bias(request.input(1), s.biases(), scratch),
      dbias(request.output(0), s.biases(), scratch);
  float* sum = scratch.take_floats(s.columns);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const std::int32_t* ends = ids(in, 2);
    std::fill_n(sum, s.columns, 0.0f);
    const std::int64_t row = s.each(ends, [&](std::int64_t expert, std::int64_t at) {
      const float* slopes = dy.read(in[0], at, 1);
      const float weight = weighted ? floats(in, 3)[at] : 1;
      for (std::int64_t i = 0; i < s.columns; ++i) sum[i] += weight * slopes[i];
      if (weighted)
        floats_out(out, 1)[at] = s.share * dot(slopes, bias.read(in[1], expert, 1), s.columns);
      if (at + 1 < ends[expert]) return;
      dbias.add(out[0], expert, sum, 1);
      std::fill_n(sum, s.columns, 0.0f);
    });
    if (weighted) std::fill(floats_out(out, 1) + row, floats_out(out, 1) + s.rows, 0.0f);
  });
}

KernelPointer prepare_scale_rows(const KernelRequest& request) {
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  return map_rows<1>(request, {rows, columns, 1}, [columns](const RowsRun<1>& run) {
    const float weight = floats(run.in, 1)[run.first];
    for (std::int64_t i = 0; i < columns; ++i) run.y[i] = run.x[0][i] * weight;
  });
}

KernelPointer prepare_scale_rows_backward(const KernelRequest& request) {
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  return map_rows<2>(request, {rows, columns, 1}, [columns](const RowsRun<2>& run) {
    const float weight = floats(run.in, 2)[run.first];
    floats_out(run.out, 1)[run.first] = dot(run.x[0], run.x[1], columns);
    for (std::int64_t i = 0; i < columns; ++i) run.y[i] = run.x[0][i] * weight;
  });
}

}  // namespace plimsoll
