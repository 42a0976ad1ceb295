// Products of each expert's rows and weight, by panels. Expert i has rows [ends[i-1], ends[i]).
#include <cstring>

#include "graph/op_table.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/panel_product.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kPanelRows = 64;  // of products whose rows are those of one expert

/// The sizes of one row of a value, and of the memory behind it.
struct RowBytes {
  std::int64_t rows, bytes;
  explicit RowBytes(const Tensor& tensor)
      : rows(tensor.shape[0]), bytes(bytes_of(tensor).count() / tensor.shape[0]) {}
};

struct Experts {
  std::int64_t count, height, width;  ///< weights [e,h,f]
  std::int64_t bytes;                 ///< of one expert's
  explicit Experts(const Tensor& weight)
      : count(weight.shape[0]),
        height(weight.shape[1]),
        width(elements(weight.shape) / (weight.shape[0] * weight.shape[1])),
        bytes(bytes_of(weight).count() / weight.shape[0]) {}
};

/// y = x w, or dx = dy w^T.
KernelPointer prepare_rows(const KernelRequest& request, bool transposed) {
  const Experts experts(request.input(1));
  const RowBytes from(request.input(0)), to(request.output(0));
  const ProductForm form{.a = request.input(0).dtype,
                         .b = request.input(1).dtype,
                         .c = request.output(0).dtype,
                         .transpose_b = transposed};
  const std::int64_t n = transposed ? experts.height : experts.width,
                     k = transposed ? experts.width : experts.height;
  Scratch scratch(request);
  PanelProduct product(form, {from.rows, n, k}, kPanelRows, request.library, scratch);
  return make_kernel(
      [=](Addresses in, Addresses out, const RunPosition&) mutable {
        std::int64_t begin = 0;
        for (std::int64_t expert = 0; expert < experts.count; ++expert) {
          const std::int64_t end = ids(in, 2)[expert];
          product.run(in[0] + begin * from.bytes, in[1] + expert * experts.bytes, nullptr,
                      out[0] + begin * to.bytes, {end - begin, n, k});
          begin = end;
        }
        std::memset(out[0] + begin * to.bytes, 0, std::size_t((to.rows - begin) * to.bytes));
      },
      flops(request.op, request.tensors));
}

}  // namespace

KernelPointer prepare_grouped_matmul(const KernelRequest& request) {
  return prepare_rows(request, false);
}

KernelPointer prepare_grouped_matmul_backward(const KernelRequest& request) {
  return prepare_rows(request, true);
}

// dw += x^T dy, expert by expert.
KernelPointer prepare_grouped_weight_gradient(const KernelRequest& request) {
  const Experts experts(request.output(0));
  const RowBytes x(request.input(0)), dy(request.input(1));
  const ProductForm form{.a = request.input(0).dtype,
                         .b = request.input(1).dtype,
                         .c = request.output(0).dtype,
                         .transpose_a = true,
                         .accumulate = true};
  Scratch scratch(request);
  PanelProduct product(form, {experts.height, experts.width, x.rows}, PanelProduct::kPanel,
                       request.library, scratch);
  return make_kernel(
      [=](Addresses in, Addresses out, const RunPosition&) mutable {
        std::int64_t begin = 0;
        for (std::int64_t expert = 0; expert < experts.count; ++expert) {
          const std::int64_t end = ids(in, 2)[expert];
          const ProductSize size{experts.height, experts.width, end - begin};
          if (end > begin)
            product.run(in[0] + begin * x.bytes, in[1] + begin * dy.bytes, nullptr,
                        out[0] + expert * experts.bytes, size);
          begin = end;
        }
      },
      flops(request.op, request.tensors));
}

}  // namespace plimsoll
