// Kernels that work on each element alone: GELU, squared ReLU, soft caps, factors, add, cast, fill
// and the small scalar ops. Bound by memory: a thread loads and stores 16 bytes at a time.
#include <algorithm>
#include <utility>

#include "runtime/cuda/activations.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"
#include "runtime/half.h"
#include "runtime/packed_weights.h"

namespace plimsoll {

namespace {

struct FloatTable {
  float values[16];
};

/// A thread unpacks one element; the threads of a block share its scale.
template <class T>
__global__ void unpack_block(const std::uint8_t* packed, PackedLayout layout, FloatTable table,
                             std::int64_t count, T* weight) {
  const auto floats = [&](std::int64_t at) { return reinterpret_cast<const float*>(packed + at); };
  const std::int64_t block = blockIdx.x, at = block * blockDim.x + threadIdx.x;
  if (at >= count) return;
  float scale = 0;
  if (layout.nested) {
    const float step = float(int(packed[layout.scales + block]) - 128) / 127;
    scale = *floats(layout.mean) + floats(layout.outer)[block / kOuterBlock] * step;
  } else {
    scale = floats(layout.scales)[block];
  }
  const int pair = packed[at / 2], code = at % 2 == 0 ? pair >> 4 : pair & 15;
  weight[at] = from_float<T>(table.values[code] * scale);
}

template <class Function>
struct Gelu {
  __device__ float operator()(float x) const { return x * Function().share(x); }
};
template <class Function>
struct GeluSlope {
  __device__ float operator()(float dy, float x) const {
    return dy * Function().slope(x, Function().share(x));
  }
};
struct Product {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};
struct Gated {
  __device__ float operator()(float x, float gate) const { return x * sigmoid(gate); }
};
/// So et al. 2021 (Primer), arXiv 2109.08668, section 4.1.
struct SquaredRelu {
  __device__ float operator()(float x) const { return x > 0 ? x * x : 0; }
};
struct SquaredReluSlope {
  __device__ float operator()(float dy, float x) const { return x > 0 ? 2 * x * dy : 0; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return larger(a, b); }
};
struct Quotient {
  __device__ float operator()(float a, float b) const { return a / b; }
};
struct SquareRoot {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
/// Gemma 2, arXiv 2408.00118, section 2.
struct Cap {
  float limit;
  __device__ float operator()(float x) const { return limit * tanhf(x / limit); }
};
struct CapSlope {
  float limit;
  __device__ float operator()(float dy, float y) const {
    const float share = y / limit;
    return dy * (1 - share * share);
  }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};

/// y = f(x). May work in place.
template <int kCount, class Function, class X, class Y>
__global__ void map(std::int64_t count, Function f, const X* x, Y* y) {
  const std::int64_t packs = count / kCount;
  for (std::int64_t i = global_thread(); i < packs; i += global_threads()) {
    float values[kCount];
    load(x + i * kCount, values);
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = f(values[j]);
    store(y + i * kCount, values);
  }
  for (std::int64_t i = packs * kCount + global_thread(); i < count; i += global_threads())
    y[i] = from_float<Y>(f(to_float(x[i])));
}

/// y = f(a, b).
template <int kCount, class Function, class T>
__global__ void map2(std::int64_t count, Function f, const T* a, const T* b, T* y) {
  const std::int64_t packs = count / kCount;
  for (std::int64_t i = global_thread(); i < packs; i += global_threads()) {
    float left[kCount], right[kCount];
    load(a + i * kCount, left);
    load(b + i * kCount, right);
#pragma unroll
    for (int j = 0; j < kCount; ++j) left[j] = f(left[j], right[j]);
    store(y + i * kCount, left);
  }
  for (std::int64_t i = packs * kCount + global_thread(); i < count; i += global_threads())
    y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
}

template <class Function, class X, class Y>
void launch_map(const CudaDevice& device, std::int64_t count, Function f, const X* x, Y* y) {
  constexpr int kWide = int(16 / std::min(sizeof(X), sizeof(Y)));
  if (aligned({x, y})) {
    launch(device.stream, blocks_for(device, count / kWide + 1), kThreads, 0,
           map<kWide, Function, X, Y>, count, f, x, y);
  } else {
    launch(device.stream, blocks_for(device, count), kThreads, 0, map<1, Function, X, Y>, count, f,
           x, y);
  }
}

template <class Function>
CudaKernelPointer prepare_map2(const CudaRequest& request, Function f) {
  const CudaDevice& device = request.device;
  const std::int64_t count = request.output_elements(0);
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T *a = input_at<T>(in, 0), *b = input_at<T>(in, 1);
    T* y = output_at<T>(out, 0);
    if (aligned({a, b, y})) {
      launch(device.stream, blocks_for(device, count / kPack<T> + 1), kThreads, 0,
             map2<kPack<T>, Function, T>, count, f, a, b, y);
    } else {
      launch(device.stream, blocks_for(device, count), kThreads, 0, map2<1, Function, T>, count, f,
             a, b, y);
    }
  });
}

template <class Function>
CudaKernelPointer prepare_map(const CudaRequest& request, Function f) {
  const CudaDevice& device = request.device;
  const std::int64_t count = request.output_elements(0);
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch_map(device, count, f, input_at<T>(in, 0), output_at<T>(out, 0));
  });
}

/// `bits` is the value as it is stored.
template <class Word>
__global__ void fill_with(std::int64_t count, Word bits, Word* x) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) x[i] = bits;
}

__global__ void flag_to_float(const std::int32_t* flag, float* x) { *x = float(*flag); }
__global__ void float_to_flag(const float* x, std::int32_t* flag) { *flag = std::int32_t(*x); }

}  // namespace

