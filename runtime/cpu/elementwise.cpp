// GELU, squared ReLU, soft caps, add, bias add (oneDNN), fill and cast.
// Squared ReLU: So et al. 2021, "Primer", arXiv 2109.08668, section 4.1.
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

constexpr dnnl::algorithm kGelu = dnnl::algorithm::eltwise_gelu_tanh;

/// The elements of output 0, in blocks where they have to be converted.
RowBlocks elements_of(const KernelRequest& request) {
  return RowBlocks::for_type(request.output(0).dtype, request.output_elements(0), 1);
}

dnnl::eltwise_forward::primitive_desc describe_gelu(const KernelRequest& request,
                                                    const dnnl::memory::desc& layout) {
  return {{dnnl::prop_kind::forward_training, kGelu, layout},
          scratchpad_attributes(),
          request.library.engine};
}

Primitive make_sum(const KernelRequest& request, const dnnl::memory::desc& a,
                   const dnnl::memory::desc& b, Scratch& scratch) {
  const dnnl::binary::primitive_desc descriptor({dnnl::algorithm::binary_add, a, b, a},
                                                scratchpad_attributes(), request.library.engine);
  Primitive sum(request.library, descriptor, scratch);
  sum.declare(DNNL_ARG_SRC_0, a);
  sum.declare(DNNL_ARG_SRC_1, b);
  sum.declare(DNNL_ARG_DST, a);
  return sum;
}

void run_sum(Primitive& sum, const float* a, const float* b, float* result) {
  sum.set(DNNL_ARG_SRC_0, a);
  sum.set(DNNL_ARG_SRC_1, b);
  sum.set(DNNL_ARG_DST, result);
  sum.execute();
}

}  // namespace

PLIMSOLL_VECTORIZE void fill_floats(float* values, std::int64_t count, float value) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] = value;
}

PLIMSOLL_VECTORIZE void squared_relu_row(const float* x, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] * x[i] : 0.0f;
}

PLIMSOLL_VECTORIZE void squared_relu_backward_row(const float* dy, const float* x, float* dx,
                                                  std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dx[i] = x[i] > 0 ? 2.0f * x[i] * dy[i] : 0.0f;
}

PLIMSOLL_VECTORIZE float dot(const float* a, const float* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<float, std::size_t(kLanes)> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float result = 0;
  for (float lane : lanes) result += lane;
  for (; i < count; ++i) result += a[i] * b[i];
  return result;
}

