// Rows of experts: copied from tokens, summed for tokens, with the bias of their expert, or times
// their weights.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// Rows [m,f] of e experts. Expert i has those up to its end.
struct BiasedRows {
  std::int64_t rows, columns, experts;
  float share;  ///< of the bias, that this rank adds
  explicit BiasedRows(const CudaRequest& request)
      : rows(request.input(0).shape[0]),
        columns(request.input_elements(0) / rows),
        experts(request.input(1).shape[0]),
        share(1 / float(request.params<GroupedBiasParams>().ranks)) {}
  /// Returns the expert of a row, or `experts` behind the last one.
  __device__ std::int64_t expert_of(std::int64_t row, const std::int32_t* ends) const {
    std::int64_t expert = 0;
    while (expert < experts && ends[expert] <= row) ++expert;
    return expert;
  }
};

/// A block works on one row at a time. y may be x.
template <class T>
__global__ void add_biases(BiasedRows s, const T* x, const T* bias, const std::int32_t* ends,
                           const float* weights, T* y) {
  for (std::int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const std::int64_t expert = s.expert_of(row, ends);
    const float factor = weights == nullptr ? s.share : s.share * weights[row];
    for (std::int64_t c = threadIdx.x; c < s.columns; c += blockDim.x) {
      const float more = expert < s.experts ? factor * to_float(bias[expert * s.columns + c]) : 0;
      y[row * s.columns + c] = from_float<T>(to_float(x[row * s.columns + c]) + more);
    }
  }
}

/// A thread sums one column of one expert, over its rows in order.
template <class T, class G>
__global__ void sum_biases(BiasedRows s, const T* dy, const std::int32_t* ends,
                           const float* weights, G* dbias) {
  for (std::int64_t i = global_thread(); i < s.experts * s.columns; i += global_threads()) {
    const std::int64_t expert = i / s.columns, column = i % s.columns;
    float sum = 0;
    for (std::int64_t row = expert > 0 ? ends[expert - 1] : 0; row < ends[expert]; ++row)
      sum += (weights == nullptr ? 1 : weights[row]) * to_float(dy[row * s.columns + column]);
    dbias[i] = from_float<G>(to_float(dbias[i]) + sum);
  }
}

template <class T>
__global__ void weigh_biases(BiasedRows s, const T* dy, const T* bias, const std::int32_t* ends,
                             float* dweights) {
  for (std::int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const std::int64_t expert = s.expert_of(row, ends);
    float sum = 0;
    for (std::int64_t c = threadIdx.x; c < s.columns && expert < s.experts; c += blockDim.x)
      sum += to_float(dy[row * s.columns + c]) * to_float(bias[expert * s.columns + c]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) dweights[row] = s.share * sum;
  }
}

/// y = x times the weight of the row. With `dy`, dy is what is multiplied, and dweights has its
/// products with x.
template <class T>
__global__ void multiply_rows(std::int64_t rows, std::int64_t columns, const T* dy, const T* x,
                              const float* weights, T* y, float* dweights) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float weight = weights[row];
    float sum = 0;
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      const float value = to_float(x[row * columns + c]);
      const float slope = dy == nullptr ? value : to_float(dy[row * columns + c]);
      sum += slope * value;
      y[row * columns + c] = from_float<T>(slope * weight);
    }
    if (dweights == nullptr) continue;
    sum = block_sum(sum);
    if (threadIdx.x == 0) dweights[row] = sum;
  }
}

/// A block writes the row of one choice at a time.
template <class T>
__global__ void scatter_rows(std::int64_t choices, std::int64_t each, std::int64_t columns,
                             const std::int32_t* rows, const T* x, T* y, const float* weights,
                             float* row_weights) {
  for (std::int64_t i = blockIdx.x; i < choices; i += gridDim.x) {
    const std::int64_t row = rows[i];
    if (row < 0) continue;
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x)
      y[row * columns + c] = x[i / each * columns + c];
    if (weights != nullptr && threadIdx.x == 0) row_weights[row] = weights[i];
  }
}

/// A block adds up the rows of one token at a time, in the order of its choices.
template <class T>
__global__ void sum_rows(std::int64_t tokens, std::int64_t each, std::int64_t columns,
                         const std::int32_t* rows, const T* y, T* x, const float* row_weights,
                         float* weights) {
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const std::int32_t* own = rows + token * each;
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      float sum = 0;
      for (std::int64_t j = 0; j < each; ++j) {
        if (own[j] >= 0) sum += to_float(y[own[j] * columns + c]);
      }
      x[token * columns + c] = from_float<T>(sum);
    }
    if (weights == nullptr) continue;
    for (std::int64_t j = threadIdx.x; j < each; j += blockDim.x)
      weights[token * each + j] = own[j] < 0 ? 0 : row_weights[own[j]];
  }
}

