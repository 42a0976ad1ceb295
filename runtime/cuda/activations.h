// This header has the activations that kernels of several files apply, and their slopes.
#pragma once

#include <cuda_runtime.h>

namespace plimsoll {

/// 1 / (1 + exp(-x)); 0 and 1 far out.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// x sigmoid(sharpness x). share() is f(x) / x, and slope() is d f / d x, given that share.
struct Silu {
  float sharpness = 1;
  __device__ float share(float x) const { return sigmoid(sharpness * x); }
  __device__ float slope(float x, float share) const {
    return share * (1 + sharpness * x * (1 - share));
  }
};

/// The tanh approximation (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2), as
/// x sigmoid(2 u): 0.5 (1 + tanh(u)) = sigmoid(2 u).
struct GeluShare {
  static constexpr float kInner = 0.7978845608f;  // sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;
  __device__ float share(float x) const { return sigmoid(2 * kInner * (x + kCubic * x * x * x)); }
  __device__ float slope(float x, float share) const {
    const float du = kInner * (1 + 3 * kCubic * x * x);
    return share + 2 * x * share * (1 - share) * du;
  }
};

/// GELU itself: x times the normal distribution.
struct ExactGeluShare {
  __device__ float share(float x) const { return 0.5f * (1 + erff(0.7071067812f * x)); }
  __device__ float slope(float x, float share) const {
    return share + x * 0.3989422804f * __expf(-0.5f * x * x);  // 1 / sqrt(2 pi)
  }
};

}  // namespace plimsoll
