// The scalars of a step: count, loss scale, clip factor. One thread each.
#include <limits>

#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"

namespace plimsoll {

namespace {

/// Megatron-LM's --min-loss-scale.
constexpr float kLeastLossScale = 1;
constexpr float kLargest = std::numeric_limits<float>::max();

__device__ __forceinline__ float& at(float* scalars, Scalar which) { return scalars[int(which)]; }

/// Scalars are one state tensor; its output is its input unless a caller keeps two copies.
__device__ __forceinline__ void copy_scalars(const float* from, float* to) {
  for (int i = 0; i < int(kScalars); ++i) to[i] = from[i];
}

/// A skipped step does not count.
__device__ __forceinline__ void note_overflow(float* scalars, bool found) {
  at(scalars, Scalar::found) = found ? 1.0f : 0.0f;
  at(scalars, Scalar::good_steps) = found ? 0.0f : at(scalars, Scalar::good_steps) + 1;
  if (!found) return;
  at(scalars, Scalar::step) -= 1;
  at(scalars, Scalar::skipped) += 1;
}

/// The rule of dynamic loss scaling: DynamicGradScaler of Megatron-LM
/// (megatron/core/optimizer/grad_scaler.py) with a hysteresis of 1.
__global__ void begin_step(StepParams rule, const float* from, float* scalars) {
  copy_scalars(from, scalars);
  at(scalars, Scalar::step) += 1;
  at(scalars, Scalar::loss) = 0;
  float& scale = at(scalars, Scalar::loss_scale);
  if (scale == 0) {  // before the first step; the rule never makes it less than 1
    scale = float(rule.loss_scale);
  } else if (at(scalars, Scalar::found) != 0) {
    scale = fmaxf(kLeastLossScale, float(double(scale) * rule.backoff));
  } else if (rule.growth_interval > 0 &&
             at(scalars, Scalar::good_steps) >= float(rule.growth_interval)) {
    at(scalars, Scalar::good_steps) = 0;
    scale = fminf(kLargest, float(double(scale) * rule.growth));
  }
  at(scalars, Scalar::found) = 0;
}

__global__ void clip_factor(double limit, bool loss_scaling, const float* sums, const float* from,
                            float* scalars) {
  copy_scalars(from, scalars);
  const double sum = sums[0], scale = at(scalars, Scalar::loss_scale);
  const double norm = sqrt(sum) / scale;
  at(scalars, Scalar::gradient_norm) = float(norm);
  // A norm that is not a number stays visible: it makes the factor one too.
  const bool clips = limit > 0 && !(norm <= limit);
  at(scalars, Scalar::clip) = float((clips ? limit / norm : 1.0) / scale);
  if (loss_scaling) note_overflow(scalars, !(fabs(sum) <= double(kLargest)));
}

__global__ void update_loss_scale(const std::int32_t* found, const float* from, float* scalars) {
  copy_scalars(from, scalars);
  note_overflow(scalars, *found != 0);
}

}  // namespace

CudaKernelPointer prepare_begin_step(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const StepParams params = request.params<StepParams>();
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, 1, 1, 0, begin_step, params, input_at<float>(in, 0),
           output_at<float>(out, 0));
  });
}

CudaKernelPointer prepare_clip_factor(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const ClipParams params = request.params<ClipParams>();
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, 1, 1, 0, clip_factor, params.limit, params.loss_scaling,
           input_at<float>(in, 0), input_at<float>(in, 1), output_at<float>(out, 0));
  });
}

CudaKernelPointer prepare_update_loss_scale(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  return make_cuda_kernel([&device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, 1, 1, 0, update_loss_scale, input_at<std::int32_t>(in, 0),
           input_at<float>(in, 1), output_at<float>(out, 0));
  });
}

}  // namespace plimsoll