CudaKernelPointer prepare_scatter(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& rows = request.input(1).shape;
  const std::int64_t choices = rows[0] * rows[1], each = rows[1];
  const std::int64_t columns = request.input(0).shape[1];
  const bool weighted = request.op.outputs.size() > 1;
  const auto bytes = std::size_t(bytes_of(request.output(0)).count());
  const std::size_t weight_bytes = weighted ? std::size_t(bytes_of(request.output(1)).count()) : 0;
  const DType type = request.output(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    check(cudaMemsetAsync(out[0], 0, bytes, device.stream), "rows without a choice");
    if (weighted) check(cudaMemsetAsync(out[1], 0, weight_bytes, device.stream), "their weights");
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, blocks_for(device, choices * kThreads), kThreads, 0, scatter_rows<T>,
             choices, each, columns, input_at<std::int32_t>(in, 1), input_at<T>(in, 0),
             output_at<T>(out, 0), weighted ? input_at<float>(in, 2) : nullptr,
             weighted ? output_at<float>(out, 1) : nullptr);
    });
  });
}

CudaKernelPointer prepare_sum(const CudaRequest& request, std::size_t rows_at) {
  const CudaDevice& device = request.device;
  const Shape& rows = request.input(rows_at).shape;
  const std::int64_t tokens = rows[0], each = rows[1], columns = request.input(0).shape[1];
  const bool weighted = request.op.outputs.size() > 1;
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, tokens * kThreads), kThreads, 0, sum_rows<T>, tokens,
           each, columns, input_at<std::int32_t>(in, rows_at), input_at<T>(in, 0),
           output_at<T>(out, 0), weighted ? input_at<float>(in, 1) : nullptr,
           weighted ? output_at<float>(out, 1) : nullptr);
  });
}

}  // namespace

CudaKernelPointer prepare_grouped_bias_add(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const BiasedRows s(request);
  const bool weighted = request.op.inputs.size() > 3;
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, s.rows * kThreads), kThreads, 0, add_biases<T>, s,
           input_at<T>(in, 0), input_at<T>(in, 1), input_at<std::int32_t>(in, 2),
           weighted ? input_at<float>(in, 3) : nullptr, output_at<T>(out, 0));
  });
}

CudaKernelPointer prepare_grouped_bias_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const BiasedRows s(request);
  const bool weighted = request.op.inputs.size() > 3;
  const DType type = request.input(0).dtype, target = request.output(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      const float* weights = weighted ? input_at<float>(in, 3) : nullptr;
      with_type(target, [&](auto of_target) {
        using G = decltype(of_target);
        launch(device.stream, blocks_for(device, s.experts * s.columns), kThreads, 0,
               sum_biases<T, G>, s, input_at<T>(in, 0), input_at<std::int32_t>(in, 2), weights,
               output_at<G>(out, 0));
      });
      if (!weighted) return;
      launch(device.stream, blocks_for(device, s.rows * kThreads), kThreads, 0, weigh_biases<T>, s,
             input_at<T>(in, 0), input_at<T>(in, 1), input_at<std::int32_t>(in, 2),
             output_at<float>(out, 1));
    });
  });
}

CudaKernelPointer prepare_scale_rows(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* none = nullptr;
    float* no_weights = nullptr;
    launch(device.stream, blocks_for(device, rows * kThreads), kThreads, 0, multiply_rows<T>, rows,
           columns, none, input_at<T>(in, 0), input_at<float>(in, 1), output_at<T>(out, 0),
           no_weights);
  });
}

CudaKernelPointer prepare_scale_rows_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, rows * kThreads), kThreads, 0, multiply_rows<T>, rows,
           columns, input_at<T>(in, 0), input_at<T>(in, 1), input_at<float>(in, 2),
           output_at<T>(out, 0), output_at<float>(out, 1));
  });
}

CudaKernelPointer prepare_dispatch_rows(const CudaRequest& request) {
  return prepare_scatter(request);
}
CudaKernelPointer prepare_combine_rows_backward(const CudaRequest& request) {
  return prepare_scatter(request);
}
CudaKernelPointer prepare_combine_rows(const CudaRequest& request) {
  return prepare_sum(request, 1);
}
CudaKernelPointer prepare_dispatch_rows_backward(const CudaRequest& request) {
  return prepare_sum(request, 2);
}

}  // namespace plimsoll
