// Cross entropy over a vocabulary that may be split over mp. A block per row of logits.
#include "runtime/batch_place.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"
#include "runtime/row_shares.h"

namespace plimsoll {

namespace {

/// This rank's columns of the logits.
struct LogitColumns {
  std::int64_t rows;
  std::int64_t first;    ///< global index of column 0
  std::int64_t columns;  ///< with padding
  std::int64_t real;     ///< leading columns that are below the real vocabulary

  /// Column of the target here, or -1.
  __device__ std::int64_t local(std::int32_t target) const {
    const std::int64_t column = target - first;
    return column >= 0 && column < real ? column : -1;
  }
};

LogitColumns logit_columns(const CudaRequest& request) {
  const auto& params = request.params<VocabularyParams>();
  const Shape& shape = request.input(0).shape;
  const std::int64_t part = params.split_degree > 1 ? request.context.at[std::size_t(Axis::mp)] : 0;
  const std::int64_t first = part * shape[1];
  return {shape[0], first, shape[1],
          std::clamp<std::int64_t>(params.vocabulary - first, 0, shape[1])};
}

template <int kCount, class T>
__global__ void logits_max(LogitColumns shard, const T* logits, float* max) {
  const T* row = logits + blockIdx.x * shard.columns;
  float most = kMinusInfinity;
  for (std::int64_t at = threadIdx.x * kCount; at < shard.real; at += blockDim.x * kCount) {
    float values[kCount];
    load(row + at, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = at + i < shard.real ? larger(most, values[i]) : most;
  }
  most = block_max(most);
  if (threadIdx.x == 0) max[blockIdx.x] = most;
}

template <int kCount, class T>
__global__ void logits_sum_exp(LogitColumns shard, const T* logits, const float* max,
                               const std::int32_t* targets, float* stats) {
  const T* row = logits + blockIdx.x * shard.columns;
  const float most = max[blockIdx.x];
  float sum = 0;
  for (std::int64_t at = threadIdx.x * kCount; at < shard.real; at += blockDim.x * kCount) {
    float values[kCount];
    load(row + at, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += at + i < shard.real ? __expf(values[i] - most) : 0;
  }
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const std::int64_t target = shard.local(targets[blockIdx.x]);
  stats[2 * blockIdx.x] = sum;
  stats[2 * blockIdx.x + 1] = target < 0 ? 0 : to_float(row[target]) - most;
}

/// The shares in the loss of a rank's rows.
struct LossShares {
  RowShares rows;
  ExampleTable examples;

  explicit LossShares(const CudaRequest& request)
      : rows(request.params<VocabularyParams>(),
             own_tokens(request.context, request.params<VocabularyParams>().sequence)),
        examples(request.device.examples) {}

  __device__ double of(std::int64_t row) const {
    if (!examples.reads()) return rows.of(row);
    const std::int64_t token = row / rows.depths, of = token / rows.part.tokens;
    const std::int64_t depth = row % rows.depths;
    const std::int64_t position = examples.position(rows.part, of, token % rows.part.tokens);
    return examples.loss_share(of, position, depth + 1) * (depth == 0 ? 1 : rows.depth_weight);
  }
};

/// One block for all rows: the sum is in a fixed order.
__global__ void token_loss(std::int64_t rows, double loss_weight, LossShares shares,
                           const float* max, const float* stats, const float* scalars,
                           float* log_sum_exp, float* updated) {
  double loss = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    const double log_sum = log(double(stats[2 * row]));
    log_sum_exp[row] = float(double(max[row]) + log_sum);
    loss += shares.of(row) * (log_sum - double(stats[2 * row + 1]));
  }
  loss = block_sum(loss);
  if (threadIdx.x >= kScalars) return;
  float scalar = scalars[threadIdx.x];
  if (threadIdx.x == unsigned(Scalar::loss)) scalar += float(loss_weight * loss);
  updated[threadIdx.x] = scalar;
}

/// dlogits = weight (exp(logits - log_sum_exp) - 1 at the target); 0 in padding.
template <int kCount, class T>
__global__ void cross_entropy_backward(LogitColumns shard, double of_token, LossShares shares,
                                       const T* logits, const std::int32_t* targets,
                                       const float* log_sum_exp, const float* loss_scale,
                                       T* dlogits) {
  const std::int64_t first = blockIdx.x * shard.columns;
  const float loss_weight = float(of_token * shares.of(blockIdx.x));
  const float weight = loss_scale == nullptr ? loss_weight : loss_weight * *loss_scale;
  const float shift = log_sum_exp[blockIdx.x];
  const std::int64_t target = shard.local(targets[blockIdx.x]);
  for (std::int64_t at = threadIdx.x * kCount; at < shard.columns; at += blockDim.x * kCount) {
    float values[kCount];
    load(logits + first + at, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float hit = at + i == target ? 1 : 0;
      values[i] = at + i < shard.real ? weight * (__expf(values[i] - shift) - hit) : 0;
    }
    store(dlogits + first + at, values);
  }
}

constexpr int kRowThreads = 512;

}  // namespace

CudaKernelPointer prepare_logits_max(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const LogitColumns shard = logit_columns(request);
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* logits = input_at<T>(in, 0);
    const bool wide = aligned({logits}, shard.columns * std::int64_t(sizeof(T)));
    launch(device.stream, unsigned(shard.rows), kRowThreads, 0,
           wide ? logits_max<kPack<T>, T> : logits_max<1, T>, shard, logits,
           output_at<float>(out, 0));
  });
}

CudaKernelPointer prepare_logits_sum_exp(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const LogitColumns shard = logit_columns(request);
  const DType type = request.input(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    if (shard.real == 0) {  // nothing but padding: contributes nothing
      check(cudaMemsetAsync(out[0], 0, std::size_t(2 * shard.rows) * sizeof(float), device.stream),
            "logits_sum_exp");
      return;
    }
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      const T* logits = input_at<T>(in, 0);
      const bool wide = aligned({logits}, shard.columns * std::int64_t(sizeof(T)));
      launch(device.stream, unsigned(shard.rows), kRowThreads, 0,
             wide ? logits_sum_exp<kPack<T>, T> : logits_sum_exp<1, T>, shard, logits,
             input_at<float>(in, 1), input_at<std::int32_t>(in, 2), output_at<float>(out, 0));
    });
  });
}

CudaKernelPointer prepare_token_loss(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t rows = request.input_elements(0);
  const auto params = request.params<VocabularyParams>();
  const LossShares shares(request);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, 1, 1024, 0, token_loss, rows, params.loss_weight, shares,
           input_at<float>(in, 0), input_at<float>(in, 1), input_at<float>(in, 2),
           output_at<float>(out, 0), output_at<float>(out, 1));
  });
}

CudaKernelPointer prepare_cross_entropy_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const LogitColumns shard = logit_columns(request);
  const auto params = request.params<VocabularyParams>();
  const LossShares shares(request);
  const bool scales = request.op.inputs.size() > 3;
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* logits = input_at<T>(in, 0);
    T* dlogits = output_at<T>(out, 0);
    const bool wide = aligned({logits, dlogits}, shard.columns * std::int64_t(sizeof(T)));
    launch(device.stream, unsigned(shard.rows), kRowThreads, 0,
           wide ? cross_entropy_backward<kPack<T>, T> : cross_entropy_backward<1, T>, shard,
           params.loss_weight, shares, logits, input_at<std::int32_t>(in, 1),
           input_at<float>(in, 2), scales ? input_at<float>(in, 3) : nullptr, dlogits);
  });
}

}  // namespace plimsoll
