// A matmul of 16-bit operands for which oneDNN has no kernel is a product by panels.
#include "graph/op_table.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/panel_product.h"
#include "runtime/cpu/storage.h"

namespace plimsoll {

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
