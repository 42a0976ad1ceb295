// Token and position embeddings and their gradients: loops over rows.
#include <cstring>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

PLIMSOLL_VECTORIZE void add_rows(const float* a, const float* b, float* sum, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

/// This rank's rows of a vocabulary that may be split over mp.
struct TableRows {
  std::int64_t first, rows, columns;
  /// Row of token `id` here, or -1.
  std::int64_t local(std::int32_t id) const {
    const std::int64_t row = id - first;
    return row >= 0 && row < rows ? row : -1;
  }
};

TableRows table_rows(const KernelRequest& request, const Tensor& table) {
  const bool split = request.params<VocabularyParams>().split_degree > 1;
  const std::int64_t part = split ? request.context.at[std::size_t(Axis::mp)] : 0;
  return {part * table.shape[0], table.shape[0], table.shape[1]};
}

}  // namespace

KernelPointer prepare_embedding(const KernelRequest& request) {
  const TableRows rows = table_rows(request, request.input(1));
  const std::int64_t tokens = request.input_elements(0);
  return make_kernel([rows, tokens](Addresses in, Addresses out, const RunPosition&) {
    const std::size_t bytes = std::size_t(rows.columns) * sizeof(float);
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t row = rows.local(ids(in, 0)[i]);
      float* x = floats_out(out, 0) + i * rows.columns;
      if (row < 0) {
        std::memset(x, 0, bytes);
      } else {
        std::memcpy(x, floats(in, 1) + row * rows.columns, bytes);
      }
    }
  });
}

KernelPointer prepare_embedding_backward(const KernelRequest& request) {
  const TableRows rows = table_rows(request, request.output(0));
  const std::int64_t tokens = request.input_elements(1);
  return make_kernel([rows, tokens](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t row = rows.local(ids(in, 1)[i]);
      if (row < 0) continue;
      float* gradient = floats_out(out, 0) + row * rows.columns;
      add_rows(gradient, floats(in, 0) + i * rows.columns, gradient, rows.columns);
    }
  });
}

KernelPointer prepare_position_add(const KernelRequest& request) {
  const std::int64_t table = request.input_elements(1);
  const std::int64_t sequences = request.input_elements(0) / table;
  return make_kernel([table, sequences](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t b = 0; b < sequences; ++b) {
      add_rows(floats(in, 0) + b * table, floats(in, 1), floats_out(out, 0) + b * table, table);
    }
  });
}

KernelPointer prepare_position_add_backward(const KernelRequest& request) {
  const std::int64_t table = request.output_elements(0);
  const std::int64_t sequences = request.input_elements(0) / table;
  return make_kernel([table, sequences](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t b = 0; b < sequences; ++b) {
      add_rows(floats_out(out, 0), floats(in, 0) + b * table, floats_out(out, 0), table);
    }
  });
}

}  // namespace plimsoll
