// GELU, squared ReLU, soft caps, factors, add, bias add (oneDNN), fill and cast.
// Squared ReLU: So et al. 2021, "Primer", arXiv 2109.08668, section 4.1.
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/packed_weights.h"

namespace plimsoll {

namespace {

dnnl::algorithm gelu_of(const KernelRequest& request) {
  return request.params<ActivationParams>().exact ? dnnl::algorithm::eltwise_gelu_erf
                                                  : dnnl::algorithm::eltwise_gelu_tanh;
}

/// The elements of output 0, in blocks where they have to be converted.
RowBlocks elements_of(const KernelRequest& request) {
  return RowBlocks::for_type(request.output(0).dtype, request.output_elements(0), 1);
}

dnnl::eltwise_forward::primitive_desc describe_gelu(const KernelRequest& request,
                                                    const dnnl::memory::desc& layout) {
  return {{dnnl::prop_kind::forward_training, gelu_of(request), layout},
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
  return map_rows<1>(request, elements_of(request),
                     [](const RowsRun<1>& run) { squared_relu_row(run.x[0], run.y, run.count); });
}

KernelPointer prepare_squared_relu_backward(const KernelRequest& request) {
  return map_rows<2>(request, elements_of(request), [](const RowsRun<2>& run) {
    squared_relu_backward_row(run.x[0], run.x[1], run.y, run.count);
  });
}

KernelPointer prepare_gelu(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  BlockPrimitive gelu(blocks, [&](std::int64_t count) {
    const auto layout = dense({count});
    Primitive block(request.library, describe_gelu(request, layout), scratch);
    block.declare(DNNL_ARG_SRC, layout);
    block.declare(DNNL_ARG_DST, layout);
    return block;
  });
  return map_rows<1>(request, blocks, scratch, [gelu](const RowsRun<1>& run) mutable {
    Primitive& block = gelu.for_rows(run.count);
    block.set(DNNL_ARG_SRC, run.x[0]);
    block.set(DNNL_ARG_DST, run.y);
    block.execute();
  });
}

KernelPointer prepare_gelu_backward(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  BlockPrimitive gelu(blocks, [&](std::int64_t count) {
    const auto layout = dense({count});
    const dnnl::eltwise_backward::primitive_desc descriptor(
        {gelu_of(request), layout, layout}, scratchpad_attributes(), request.library.engine,
        describe_gelu(request, layout));
    Primitive block(request.library, descriptor, scratch);
    for (int argument : {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC})
      block.declare(argument, layout);
    return block;
  });
  return map_rows<2>(request, blocks, scratch, [gelu](const RowsRun<2>& run) mutable {
    Primitive& block = gelu.for_rows(run.count);
    block.set(DNNL_ARG_DIFF_DST, run.x[0]);
    block.set(DNNL_ARG_SRC, run.x[1]);
    block.set(DNNL_ARG_DIFF_SRC, run.y);
    block.execute();
  });
}

KernelPointer prepare_add(const KernelRequest& request) {
  const RowBlocks blocks = elements_of(request);
  Scratch scratch(request);
  BlockPrimitive sum(blocks, [&](std::int64_t count) {
    return make_sum(request, dense({count}), dense({count}), scratch);
  });
  return map_rows<2>(request, blocks, scratch, [sum](const RowsRun<2>& run) mutable {
    run_sum(sum.for_rows(run.count), run.x[0], run.x[1], run.y);
  });
}

KernelPointer prepare_bias_add(const KernelRequest& request) {
  const std::int64_t columns = request.input_elements(1);
  const RowBlocks blocks =
      RowBlocks::for_type(request.output(0).dtype, request.input_elements(0) / columns, columns);
  Scratch scratch(request);
  const Rows bias = whole_row(request.input(1), scratch);
  BlockPrimitive sum(blocks, [&](std::int64_t rows) {
    return make_sum(request, dense({rows, columns}), dense({1, columns}), scratch);
  });
  const float* added = nullptr;
  return map_rows<1>(request, blocks, scratch, [=](const RowsRun<1>& run) mutable {
    if (run.first == 0) added = bias.read(run.in[1], 0, 1);
    run_sum(sum.for_rows(run.count), run.x[0], added, run.y);
  });
}

KernelPointer prepare_copy_to_host(const KernelRequest& request) {
  const auto bytes = std::size_t(bytes_of(request.output(0)).count());
  return make_kernel([bytes](Addresses in, Addresses out, const RunPosition&) {
    std::memcpy(out[0], in[0], bytes);
  });
}

KernelPointer prepare_copy_to_device(const KernelRequest& request) {
  const DType type = request.output(0).dtype;
  if (request.input(0).dtype == type) return prepare_copy_to_host(request);
  const std::int64_t count = request.output_elements(0);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    from_f32(type, floats(in, 0), out[0], count);
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

KernelPointer prepare_unpack_weight(const KernelRequest& request) {
  const bool nested = request.params<PackParams>().nested;
  const DType type = request.output(0).dtype;
  const std::int64_t count = request.output_elements(0);
  const RowBlocks blocks = RowBlocks::in_cache(count, 1);
  Scratch scratch(request);
  float* const values = scratch.take_floats(blocks.block);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    blocks.each([&](std::int64_t first, std::int64_t rows) {
      unpack_weight(in[0], count, nested, first, {values, std::size_t(rows)});
      from_f32(type, values, out[0] + first * element_bytes(type), rows);
    });
  });
}

KernelPointer prepare_multiply(const KernelRequest& request) {
  const auto factor = float(request.params<FactorParams>().factor);
  return map_rows<1>(request, elements_of(request), [factor](const RowsRun<1>& run) {
    for (std::int64_t i = 0; i < run.count; ++i) run.y[i] = factor * run.x[0][i];
  });
}

KernelPointer prepare_soft_cap(const KernelRequest& request) {
  const auto limit = float(request.params<CapParams>().limit);
  return map_rows<1>(request, elements_of(request), [limit](const RowsRun<1>& run) {
    for (std::int64_t i = 0; i < run.count; ++i) run.y[i] = limit * std::tanh(run.x[0][i] / limit);
  });
}

KernelPointer prepare_soft_cap_backward(const KernelRequest& request) {
  const auto limit = float(request.params<CapParams>().limit);
  return map_rows<2>(request, elements_of(request), [limit](const RowsRun<2>& run) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const float share = run.x[1][i] / limit;
      run.y[i] = run.x[0][i] * (1 - share * share);
    }
  });
}

}  // namespace plimsoll
