// GELU, add, bias add (oneDNN) and fill.
#include <cstring>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

constexpr dnnl::algorithm kGelu = dnnl::algorithm::eltwise_gelu_tanh;

dnnl::eltwise_forward::primitive_desc describe_gelu(const KernelRequest& request) {
  return {{dnnl::prop_kind::forward_training, kGelu, dense({request.input_elements(0)})},
          scratchpad_attributes(),
          request.library.engine};
}

/// out 0 = in 0 + in 1, where in 1 may have fewer dimensions' worth of elements.
KernelPointer prepare_sum(const KernelRequest& request, const dnnl::memory::desc& a,
                          const dnnl::memory::desc& b) {
  const dnnl::binary::primitive_desc descriptor({dnnl::algorithm::binary_add, a, b, a},
                                                scratchpad_attributes(), request.library.engine);
  Scratch scratch(request);
  Primitive sum(request.library, descriptor, scratch);
  sum.declare(DNNL_ARG_SRC_0, a);
  sum.declare(DNNL_ARG_SRC_1, b);
  sum.declare(DNNL_ARG_DST, a);
  return make_kernel([sum](Addresses in, Addresses out, const RunPosition&) mutable {
    sum.set(DNNL_ARG_SRC_0, in[0]);
    sum.set(DNNL_ARG_SRC_1, in[1]);
    sum.set(DNNL_ARG_DST, out[0]);
    sum.execute();
  });
}

}  // namespace

PLIMSOLL_VECTORIZE void fill_floats(float* values, std::int64_t count, float value) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] = value;
}

KernelPointer prepare_gelu(const KernelRequest& request) {
  const auto layout = dense({request.input_elements(0)});
  Scratch scratch(request);
  Primitive gelu(request.library, describe_gelu(request), scratch);
  gelu.declare(DNNL_ARG_SRC, layout);
  gelu.declare(DNNL_ARG_DST, layout);
  return make_kernel([gelu](Addresses in, Addresses out, const RunPosition&) mutable {
    gelu.set(DNNL_ARG_SRC, in[0]);
    gelu.set(DNNL_ARG_DST, out[0]);
    gelu.execute();
  });
}

KernelPointer prepare_gelu_backward(const KernelRequest& request) {
  const auto layout = dense({request.input_elements(0)});
  const dnnl::eltwise_backward::primitive_desc descriptor(
      {kGelu, layout, layout}, scratchpad_attributes(), request.library.engine,
      describe_gelu(request));
  Scratch scratch(request);
  Primitive gelu(request.library, descriptor, scratch);
  gelu.declare(DNNL_ARG_DIFF_DST, layout);
  gelu.declare(DNNL_ARG_SRC, layout);
  gelu.declare(DNNL_ARG_DIFF_SRC, layout);
  return make_kernel([gelu](Addresses in, Addresses out, const RunPosition&) mutable {
    gelu.set(DNNL_ARG_DIFF_DST, in[0]);
    gelu.set(DNNL_ARG_SRC, in[1]);
    gelu.set(DNNL_ARG_DIFF_SRC, out[0]);
    gelu.execute();
  });
}

KernelPointer prepare_add(const KernelRequest& request) {
  const auto layout = dense({request.output_elements(0)});
  return prepare_sum(request, layout, layout);
}

KernelPointer prepare_bias_add(const KernelRequest& request) {
  const std::int64_t columns = request.input_elements(1);
  return prepare_sum(request, dense({request.input_elements(0) / columns, columns}),
                     dense({1, columns}));
}

KernelPointer prepare_fill(const KernelRequest& request) {
  const std::int64_t count = request.output_elements(0);
  const auto value = float(request.params<FillParams>().value);
  return make_kernel([count, value](Addresses, Addresses out, const RunPosition&) {
    if (value == 0) {  // the common case: gradients, at the speed of memset
      std::memset(out[0], 0, std::size_t(count) * sizeof(float));
    } else {
      fill_floats(floats_out(out, 0), count, value);
    }
  });
}

}  // namespace plimsoll
