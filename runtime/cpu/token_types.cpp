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
  const Rows x(request.input(0), shape.blocks(), scratch),
      table(request.input(1), shape.blocks(), scratch),
      y(request.output(0), shape.blocks(), scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      add_rows(x.read(in[0], row, 1), table.read(in[1], shape.type_of(row), 1),
               y.target(out[0], row), shape.columns);
      y.store(out[0], row, 1);
    }
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
