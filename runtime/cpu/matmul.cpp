// Matmul and bias gradient use oneDNN's matmul, in f32 and in bf16; both sum in f32.
#include <optional>
#include <string_view>

#include "graph/op_table.h"
#include "runtime/cpu/backend.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

using dnnl::memory;

/// A batch of dense matrices, `rows` x `columns` as the product sees them, which are stored
/// transposed when `transposed`.
memory::desc matrices(DType type, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                      bool transposed) {
  const memory::dim row_stride = transposed ? 1 : columns;
  const memory::dim column_stride = transposed ? rows : 1;
  if (batch == 1) {
    return memory::desc({rows, columns}, data_type(type), {row_stride, column_stride});
  }
  return memory::desc({batch, rows, columns}, data_type(type),
                      {rows * columns, row_stride, column_stride});
}

/// The layouts of its operands; `bias` is absent without one.
struct MatmulTypes {
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  std::optional<DType> bias;
};

struct MatmulDescriptor {
  memory::desc a, b, bias, c;
  int bias_argument = 0;                   ///< DNNL_ARG_..., 0 without a bias
  dnnl::matmul::primitive_desc primitive;  ///< empty: the library has none on this processor
};

/// Computes c = scale * op(a) op(b) + bias, or adds it to c.
MatmulDescriptor describe_matmul(const MatmulShape& shape, const MatmulParams& params,
                                 const MatmulTypes& types, const dnnl::engine& engine) {
  MatmulDescriptor d;
  d.a = matrices(types.a, shape.batch, shape.m, shape.k, params.transpose_a);
  d.b = matrices(types.b, shape.batch, shape.k, shape.n, params.transpose_b);
  d.c = matrices(types.c, shape.batch, shape.m, shape.n, false);
  const bool has_bias = types.bias.has_value();
  if (has_bias) {
    d.bias =
        shape.batch == 1 ? dense({1, shape.n}, *types.bias) : dense({1, 1, shape.n}, *types.bias);
  }
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
  const bool may_be_empty = types.a != DType::f32;
  d.primitive = dnnl::matmul::primitive_desc(operation, attributes, engine, may_be_empty);
  return d;
}

MatmulDescriptor describe_matmul(const Op& op, std::span<const Tensor> tensors,
                                 const dnnl::engine& engine) {
  MatmulTypes types;
  types.a = tensors[op.inputs[0].index()].dtype;
  types.b = tensors[op.inputs[1].index()].dtype;
  types.c = tensors[op.outputs[0].index()].dtype;
  if (op.inputs.size() == 3) types.bias = tensors[op.inputs[2].index()].dtype;
  return describe_matmul(matmul_shape(op, tensors), std::get<MatmulParams>(op.params), types,
                         engine);
}

/// Without AVX-512, the library has reference code for products of bf16, or nothing.
bool has_fast_kernel(const MatmulDescriptor& d) {
  return d.primitive.get(true) != nullptr &&
         !std::string_view(d.primitive.impl_info_str()).starts_with("ref");
}

/// Returns a multiplication and an addition for each element of the inner dimension and of the
/// result.
Flops flops_of(const dnnl::matmul::primitive_desc& product) {
  double result = 2 * double(product.src_desc().dims().back());
  for (const memory::dim dim : product.dst_desc().dims()) result *= double(dim);
  return Flops(result);
}

}  // namespace

KernelPointer prepare_matmul(const KernelRequest& request) {
  if (request.input(0).dtype == DType::f16) return prepare_panel_matmul(request);
  const MatmulDescriptor d = describe_matmul(request.op, request.tensors, request.library.engine);
  if (request.input(0).dtype == DType::bf16 && !has_fast_kernel(d))
    return prepare_panel_matmul(request);
  Scratch scratch(request);
  Primitive product(request.library, d.primitive, scratch);
  product.declare(DNNL_ARG_SRC, d.a);
  product.declare(DNNL_ARG_WEIGHTS, d.b);
  product.declare(DNNL_ARG_DST, d.c);
  const int bias = d.bias_argument;
  if (bias != 0) product.declare(bias, d.bias);
  return make_kernel(
      [product, bias](Addresses in, Addresses out, const RunPosition&) mutable {
        product.set(DNNL_ARG_SRC, in[0]);
        product.set(DNNL_ARG_WEIGHTS, in[1]);
        product.set(DNNL_ARG_DST, out[0]);
        if (bias != 0) product.set(bias, in[2]);
        product.execute();
      },
      flops_of(d.primitive));
}

// The sum is a row of ones times dY. oneDNN's reduction primitive is reference code here and 100
// times slower.
KernelPointer prepare_bias_gradient(const KernelRequest& request) {
  const std::int64_t columns = request.output_elements(0);
  const RowBlocks blocks =
      RowBlocks::for_type(request.input(0).dtype, request.input_elements(0) / columns, columns);
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), sum = whole_row(request.output(0), scratch);
  float* ones = scratch.take_floats(blocks.block);
  BlockPrimitive product(blocks, [&](std::int64_t rows) {
    const MatmulShape shape{1, 1, columns, rows};
    MatmulParams params;
    params.accumulate = true;
    const MatmulDescriptor d = describe_matmul(shape, params, {}, request.library.engine);
    Primitive block(request.library, d.primitive, scratch);
    block.declare(DNNL_ARG_SRC, d.a);
    block.declare(DNNL_ARG_WEIGHTS, d.b);
    block.declare(DNNL_ARG_DST, d.c);
    block.set(DNNL_ARG_SRC, ones);
    return block;
  });
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    fill_floats(ones, blocks.block, 1);  // the workspace is shared with the rank's other kernels
    sum.read(out[0], 0, 1);
    product.set(DNNL_ARG_DST, sum.target(out[0], 0));
    blocks.each([&](std::int64_t first, std::int64_t count) {
      Primitive& block = product.for_rows(count);
      block.set(DNNL_ARG_WEIGHTS, dy.read(in[0], first, count));
      block.execute();
    });
    sum.store(out[0], 0, 1);
  });
}

std::string cpu_matmul_implementation(const Op& op, std::span<const Tensor> tensors) {
  const OneThread one_thread;
  const MatmulDescriptor d = describe_matmul(op, tensors, OneDnn().engine);
  return d.primitive.get(true) == nullptr ? "none" : d.primitive.impl_info_str();
}

Bytes cpu_matmul_workspace(const Op& op, std::span<const Tensor> tensors) {
  const OneThread one_thread;
  const MatmulDescriptor d = describe_matmul(op, tensors, OneDnn().engine);
  if (d.primitive.get(true) == nullptr) return Bytes(0);
  return Bytes(std::int64_t(d.primitive.scratchpad_desc().get_size()));
}

}  // namespace plimsoll
