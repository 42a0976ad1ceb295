// Layer norm forward and backward on oneDNN.
//
// oneDNN keeps the variance where the op keeps rstd = 1 / sqrt(variance + epsilon), so n numbers
// are converted on each side.
#include <cmath>
#include <optional>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

dnnl::normalization_flags affine(bool shifts) {
  const auto scale = dnnl::normalization_flags::use_scale;
  return shifts ? scale | dnnl::normalization_flags::use_shift : scale;
}

struct NormShape {
  std::int64_t rows, columns;
  dnnl::memory::desc data() const { return dense({rows, columns}); }
  dnnl::memory::desc statistics() const { return dense({rows}); }
  dnnl::memory::desc affine() const { return dense({columns}); }
};

dnnl::layer_normalization_forward::primitive_desc describe_forward(const KernelRequest& request,
                                                                   const NormShape& shape,
                                                                   bool shifts) {
  return {{dnnl::prop_kind::forward_training, shape.data(), shape.statistics(),
           float(request.params<NormParams>().epsilon), affine(shifts)},
          scratchpad_attributes(),
          request.library.engine};
}

}  // namespace

KernelPointer prepare_layer_norm(const KernelRequest& request) {
  const Shape& shape = request.input(0).shape;
  const RowBlocks blocks = RowBlocks::for_type(request.input(0).dtype, shape[0], shape[1]);
  Scratch scratch(request);
  const bool shifts = request.op.inputs.size() > 2;
  const Rows x(request.input(0), blocks, scratch), gamma = whole_row(request.input(1), scratch),
                                                   y(request.output(0), blocks, scratch);
  std::optional<Rows> beta;
  if (shifts) beta.emplace(whole_row(request.input(2), scratch));
  BlockPrimitive norm(blocks, [&](std::int64_t rows) {
    const NormShape block{rows, blocks.columns};
    Primitive result(request.library, describe_forward(request, block, shifts), scratch);
    result.declare(DNNL_ARG_SRC, block.data());
    result.declare(DNNL_ARG_SCALE, block.affine());
    if (shifts) result.declare(DNNL_ARG_SHIFT, block.affine());
    result.declare(DNNL_ARG_DST, block.data());
    result.declare(DNNL_ARG_MEAN, block.statistics());
    result.declare(DNNL_ARG_VARIANCE, block.statistics());
    return result;
  });
  const auto epsilon = float(request.params<NormParams>().epsilon);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    norm.set(DNNL_ARG_SCALE, gamma.read(in[1], 0, 1));
    if (beta) norm.set(DNNL_ARG_SHIFT, beta->read(in[2], 0, 1));
    float *mean = floats_out(out, 1), *rstd = floats_out(out, 2);
    blocks.each([&](std::int64_t first, std::int64_t count) {
      Primitive& block = norm.for_rows(count);
      block.set(DNNL_ARG_SRC, x.read(in[0], first, count));
      block.set(DNNL_ARG_DST, y.target(out[0], first));
      block.set(DNNL_ARG_MEAN, mean + first);
      block.set(DNNL_ARG_VARIANCE, rstd + first);
      block.execute();
      y.store(out[0], first, count);
    });
    for (std::int64_t i = 0; i < blocks.rows; ++i) rstd[i] = 1.0f / std::sqrt(rstd[i] + epsilon);
  });
}

KernelPointer prepare_layer_norm_backward(const KernelRequest& request) {
  const Shape& shape = request.input(1).shape;
  const RowBlocks blocks = RowBlocks::for_type(request.input(1).dtype, shape[0], shape[1]);
  const auto epsilon = float(request.params<NormParams>().epsilon);
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), x(request.input(1), blocks, scratch),
      gamma = whole_row(request.input(2), scratch), dx(request.output(0), blocks, scratch);
  const bool scales = request.op.outputs.size() > 1, shifts = request.op.outputs.size() > 2;
  std::optional<Rows> scale_sum, shift_sum;
  if (scales) scale_sum.emplace(whole_row(request.output(1), scratch));
  if (shifts) shift_sum.emplace(whole_row(request.output(2), scratch));
  // oneDNN overwrites what the op adds to, so these two go through scratch memory.
  float* dgamma = scratch.take_floats(blocks.columns);
  float* dbeta = scratch.take_floats(blocks.columns);
  float* variance = scratch.take_floats(blocks.rows);
  float* shift = scratch.take_floats(blocks.columns);
  BlockPrimitive norm(blocks, [&](std::int64_t rows) {
    const NormShape block{rows, blocks.columns};
    const dnnl::layer_normalization_backward::primitive_desc descriptor(
        {dnnl::prop_kind::backward, block.data(), block.data(), block.statistics(), epsilon,
         affine(shifts)},
        scratchpad_attributes(), request.library.engine, describe_forward(request, block, shifts));
    Primitive result(request.library, descriptor, scratch);
    for (int argument : {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC})
      result.declare(argument, block.data());
    for (int argument : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE})
      result.declare(argument, block.statistics());
    for (int argument : {DNNL_ARG_SCALE, DNNL_ARG_DIFF_SCALE})
      result.declare(argument, block.affine());
    result.set(DNNL_ARG_DIFF_SCALE, dgamma);
    if (!shifts) return result;
    for (int argument : {DNNL_ARG_SHIFT, DNNL_ARG_DIFF_SHIFT})
      result.declare(argument, block.affine());
    result.set(DNNL_ARG_SHIFT, shift);  // required by oneDNN 2.6, its values are not used
    result.set(DNNL_ARG_DIFF_SHIFT, dbeta);
    return result;
  });
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    const float *mean = floats(in, 3), *rstd = floats(in, 4);
    for (std::int64_t i = 0; i < blocks.rows; ++i)
      variance[i] = 1.0f / (rstd[i] * rstd[i]) - epsilon;
    norm.set(DNNL_ARG_SCALE, gamma.read(in[2], 0, 1));
    if (scale_sum) scale_sum->read(out[1], 0, 1);
    if (shift_sum) shift_sum->read(out[2], 0, 1);
    blocks.each([&](std::int64_t first, std::int64_t count) {
      Primitive& block = norm.for_rows(count);
      block.set(DNNL_ARG_DIFF_DST, dy.read(in[0], first, count));
      block.set(DNNL_ARG_SRC, x.read(in[1], first, count));
      block.set(DNNL_ARG_MEAN, mean + first);
      block.set(DNNL_ARG_VARIANCE, variance + first);
      block.set(DNNL_ARG_DIFF_SRC, dx.target(out[0], first));
      block.execute();
      dx.store(out[0], first, count);
      if (!scale_sum) return;
      add_rows(scale_sum->target(out[1], 0), dgamma, scale_sum->target(out[1], 0), blocks.columns);
      if (!shift_sum) return;
      add_rows(shift_sum->target(out[2], 0), dbeta, shift_sum->target(out[2], 0), blocks.columns);
    });
    if (scale_sum) scale_sum->store(out[1], 0, 1);
    if (shift_sum) shift_sum->store(out[2], 0, 1);
  });
}

}  // namespace plimsoll
