// Matmul and bias gradient on oneDNN's matmul.
#include "graph/op_table.h"
#include "runtime/cpu/backend.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

using dnnl::memory;

/// A batch of dense matrices, `rows` x `columns` as the product sees them; stored transposed when
/// `transposed`.
memory::desc matrices(std::int64_t batch, std::int64_t rows, std::int64_t columns,
                      bool transposed) {
  const memory::dim row_stride = transposed ? 1 : columns;
  const memory::dim column_stride = transposed ? rows : 1;
  if (batch == 1) {
    return memory::desc({rows, columns}, memory::data_type::f32, {row_stride, column_stride});
  }
  return memory::desc({batch, rows, columns}, memory::data_type::f32,
                      {rows * columns, row_stride, column_stride});
}

struct MatmulDescriptor {
  memory::desc a, b, bias, c;
  int bias_argument = 0;  ///< DNNL_ARG_..., 0 without a bias
  dnnl::matmul::primitive_desc primitive;
};

/// c = scale * op(a) op(b) + bias, or c += that.
MatmulDescriptor describe_matmul(const MatmulShape& shape, const MatmulParams& params,
                                 bool has_bias, const dnnl::engine& engine) {
  MatmulDescriptor d;
  d.a = matrices(shape.batch, shape.m, shape.k, params.transpose_a);
  d.b = matrices(shape.batch, shape.k, shape.n, params.transpose_b);
  d.c = matrices(shape.batch, shape.m, shape.n, false);
  d.bias = shape.batch == 1 ? dense({1, shape.n}) : dense({1, 1, shape.n});
  dnnl::primitive_attr attributes = scratchpad_attributes();
  dnnl::post_ops post_ops;
  if (params.scale != 1) attributes.set_output_scales(0, {float(params.scale)});
  if (params.accumulate) post_ops.append_sum();
  // oneDNN adds its own bias before the output scale, so a scaled product takes a binary post-op.
  const bool bias_after_scale = has_bias && params.scale != 1;
  if (bias_after_scale) post_ops.append_binary(dnnl::algorithm::binary_add, d.bias);
  attributes.set_post_ops(post_ops);
  if (has_bias) {
    const int after = DNNL_ARG_ATTR_MULTIPLE_POST_OP(params.accumulate ? 1 : 0) | DNNL_ARG_SRC_1;
    d.bias_argument = bias_after_scale ? after : DNNL_ARG_BIAS;
  }
  const auto operation = has_bias && !bias_after_scale ? dnnl::matmul::desc(d.a, d.b, d.bias, d.c)
                                                       : dnnl::matmul::desc(d.a, d.b, d.c);
  d.primitive = dnnl::matmul::primitive_desc(operation, attributes, engine);
  return d;
}

MatmulDescriptor describe_matmul(const Op& op, std::span<const Tensor> tensors,
                                 const dnnl::engine& engine) {
  return describe_matmul(matmul_shape(op, tensors), std::get<MatmulParams>(op.params),
                         op.inputs.size() == 3, engine);
}

}  // namespace

KernelPointer prepare_matmul(const KernelRequest& request) {
  const MatmulDescriptor d = describe_matmul(request.op, request.tensors, request.library.engine);
  Scratch scratch(request);
  Primitive product(request.library, d.primitive, scratch);
  product.declare(DNNL_ARG_SRC, d.a);
  product.declare(DNNL_ARG_WEIGHTS, d.b);
  product.declare(DNNL_ARG_DST, d.c);
  const int bias = d.bias_argument;
  if (bias != 0) product.declare(bias, d.bias);
  return make_kernel([product, bias](Addresses in, Addresses out, const RunPosition&) mutable {
    product.set(DNNL_ARG_SRC, in[0]);
    product.set(DNNL_ARG_WEIGHTS, in[1]);
    product.set(DNNL_ARG_DST, out[0]);
    if (bias != 0) product.set(bias, in[2]);
    product.execute();
  });
}

// A row of ones times dY: oneDNN's reduction primitive is its reference code here, 100x slower.
KernelPointer prepare_bias_gradient(const KernelRequest& request) {
  MatmulShape shape;
  shape.n = request.output_elements(0);
  shape.k = request.input_elements(0) / shape.n;
  MatmulParams params;
  params.accumulate = true;
  const MatmulDescriptor d = describe_matmul(shape, params, false, request.library.engine);
  Scratch scratch(request);
  float* ones = scratch.take_floats(shape.k);
  Primitive product(request.library, d.primitive, scratch);
  product.declare(DNNL_ARG_SRC, d.a);
  product.declare(DNNL_ARG_WEIGHTS, d.b);
  product.declare(DNNL_ARG_DST, d.c);
  product.set(DNNL_ARG_SRC, ones);
  const std::int64_t rows = shape.k;
  return make_kernel(
      [product, ones, rows](Addresses in, Addresses out, const RunPosition&) mutable {
        fill_floats(ones, rows, 1);  // the workspace is shared with the rank's other kernels
        product.set(DNNL_ARG_WEIGHTS, in[0]);
        product.set(DNNL_ARG_DST, out[0]);
        product.execute();
      });
}

std::string cpu_matmul_implementation(const Op& op, std::span<const Tensor> tensors) {
  const OneThread one_thread;
  return describe_matmul(op, tensors, OneDnn().engine).primitive.impl_info_str();
}

Bytes cpu_matmul_workspace(const Op& op, std::span<const Tensor> tensors) {
  const OneThread one_thread;
  const MatmulDescriptor d = describe_matmul(op, tensors, OneDnn().engine);
  return Bytes(std::int64_t(d.primitive.scratchpad_desc().get_size()));
}

}  // namespace plimsoll
