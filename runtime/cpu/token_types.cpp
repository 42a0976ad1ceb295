// Token types: each of a sequence's equal parts has a row of the table (BERT's two segments).
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

struct TypedRows {
  std::int64_t rows, columns, sequence, types;
  std::int64_t type_of(std::int64_t row) const { return row % sequence * types / sequence; }
  RowBlocks blocks() const { return {rows, columns, 1}; }
};

TypedRows typed_rows(const KernelRequest& request, const Tensor& table) {
  const Shape& x = request.input(0).shape;
  return {x[0], x[1], request.params<DataParams>().sequence, table.shape[0]};
}

}  // namespace

KernelPointer prepare_token_type_add(const KernelRequest& request) {
  const TypedRows shape = typed_rows(request, request.input(1));
  Scratch scratch(request);
  const Rows table(request.input(1), shape.blocks(), scratch);
  return map_rows<1>(request, shape.blocks(), scratch, [=](const RowsRun<1>& run) {
    add_rows(run.x[0], table.read(run.in[1], shape.type_of(run.first), 1), run.y, shape.columns);
  });
}

KernelPointer prepare_token_type_add_backward(const KernelRequest& request) {
  const TypedRows shape = typed_rows(request, request.output(0));
  Scratch scratch(request);
  const Rows dy(request.input(0), shape.blocks(), scratch),
      gradient(request.output(0), shape.blocks(), scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      gradient.add(out[0], shape.type_of(row), dy.read(in[0], row, 1), 1);
    }
  });
}

}  // namespace plimsoll
