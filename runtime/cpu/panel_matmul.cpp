// A matmul of 16-bit operands for which oneDNN has no kernel converts square panels to f32, sums
// f32 products of panels in f32, and rounds each panel of the result once.
#include <algorithm>
#include <array>

#include "graph/op_table.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kPanel = 256;  // three of them are 768 KiB of workspace

/// Row-major matrices, one per batch element, read by panels.
struct Source {
  DType type;
  std::int64_t rows, columns;              ///< as stored
  std::int64_t panel_rows, panel_columns;  ///< as stored
  float* panel;

  Source(const Tensor& tensor, std::int64_t rows_, std::int64_t columns_, Scratch& scratch)
      : type(tensor.dtype),
        rows(rows_),
        columns(columns_),
        panel_rows(std::min(rows, kPanel)),
        panel_columns(std::min(columns, kPanel)),
        panel(scratch.take_floats(panel_rows * panel_columns)) {}

  /// The panel that starts at (row, column), with zeros where the matrix ends.
  void load(const std::byte* base, std::int64_t batch, std::int64_t row,
            std::int64_t column) const {
    const std::int64_t height = std::min(panel_rows, rows - row);
    const std::int64_t width = std::min(panel_columns, columns - column);
    for (std::int64_t i = 0; i < height; ++i) {
      const std::int64_t index = (batch * rows + row + i) * columns + column;
      float* to = panel + i * panel_columns;
      to_f32(type, base + index * element_bytes(type), to, width);
      std::fill(to + width, to + panel_columns, 0.0f);
    }
    std::fill(panel + height * panel_columns, panel + panel_rows * panel_columns, 0.0f);
  }
};

PLIMSOLL_VECTORIZE void scale_and_add(float* values, float scale, const float* more,
                                      std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] * scale + more[i];
}

class PanelMatmul final : public Kernel {
 public:
  explicit PanelMatmul(const KernelRequest& request) : PanelMatmul(request, Scratch(request)) {}

  void run(Addresses in, Addresses out, const RunPosition&) override {
    for (std::int64_t batch = 0; batch < shape_.batch; ++batch) {
      for (std::int64_t row = 0; row < shape_.m; row += kPanel) {
        for (std::int64_t column = 0; column < shape_.n; column += kPanel) {
          sum_panel(in, batch, row, column);
          store_panel(in, out, batch, row, column);
        }
      }
    }
  }

  /// Without the zeros that fill up the last panels.
  Flops flops() const override {
    return Flops(2.0 * double(shape_.batch * shape_.m) * double(shape_.n) * double(shape_.k));
  }

 private:
  PanelMatmul(const KernelRequest& request, Scratch scratch)
      : shape_(matmul_shape(request.op, request.tensors)),
        params_(request.params<MatmulParams>()),
        has_bias_(request.op.inputs.size() == 3),
        result_type_(request.output(0).dtype),
        bias_type_(has_bias_ ? request.input(2).dtype : DType::f32),
        a_(request.input(0), params_.transpose_a ? shape_.k : shape_.m,
           params_.transpose_a ? shape_.m : shape_.k, scratch),
        b_(request.input(1), params_.transpose_b ? shape_.n : shape_.k,
           params_.transpose_b ? shape_.k : shape_.n, scratch),
        rows_(std::min(shape_.m, kPanel)),
        columns_(std::min(shape_.n, kPanel)),
        sums_(scratch.take_floats(rows_ * columns_)),
        added_(scratch.take_floats(columns_)),
        product_(make_product(request, scratch)) {}

  Primitive make_product(const KernelRequest& request, Scratch& scratch) {
    using dnnl::memory;
    const std::int64_t inner = std::min(shape_.k, kPanel);
    const auto panel = [](std::int64_t rows, std::int64_t columns, bool transposed) {
      return memory::desc({rows, columns}, memory::data_type::f32,
                          {transposed ? 1 : columns, transposed ? rows : 1});
    };
    const memory::desc a = panel(rows_, inner, params_.transpose_a);
    const memory::desc b = panel(inner, columns_, params_.transpose_b);
    const memory::desc c = panel(rows_, columns_, false);
    dnnl::primitive_attr attributes = scratchpad_attributes();
    dnnl::post_ops post_ops;
    post_ops.append_sum();
    attributes.set_post_ops(post_ops);
    const dnnl::matmul::primitive_desc descriptor({a, b, c}, attributes, request.library.engine);
    Primitive product(request.library, descriptor, scratch);
    product.declare(DNNL_ARG_SRC, a);
    product.declare(DNNL_ARG_WEIGHTS, b);
    product.declare(DNNL_ARG_DST, c);
    product.set(DNNL_ARG_SRC, a_.panel);
    product.set(DNNL_ARG_WEIGHTS, b_.panel);
    product.set(DNNL_ARG_DST, sums_);
    return product;
  }

  void sum_panel(Addresses in, std::int64_t batch, std::int64_t row, std::int64_t column) {
    std::fill_n(sums_, rows_ * columns_, 0.0f);
    for (std::int64_t k = 0; k < shape_.k; k += kPanel) {
      params_.transpose_a ? a_.load(in[0], batch, k, row) : a_.load(in[0], batch, row, k);
      params_.transpose_b ? b_.load(in[1], batch, column, k) : b_.load(in[1], batch, k, column);
      product_.execute();
    }
  }

  /// Writes scale * sums + bias to the result, or adds it.
  void store_panel(Addresses in, Addresses out, std::int64_t batch, std::int64_t row,
                   std::int64_t column) {
    const std::int64_t width = std::min(columns_, shape_.n - column);
    const std::int64_t height = std::min(rows_, shape_.m - row);
    std::fill_n(added_, width, 0.0f);
    if (has_bias_) {
      to_f32(bias_type_, in[2] + column * element_bytes(bias_type_), added_, width);
    }
    for (std::int64_t i = 0; i < height; ++i) {
      float* sums = sums_ + i * columns_;
      scale_and_add(sums, float(params_.scale), added_, width);
      const std::int64_t index = (batch * shape_.m + row + i) * shape_.n + column;
      std::byte* to = out[0] + index * element_bytes(result_type_);
      if (params_.accumulate) {
        to_f32(result_type_, to, old_.data(), width);
        scale_and_add(sums, 1, old_.data(), width);
      }
      from_f32(result_type_, sums, to, width);
    }
  }

  MatmulShape shape_;
  MatmulParams params_;
  bool has_bias_;
  DType result_type_, bias_type_;
  Source a_, b_;
  std::int64_t rows_, columns_;
  float *sums_, *added_;
  std::array<float, std::size_t(kPanel)> old_ = {};  ///< what a row is added to
  Primitive product_;
};

}  // namespace

KernelPointer prepare_panel_matmul(const KernelRequest& request) {
  return std::make_unique<PanelMatmul>(request);
}

}  // namespace plimsoll