CudaKernelPointer prepare_gelu(const CudaRequest& request) {
  return request.params<ActivationParams>().exact ? prepare_map(request, Gelu<ExactGeluShare>{})
                                                  : prepare_map(request, Gelu<GeluShare>{});
}
CudaKernelPointer prepare_multiply(const CudaRequest& request) {
  return prepare_map(request, Product{float(request.params<FactorParams>().factor)});
}
CudaKernelPointer prepare_gate_values(const CudaRequest& request) {
  return prepare_map2(request, Gated{});
}
CudaKernelPointer prepare_squared_relu(const CudaRequest& request) {
  return prepare_map(request, SquaredRelu{});
}
CudaKernelPointer prepare_squared_relu_backward(const CudaRequest& request) {
  return prepare_map2(request, SquaredReluSlope{});
}

CudaKernelPointer prepare_gelu_backward(const CudaRequest& request) {
  return request.params<ActivationParams>().exact
             ? prepare_map2(request, GeluSlope<ExactGeluShare>{})
             : prepare_map2(request, GeluSlope<GeluShare>{});
}
CudaKernelPointer prepare_add(const CudaRequest& request) { return prepare_map2(request, Sum{}); }
CudaKernelPointer prepare_maximum(const CudaRequest& request) {
  return prepare_map2(request, Larger{});
}
CudaKernelPointer prepare_divide(const CudaRequest& request) {
  return prepare_map2(request, Quotient{});
}

CudaKernelPointer prepare_square_root(const CudaRequest& request) {
  return prepare_map(request, SquareRoot{});
}
CudaKernelPointer prepare_soft_cap(const CudaRequest& request) {
  return prepare_map(request, Cap{float(request.params<CapParams>().limit)});
}
CudaKernelPointer prepare_soft_cap_backward(const CudaRequest& request) {
  return prepare_map2(request, CapSlope{float(request.params<CapParams>().limit)});
}

CudaKernelPointer prepare_cast(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const DType from = request.input(0).dtype, to = request.output(0).dtype;
  if (from == DType::i32) {
    return make_cuda_kernel([&device](DeviceAddresses in, DeviceAddresses out) {
      launch(device.stream, 1, 1, 0, flag_to_float, input_at<std::int32_t>(in, 0),
             output_at<float>(out, 0));
    });
  }
  if (to == DType::i32) {
    return make_cuda_kernel([&device](DeviceAddresses in, DeviceAddresses out) {
      launch(device.stream, 1, 1, 0, float_to_flag, input_at<float>(in, 0),
             output_at<std::int32_t>(out, 0));
    });
  }
  const std::int64_t count = request.output_elements(0);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(from, [&](auto zero) {
      using X = decltype(zero);
      with_type(to, [&](auto rounded) {
        using Y = decltype(rounded);
        launch_map(device, count, Same{}, input_at<X>(in, 0), output_at<Y>(out, 0));
      });
    });
  });
}

CudaKernelPointer prepare_unpack_weight(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const DType type = request.output(0).dtype;
  const std::int64_t count = request.output_elements(0);
  const PackedLayout layout = packed_layout(count, request.params<PackParams>().nested);
  FloatTable table;
  std::copy(kNormalFloat.begin(), kNormalFloat.end(), table.values);
  const auto blocks = unsigned((count + kPackedBlock - 1) / kPackedBlock);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, blocks, unsigned(kPackedBlock), 0, unpack_block<T>,
             input_at<std::uint8_t>(in, 0), layout, table, count, output_at<T>(out, 0));
    });
  });
}

CudaKernelPointer prepare_copy_to_host(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const auto bytes = std::size_t(bytes_of(request.output(0)).count());
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    check(cudaMemcpyAsync(out[0], in[0], bytes, cudaMemcpyDefault, device.stream), "a copy");
  });
}

/// The device casts what it reads in the host's memory, which is pinned.
CudaKernelPointer prepare_copy_to_device(const CudaRequest& request) {
  const bool casts = request.input(0).dtype != request.output(0).dtype;
  return casts ? prepare_cast(request) : prepare_copy_to_host(request);
}

CudaKernelPointer prepare_fill(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t count = request.output_elements(0);
  const auto value = float(request.params<FillParams>().value);
  const DType type = request.output(0).dtype;
  const auto bytes = std::size_t(bytes_of(request.output(0)).count());
  if (value == 0) {  // the common case: gradients, at the speed of memset
    return make_cuda_kernel([=, &device](DeviceAddresses, DeviceAddresses out) {
      check(cudaMemsetAsync(out[0], 0, bytes, device.stream), "fill");
    });
  }
  std::uint32_t word = 0;
  from_f32(type, &value, reinterpret_cast<std::byte*>(&word), 1);
  return make_cuda_kernel([=, &device](DeviceAddresses, DeviceAddresses out) {
    const unsigned blocks = blocks_for(device, count);
    if (type == DType::f32) {
      launch(device.stream, blocks, kThreads, 0, fill_with<std::uint32_t>, count, word,
             output_at<std::uint32_t>(out, 0));
    } else {
      launch(device.stream, blocks, kThreads, 0, fill_with<std::uint16_t>, count,
             std::uint16_t(word), output_at<std::uint16_t>(out, 0));
    }
  });
}

CudaKernelPointer prepare_own_part(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Tensor& part = request.output(0);
  const auto bytes = std::size_t(bytes_of(part).count());
  const std::size_t begin = bytes * std::size_t(part_index(*part.split, request.context.at));
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    check(cudaMemcpyAsync(out[0], in[0] + begin, bytes, cudaMemcpyDeviceToDevice, device.stream),
          "own_part");
  });
}

}  // namespace plimsoll
