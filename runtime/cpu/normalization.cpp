// Layer norm forward and backward on oneDNN.
//
// oneDNN keeps the variance where the op keeps rstd = 1 / sqrt(variance + epsilon), so n numbers
// are converted on each side.
#include <cmath>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

const auto kAffine = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

struct NormShape {
  std::int64_t rows, columns;
  dnnl::memory::desc data() const { return dense({rows, columns}); }
  dnnl::memory::desc statistics() const { return dense({rows}); }
  dnnl::memory::desc affine() const { return dense({columns}); }
};

dnnl::layer_normalization_forward::primitive_desc describe_forward(const KernelRequest& request,
                                                                   const NormShape& shape) {
  return {{dnnl::prop_kind::forward_training, shape.data(), shape.statistics(),
           float(request.params<NormParams>().epsilon), kAffine},
          scratchpad_attributes(),
          request.library.engine};
}

PLIMSOLL_VECTORIZE void add_to(float* sum, const float* more, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] += more[i];
}

}  // namespace

KernelPointer prepare_layer_norm(const KernelRequest& request) {
  const NormShape shape{request.input(0).shape[0], request.input(0).shape[1]};
  Scratch scratch(request);
  Primitive norm(request.library, describe_forward(request, shape), scratch);
  norm.declare(DNNL_ARG_SRC, shape.data());
  norm.declare(DNNL_ARG_SCALE, shape.affine());
  norm.declare(DNNL_ARG_SHIFT, shape.affine());
  norm.declare(DNNL_ARG_DST, shape.data());
  norm.declare(DNNL_ARG_MEAN, shape.statistics());
  norm.declare(DNNL_ARG_VARIANCE, shape.statistics());
  const auto epsilon = float(request.params<NormParams>().epsilon);
  const std::int64_t rows = shape.rows;
  return make_kernel(
      [norm, epsilon, rows](Addresses in, Addresses out, const RunPosition&) mutable {
        norm.set(DNNL_ARG_SRC, in[0]);
        norm.set(DNNL_ARG_SCALE, in[1]);
        norm.set(DNNL_ARG_SHIFT, in[2]);
        norm.set(DNNL_ARG_DST, out[0]);
        norm.set(DNNL_ARG_MEAN, out[1]);
        norm.set(DNNL_ARG_VARIANCE, out[2]);
        norm.execute();
        float* rstd = floats_out(out, 2);
        for (std::int64_t i = 0; i < rows; ++i) rstd[i] = 1.0f / std::sqrt(rstd[i] + epsilon);
      });
}

KernelPointer prepare_layer_norm_backward(const KernelRequest& request) {
  const NormShape shape{request.input(1).shape[0], request.input(1).shape[1]};
  const auto epsilon = float(request.params<NormParams>().epsilon);
  const dnnl::layer_normalization_backward::primitive_desc descriptor(
      {dnnl::prop_kind::backward, shape.data(), shape.data(), shape.statistics(), epsilon, kAffine},
      scratchpad_attributes(), request.library.engine, describe_forward(request, shape));
  Scratch scratch(request);
  // oneDNN overwrites what the op adds to, so these two go through scratch memory.
  float* dgamma = scratch.take_floats(shape.columns);
  float* dbeta = scratch.take_floats(shape.columns);
  float* variance = scratch.take_floats(shape.rows);
  float* shift = scratch.take_floats(shape.columns);
  Primitive norm(request.library, descriptor, scratch);
  norm.declare(DNNL_ARG_DIFF_DST, shape.data());
  norm.declare(DNNL_ARG_SRC, shape.data());
  norm.declare(DNNL_ARG_SCALE, shape.affine());
  norm.declare(DNNL_ARG_SHIFT, shape.affine());
  norm.declare(DNNL_ARG_MEAN, shape.statistics());
  norm.declare(DNNL_ARG_VARIANCE, shape.statistics());
  norm.declare(DNNL_ARG_DIFF_SRC, shape.data());
  norm.declare(DNNL_ARG_DIFF_SCALE, shape.affine());
  norm.declare(DNNL_ARG_DIFF_SHIFT, shape.affine());
  norm.set(DNNL_ARG_VARIANCE, variance);
  norm.set(DNNL_ARG_SHIFT, shift);  // required by oneDNN 2.6, its values are not used
  norm.set(DNNL_ARG_DIFF_SCALE, dgamma);
  norm.set(DNNL_ARG_DIFF_SHIFT, dbeta);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    const float* rstd = floats(in, 4);
    for (std::int64_t i = 0; i < shape.rows; ++i)
      variance[i] = 1.0f / (rstd[i] * rstd[i]) - epsilon;
    norm.set(DNNL_ARG_DIFF_DST, in[0]);
    norm.set(DNNL_ARG_SRC, in[1]);
    norm.set(DNNL_ARG_SCALE, in[2]);
    norm.set(DNNL_ARG_MEAN, in[3]);
    norm.set(DNNL_ARG_DIFF_SRC, out[0]);
    norm.execute();
    add_to(floats_out(out, 1), dgamma, shape.columns);
    add_to(floats_out(out, 2), dbeta, shape.columns);
  });
}

}  // namespace plimsoll
