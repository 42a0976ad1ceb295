// Panels are loaded, multiplied by oneDNN in f32, and stored.
#include "runtime/cpu/panel_product.h"

#include <algorithm>

#include "graph/op_table.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {
namespace {

PLIMSOLL_VECTORIZE void scale_and_add(float* values, float scale, const float* more,
                                      std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] * scale + more[i];
}

}  // namespace

PanelProduct::Source::Source(DType type_, std::int64_t panel_rows_, std::int64_t panel_columns_,
                             Scratch& scratch)
    : type(type_),
      panel_rows(panel_rows_),
      panel_columns(panel_columns_),
      panel(scratch.take_floats(panel_rows * panel_columns)) {}

void PanelProduct::Source::load(const std::byte* base, std::int64_t rows, std::int64_t columns,
                                std::int64_t row, std::int64_t column) const {
  const std::int64_t height = std::min(panel_rows, rows - row);
  const std::int64_t width = std::min(panel_columns, columns - column);
  for (std::int64_t i = 0; i < height; ++i) {
    float* to = panel + i * panel_columns;
    to_f32(type, base + ((row + i) * columns + column) * element_bytes(type), to, width);
    std::fill(to + width, to + panel_columns, 0.0f);
  }
  std::fill(panel + height * panel_columns, panel + panel_rows * panel_columns, 0.0f);
}

PanelProduct::PanelProduct(const ProductForm& form, const ProductSize& most, std::int64_t most_rows,
                           const OneDnn& library, Scratch& scratch)
    : form_(form),
      rows_(std::min({most.m, most_rows, kPanel})),
      columns_(std::min(most.n, kPanel)),
      inner_(std::min(most.k, kPanel)),
      a_(form.a, form.transpose_a ? inner_ : rows_, form.transpose_a ? rows_ : inner_, scratch),
      b_(form.b, form.transpose_b ? columns_ : inner_, form.transpose_b ? inner_ : columns_,
         scratch),
      sums_(scratch.take_floats(rows_ * columns_)),
      added_(scratch.take_floats(columns_)),
      product_(make_product(library, scratch)) {}

Primitive PanelProduct::make_product(const OneDnn& library, Scratch& scratch) const {
  using dnnl::memory;
  const auto panel = [](std::int64_t rows, std::int64_t columns, bool transposed) {
    return memory::desc({rows, columns}, memory::data_type::f32,
                        {transposed ? 1 : columns, transposed ? rows : 1});
  };
  const memory::desc a = panel(rows_, inner_, form_.transpose_a);
  const memory::desc b = panel(inner_, columns_, form_.transpose_b);
  const memory::desc c = panel(rows_, columns_, false);
  dnnl::primitive_attr attributes = scratchpad_attributes();
  dnnl::post_ops post_ops;
  post_ops.append_sum();
  attributes.set_post_ops(post_ops);
  const dnnl::matmul::primitive_desc descriptor({a, b, c}, attributes, library.engine);
  Primitive product(library, descriptor, scratch);
  product.declare(DNNL_ARG_SRC, a);
  product.declare(DNNL_ARG_WEIGHTS, b);
  product.declare(DNNL_ARG_DST, c);
  product.set(DNNL_ARG_SRC, a_.panel);
  product.set(DNNL_ARG_WEIGHTS, b_.panel);
  product.set(DNNL_ARG_DST, sums_);
  return product;
}

void PanelProduct::run(const std::byte* a, const std::byte* b, const std::byte* bias, std::byte* c,
                       const ProductSize& size) {
  for (std::int64_t row = 0; row < size.m; row += rows_) {
    for (std::int64_t column = 0; column < size.n; column += columns_) {
      sum_panel(a, b, size, row, column);
      store_panel(bias, c, size, row, column);
    }
  }
}

void PanelProduct::sum_panel(const std::byte* a, const std::byte* b, const ProductSize& size,
                             std::int64_t row, std::int64_t column) {
  std::fill_n(sums_, rows_ * columns_, 0.0f);
  for (std::int64_t k = 0; k < size.k; k += inner_) {
    form_.transpose_a ? a_.load(a, size.k, size.m, k, row) : a_.load(a, size.m, size.k, row, k);
    form_.transpose_b ? b_.load(b, size.n, size.k, column, k)
                      : b_.load(b, size.k, size.n, k, column);
    product_.execute();
  }
}

/// Writes scale * sums + bias to the result, or adds it.
void PanelProduct::store_panel(const std::byte* bias, std::byte* c, const ProductSize& size,
                               std::int64_t row, std::int64_t column) {
  const std::int64_t width = std::min(columns_, size.n - column);
  const std::int64_t height = std::min(rows_, size.m - row);
  std::fill_n(added_, width, 0.0f);
  if (form_.bias) to_f32(*form_.bias, bias + column * element_bytes(*form_.bias), added_, width);
  for (std::int64_t i = 0; i < height; ++i) {
    float* sums = sums_ + i * columns_;
    scale_and_add(sums, float(form_.scale), added_, width);
    std::byte* to = c + ((row + i) * size.n + column) * element_bytes(form_.c);
    if (form_.accumulate) {
      to_f32(form_.c, to, old_.data(), width);
      scale_and_add(sums, 1, old_.data(), width);
    }
    from_f32(form_.c, sums, to, width);
  }
}

KernelPointer prepare_panel_matmul(const KernelRequest& request) {
  const MatmulShape shape = matmul_shape(request.op, request.tensors);
  const auto& params = request.params<MatmulParams>();
  const bool has_bias = request.op.inputs.size() == 3;
  ProductForm form{.a = request.input(0).dtype,
                   .b = request.input(1).dtype,
                   .c = request.output(0).dtype,
                   .transpose_a = params.transpose_a,
                   .transpose_b = params.transpose_b,
                   .accumulate = params.accumulate,
                   .scale = params.scale};
  if (has_bias) form.bias = request.input(2).dtype;
  const ProductSize size{shape.m, shape.n, shape.k};
  Scratch scratch(request);
  PanelProduct product(form, size, PanelProduct::kPanel, request.library, scratch);
  const std::int64_t a = shape.m * shape.k * element_bytes(form.a),
                     b = shape.k * shape.n * element_bytes(form.b),
                     c = shape.m * shape.n * element_bytes(form.c);
  // Without the zeros that fill up the last panels.
  const Flops flops(2.0 * double(shape.batch * shape.m) * double(shape.n) * double(shape.k));
  return make_kernel(
      [=](Addresses in, Addresses out, const RunPosition&) mutable {
        for (std::int64_t i = 0; i < shape.batch; ++i) {
          product.run(in[0] + i * a, in[1] + i * b, has_bias ? in[2] : nullptr, out[0] + i * c,
                      size);
        }
      },
      flops);
}

}  // namespace plimsoll
