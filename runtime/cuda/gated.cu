// Gated linear units (Shazeer 2020, arXiv 2002.05202): y = f(gate) up, where f is SiLU or GELU.
// SwiGLU may clamp its operands (ActivationParams).
#include <limits>

#include "runtime/cuda/activations.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// A Clamp is applied to gates and ups.
struct Clamp {
  float limit, offset;

  explicit Clamp(const ActivationParams& params)
      : limit(params.limit > 0 ? float(params.limit) : std::numeric_limits<float>::infinity()),
        offset(float(params.offset)) {}
  // fminf() and fmaxf() would turn values that are no numbers into the limit.
  __device__ float gate(float value) const { return value > limit ? limit : value; }
  __device__ float up(float value) const {
    const float most = gate(value);
    return most < -limit ? -limit : most;
  }
};

/// x: rows of `columns` gates and as many ups; null weights are 1. A block works on one row at a
/// time.
template <int kCount, class Function, class T>
__global__ void gated(std::int64_t rows, std::int64_t columns, Function f, Clamp clamp, const T* x,
                      const float* weights, T* y) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float weight = weights == nullptr ? 1 : weights[row];
    const T* gates = x + row * 2 * columns;
    for (std::int64_t at = threadIdx.x * kCount; at < columns; at += blockDim.x * kCount) {
      float gate[kCount], up[kCount];
      load(gates + at, gate);
      load(gates + columns + at, up);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const float g = clamp.gate(gate[j]);
        up[j] = (clamp.up(up[j]) + clamp.offset) * (weight * (g * f.share(g)));
      }
      store(y + row * columns + at, up);
    }
  }
}

template <int kCount, class Function, class T>
__global__ void gated_backward(std::int64_t rows, std::int64_t columns, Function f, Clamp clamp,
                               const T* dy, const T* x, const float* weights, T* dx,
                               float* dweights) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float weight = weights == nullptr ? 1 : weights[row];
    float dweight = 0;
    const std::int64_t gates = row * 2 * columns;
    for (std::int64_t at = threadIdx.x * kCount; at < columns; at += blockDim.x * kCount) {
      float gate[kCount], up[kCount], slope[kCount];
      load(x + gates + at, gate);
      load(x + gates + columns + at, up);
      load(dy + row * columns + at, slope);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const float g = clamp.gate(gate[j]), u = clamp.up(up[j]), s = f.share(g);
        const float factor = u + clamp.offset;
        dweight += slope[j] * (g * s) * factor;
        gate[j] = !(gate[j] > clamp.limit) ? weight * (slope[j] * factor * f.slope(g, s)) : 0;
        up[j] = u == up[j] ? weight * (slope[j] * g * s) : 0;
      }
      store(dx + gates + at, gate);
      store(dx + gates + columns + at, up);
    }
    if (weights == nullptr) continue;
    dweight = block_sum(dweight);
    if (threadIdx.x == 0) dweights[row] = dweight;
  }
}

/// Enough blocks for all rows at once, or to fill the GPU.
unsigned row_blocks(const CudaDevice& device, std::int64_t rows) {
  return blocks_for(device, rows * kThreads);
}

template <class Function>
CudaKernelPointer prepare_forward(const CudaRequest& request, Function f) {
  const Clamp clamp(request.params<ActivationParams>());
  const CudaDevice& device = request.device;
  const std::int64_t rows = request.output(0).shape[0], columns = request.output(0).shape[1];
  const bool weighted = request.op.inputs.size() > 1;
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const float* weights = weighted ? input_at<float>(in, 1) : nullptr;
    const T* x = input_at<T>(in, 0);
    T* y = output_at<T>(out, 0);
    const bool wide = aligned({x, y}, columns * std::int64_t(sizeof(T)));
    launch(device.stream, row_blocks(device, rows), kThreads, 0,
           wide ? gated<kPack<T>, Function, T> : gated<1, Function, T>, rows, columns, f, clamp, x,
           weights, y);
  });
}

template <class Function>
CudaKernelPointer prepare_backward(const CudaRequest& request, Function f) {
  const Clamp clamp(request.params<ActivationParams>());
  const CudaDevice& device = request.device;
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  const bool weighted = request.op.inputs.size() > 2;
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const float* weights = weighted ? input_at<float>(in, 2) : nullptr;
    float* dweights = weighted ? output_at<float>(out, 1) : nullptr;
    const T *dy = input_at<T>(in, 0), *x = input_at<T>(in, 1);
    T* dx = output_at<T>(out, 0);
    const bool wide = aligned({dy, x, dx}, columns * std::int64_t(sizeof(T)));
    launch(device.stream, row_blocks(device, rows), kThreads, 0,
           wide ? gated_backward<kPack<T>, Function, T> : gated_backward<1, Function, T>, rows,
           columns, f, clamp, dy, x, weights, dx, dweights);
  });
}

}  // namespace

CudaKernelPointer prepare_swiglu(const CudaRequest& request) {
  return prepare_forward(request, Silu{float(request.params<ActivationParams>().sharpness)});
}
CudaKernelPointer prepare_geglu(const CudaRequest& request) {
  return request.params<ActivationParams>().exact ? prepare_forward(request, ExactGeluShare{})
                                                  : prepare_forward(request, GeluShare{});
}

CudaKernelPointer prepare_swiglu_backward(const CudaRequest& request) {
  return prepare_backward(request, Silu{float(request.params<ActivationParams>().sharpness)});
}
CudaKernelPointer prepare_geglu_backward(const CudaRequest& request) {
  return request.params<ActivationParams>().exact ? prepare_backward(request, ExactGeluShare{})
                                                  : prepare_backward(request, GeluShare{});
}

namespace {

template <int kCount, class T>
__global__ void gate_backward(std::int64_t count, const T* dy, const T* x, const T* gate, T* dx,
                              T* dgate) {
  for (std::int64_t i = global_thread() * kCount; i < count; i += global_threads() * kCount) {
    float slope[kCount], value[kCount], of[kCount];
    load(dy + i, slope);
    load(x + i, value);
    load(gate + i, of);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float s = sigmoid(of[j]);
      of[j] = slope[j] * value[j] * s * (1 - s);
      slope[j] *= s;
    }
    store(dx + i, slope);
    store(dgate + i, of);
  }
}

}  // namespace

CudaKernelPointer prepare_gate_values_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t count = request.output_elements(0);
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T *dy = input_at<T>(in, 0), *x = input_at<T>(in, 1), *gate = input_at<T>(in, 2);
    T *dx = output_at<T>(out, 0), *dgate = output_at<T>(out, 1);
    const bool wide = aligned({dy, x, gate, dx, dgate}, count * std::int64_t(sizeof(T)));
    launch(device.stream, blocks_for(device, wide ? count / kPack<T> : count), kThreads, 0,
           wide ? gate_backward<kPack<T>, T> : gate_backward<1, T>, count, dy, x, gate, dx, dgate);
  });
}

}  // namespace plimsoll
