// Once-per-step ops: step scalars, gradient norm and clipping, AdamW (Loshchilov and Hutter 2019,
// "Decoupled weight decay regularization", algorithm 2). Compiled with -fno-math-errno.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kLanes = 16;

/// Sum of squares, accumulated in float64.
PLIMSOLL_VECTORIZE double sum_of_squares(const float* values, std::int64_t count) {
  std::array<double, kLanes> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  double result = 0;
  for (double lane : lanes) result += lane;
  for (; i < count; ++i) result += double(values[i]) * double(values[i]);
  return result;
}

/// What one step's update multiplies by; the bias corrections are folded in.
struct AdamFactors {
  float clip;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;        ///< learning rate / (1 - beta1^step)
  float root_correction;  ///< 1 / sqrt(1 - beta2^step)
  float epsilon;
  float keep;  ///< 1 - learning rate * weight decay, or 1
};

AdamFactors adam_factors(const AdamParams& params, const float* scalars) {
  const double step = scalars[std::size_t(Scalar::step)];
  AdamFactors f;
  f.clip = scalars[std::size_t(Scalar::clip)];
  f.beta1 = float(params.beta1);
  f.one_minus_beta1 = float(1 - params.beta1);
  f.beta2 = float(params.beta2);
  f.one_minus_beta2 = float(1 - params.beta2);
  f.step_size = float(params.learning_rate / (1 - std::pow(params.beta1, step)));
  f.root_correction = float(1 / std::sqrt(1 - std::pow(params.beta2, step)));
  f.epsilon = float(params.epsilon);
  f.keep = 1;
  return f;
}

PLIMSOLL_VECTORIZE void update(float* __restrict parameters, const float* __restrict gradients,
                               float* __restrict first, float* __restrict second,
                               std::int64_t count, const AdamFactors f) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradients[i] * f.clip;
    const float m = f.beta1 * first[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * second[i] + f.one_minus_beta2 * (g * g);
    const float denominator = __builtin_sqrtf(v) * f.root_correction + f.epsilon;
    first[i] = m;
    second[i] = v;
    parameters[i] = f.keep * parameters[i] - f.step_size * (m / denominator);
  }
}

/// Scalars are one state tensor; its output is its input unless a caller keeps two copies.
float* scalars_of(Addresses in, std::size_t input, Addresses out) {
  float* scalars = floats_out(out, 0);
  if (in[input] != out[0]) std::copy_n(floats(in, input), kScalars, scalars);
  return scalars;
}

/// In place, like scalars_of: with separate outputs the whole arena is copied first.
float* state_of(Addresses in, std::size_t input, Addresses out, std::size_t output,
                std::int64_t count) {
  float* state = floats_out(out, output);
  if (in[input] != out[output]) std::copy_n(floats(in, input), count, state);
  return state;
}

std::vector<OwnedRange> ranges_of(const KernelRequest& request) {
  INVARIANT(request.context.program != nullptr, "arena ops need a program");
  return owned_ranges(*request.context.program, request.context.at);
}

}  // namespace

KernelPointer prepare_begin_step(const KernelRequest&) {
  return make_kernel([](Addresses in, Addresses out, const RunPosition&) {
    float* scalars = scalars_of(in, 0, out);
    scalars[std::size_t(Scalar::step)] += 1;
    scalars[std::size_t(Scalar::loss)] = 0;
  });
}

KernelPointer prepare_squared_norm(const KernelRequest& request) {
  return make_kernel([ranges = ranges_of(request)](Addresses in, Addresses out,
                                                   const RunPosition&) {
    double sum = 0;
    for (const OwnedRange& range : ranges) {
      if (range.norm_weight == 0) continue;
      sum += range.norm_weight * sum_of_squares(floats(in, 0) + range.arena_offset, range.elements);
    }
    floats_out(out, 0)[0] = float(sum);
  });
}

KernelPointer prepare_clip_factor(const KernelRequest& request) {
  const double limit = request.params<ClipParams>().limit;
  return make_kernel([limit](Addresses in, Addresses out, const RunPosition&) {
    const double norm = std::sqrt(double(floats(in, 0)[0]));
    float* scalars = scalars_of(in, 1, out);
    scalars[std::size_t(Scalar::gradient_norm)] = float(norm);
    // A norm that is not a number stays visible: it makes the factor one too.
    const bool clips = limit > 0 && !(norm <= limit);
    scalars[std::size_t(Scalar::clip)] = clips ? float(limit / norm) : 1.0f;
  });
}

KernelPointer prepare_adamw(const KernelRequest& request) {
  const AdamParams params = request.params<AdamParams>();
  const std::int64_t arena = request.output_elements(0), owned = request.output_elements(1);
  const bool masters = request.input(0).role == TensorRole::master_parameter;
  return make_kernel(
      [=, ranges = ranges_of(request)](Addresses in, Addresses out, const RunPosition&) {
        AdamFactors factors = adam_factors(params, floats(in, 4));
        const auto kept_with_decay = float(1 - params.learning_rate * params.weight_decay);
        float* parameters = state_of(in, 0, out, 0, arena);
        const float* gradients = floats(in, 1);
        float* first = state_of(in, 2, out, 1, owned);
        float* second = state_of(in, 3, out, 2, owned);
        for (const OwnedRange& range : ranges) {
          factors.keep = range.decay ? kept_with_decay : 1.0f;
          const std::int64_t at = masters ? range.state_offset : range.arena_offset;
          update(parameters + at, gradients + range.arena_offset, first + range.state_offset,
                 second + range.state_offset, range.elements, factors);
        }
      });
}

}  // namespace plimsoll