PLIMSOLL_VECTORIZE void add_rows(const float* a, const float* b, float* sum, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

KernelPointer prepare_squared_relu(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch), y(request.output(0), blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      squared_relu_row(x.read(in[0], first, count), y.target(out[0], first), count);
      y.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_squared_relu_backward(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), x(request.input(1), blocks, scratch),
      dx(request.output(0), blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      squared_relu_backward_row(dy.read(in[0], first, count), x.read(in[1], first, count),
                                dx.target(out[0], first), count);
      dx.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_gelu(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch), y(request.output(0), blocks, scratch);
  BlockPrimitive gelu(blocks, [&](std::int64_t count) {
    const auto layout = dense({count});
    Primitive block(request.library, describe_gelu(request, layout), scratch);
    block.declare(DNNL_ARG_SRC, layout);
    block.declare(DNNL_ARG_DST, layout);
    return block;
  });
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      Primitive& block = gelu.for_rows(count);
      block.set(DNNL_ARG_SRC, x.read(in[0], first, count));
      block.set(DNNL_ARG_DST, y.target(out[0], first));
      block.execute();
      y.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_gelu_backward(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), x(request.input(1), blocks, scratch),
      dx(request.output(0), blocks, scratch);
  BlockPrimitive gelu(blocks, [&](std::int64_t count) {
    const auto layout = dense({count});
    const dnnl::eltwise_backward::primitive_desc descriptor(
        {kGelu, layout, layout}, scratchpad_attributes(), request.library.engine,
        describe_gelu(request, layout));
    Primitive block(request.library, descriptor, scratch);
    for (int argument : {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC})
      block.declare(argument, layout);
    return block;
  });
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      Primitive& block = gelu.for_rows(count);
      block.set(DNNL_ARG_DIFF_DST, dy.read(in[0], first, count));
      block.set(DNNL_ARG_SRC, x.read(in[1], first, count));
      block.set(DNNL_ARG_DIFF_SRC, dx.target(out[0], first));
      block.execute();
      dx.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_add(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  const Rows a(request.input(0), blocks, scratch), b(request.input(1), blocks, scratch),
      y(request.output(0), blocks, scratch);
  BlockPrimitive sum(blocks, [&](std::int64_t count) {
    return make_sum(request, dense({count}), dense({count}), scratch);
  });
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      run_sum(sum.for_rows(count), a.read(in[0], first, count), b.read(in[1], first, count),
              y.target(out[0], first));
      y.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_bias_add(const KernelRequest& request) {
  const std::int64_t columns = request.input_elements(1);
  const RowBlocks blocks =
      RowBlocks::for_type(request.output(0).dtype, request.input_elements(0) / columns, columns);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch), bias = whole_row(request.input(1), scratch),
                                                   y(request.output(0), blocks, scratch);
  BlockPrimitive sum(blocks, [&](std::int64_t rows) {
    return make_sum(request, dense({rows, columns}), dense({1, columns}), scratch);
  });
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    const float* added = bias.read(in[1], 0, 1);
    blocks.each([&](std::int64_t first, std::int64_t count) {
      run_sum(sum.for_rows(count), x.read(in[0], first, count), added, y.target(out[0], first));
      y.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_fill(const KernelRequest& request) {
  const std::int64_t count = request.output_elements(0);
  const auto value = float(request.params<FillParams>().value);
  const DType type = request.output(0).dtype;
  return make_kernel([count, value, type](Addresses, Addresses out, const RunPosition&) {
    if (value == 0) {  // the common case: gradients, at the speed of memset
      std::memset(out[0], 0, std::size_t(count * element_bytes(type)));
    } else if (type == DType::f32) {
      fill_floats(floats_out(out, 0), count, value);
    } else {
      std::uint16_t rounded;
      from_f32(type, &value, reinterpret_cast<std::byte*>(&rounded), 1);
      std::fill_n(reinterpret_cast<std::uint16_t*>(out[0]), count, rounded);
    }
  });
}

KernelPointer prepare_cast(const KernelRequest& request) {
  if (request.input(0).dtype == DType::i32 || request.output(0).dtype == DType::i32)
    return prepare_flag_cast(request);
  const RowBlocks blocks = RowBlocks::in_cache(request.output_elements(0), 1);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch);
  const DType to = request.output(0).dtype;
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      from_f32(to, x.read(in[0], first, count), out[0] + first * element_bytes(to), count);
    });
  });
}

KernelPointer prepare_soft_cap(const KernelRequest& request) {
  const RowBlocks blocks =
      RowBlocks::for_type(request.output(0).dtype, request.output_elements(0), 1);
  const auto limit = float(request.params<CapParams>().limit);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch), y(request.output(0), blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      const float* from = x.read(in[0], first, count);
      float* to = y.target(out[0], first);
      for (std::int64_t i = 0; i < count; ++i) to[i] = limit * std::tanh(from[i] / limit);
      y.store(out[0], first, count);
    });
  });
}

KernelPointer prepare_soft_cap_backward(const KernelRequest& request) {
  const RowBlocks blocks =
      RowBlocks::for_type(request.output(0).dtype, request.output_elements(0), 1);
  const auto limit = float(request.params<CapParams>().limit);
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), y(request.input(1), blocks, scratch),
      dx(request.output(0), blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    blocks.each([&](std::int64_t first, std::int64_t count) {
      const float *slope = dy.read(in[0], first, count), *capped = y.read(in[1], first, count);
      float* to = dx.target(out[0], first);
      for (std::int64_t i = 0; i < count; ++i) {
        const float share = capped[i] / limit;
        to[i] = slope[i] * (1 - share * share);
      }
      dx.store(out[0], first, count);
    });
  });
}

}  // namespace plimsoll
