// These ops run once per step before the update: step scalars, loss scaling, gradient norm and
// clipping. They exist as the few ops of the default form, and one by one.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/arena.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/half.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kLanes = 16;
/// Megatron-LM's --min-loss-scale.
constexpr float kLeastLossScale = 1;

/// Sum of f(value), accumulated in float64.
template <class Function>
__attribute__((always_inline)) inline double sum_in_lanes(const float* values, std::int64_t count,
                                                          Function f) {
  std::array<double, kLanes> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(double(values[i + lane]));
  }
  double result = 0;
  for (double lane : lanes) result += lane;
  for (; i < count; ++i) result += f(double(values[i]));
  return result;
}

PLIMSOLL_VECTORIZE double sum_of_squares(const float* values, std::int64_t count) {
  return sum_in_lanes(values, count, [](double value) { return value * value; });
}
/// Sum of squares of elements of an operand, which may have 16 bits.
double squares_of(DType type, const std::byte* operand, std::int64_t first, std::int64_t count) {
  const std::byte* from = operand + first * element_bytes(type);
  if (type == DType::f32) return sum_of_squares(reinterpret_cast<const float*>(from), count);
  std::array<float, 512> values;
  double sum = 0;
  for (std::int64_t done = 0; done < count; done += std::ssize(values)) {
    const std::int64_t some = std::min(count - done, std::ssize(values));
    to_f32(type, from + done * element_bytes(type), values.data(), some);
    sum += sum_of_squares(values.data(), some);
  }
  return sum;
}
PLIMSOLL_VECTORIZE double sum_of(const float* values, std::int64_t count) {
  return sum_in_lanes(values, count, [](double value) { return value; });
}
PLIMSOLL_VECTORIZE void multiply(const float* x, float factor, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

/// Scalars are one state tensor; its output is its input unless a caller keeps two copies.
float* scalars_of(Addresses in, std::size_t input, Addresses out) {
  float* scalars = floats_out(out, 0);
  if (in[input] != out[0]) std::copy_n(floats(in, input), kScalars, scalars);
  return scalars;
}

float& at(float* scalars, Scalar which) { return scalars[std::size_t(which)]; }

/// A skipped step does not count.
void note_overflow(float* scalars, bool found) {
  at(scalars, Scalar::found) = found ? 1.0f : 0.0f;
  at(scalars, Scalar::good_steps) = found ? 0.0f : at(scalars, Scalar::good_steps) + 1;
  if (!found) return;
  at(scalars, Scalar::step) -= 1;
  at(scalars, Scalar::skipped) += 1;
}

/// The rule of dynamic loss scaling: DynamicGradScaler of Megatron-LM
/// (megatron/core/optimizer/grad_scaler.py) with a hysteresis of 1.
void adjust_loss_scale(float* scalars, const StepParams& rule) {
  float& scale = at(scalars, Scalar::loss_scale);
  if (scale == 0) {  // before the first step; the rule never makes it less than 1
    scale = float(rule.loss_scale);
  } else if (at(scalars, Scalar::found) != 0) {
    scale = std::max(kLeastLossScale, float(double(scale) * rule.backoff));
  } else if (rule.growth_interval > 0 &&
             at(scalars, Scalar::good_steps) >= float(rule.growth_interval)) {
    at(scalars, Scalar::good_steps) = 0;
    scale = std::min(std::numeric_limits<float>::max(), float(double(scale) * rule.growth));
  }
  at(scalars, Scalar::found) = 0;
}

}  // namespace

KernelPointer prepare_begin_step(const KernelRequest& request) {
  const StepParams params = request.params<StepParams>();
  return make_kernel([params](Addresses in, Addresses out, const RunPosition&) {
    float* scalars = scalars_of(in, 0, out);
    at(scalars, Scalar::step) += 1;
    at(scalars, Scalar::loss) = 0;
    adjust_loss_scale(scalars, params);
  });
}

KernelPointer prepare_squared_norm(const KernelRequest& request) {
  const FlatParams params = request.params<FlatParams>();
  const bool part = keeps_part(request.input(0), request.context);
  return make_kernel([params, part, type = request.input(0).dtype,
                      ranges = ranges_of(request.input(0), request.context, params.group)](
                         Addresses in, Addresses out, const RunPosition&) {
    double sum = 0;
    for (const OwnedRange& range : ranges) {
      if (range.norm_weight == 0) continue;
      const double squares = squares_of(type, in[0], offset_in(range, part), range.elements);
      // A gradient that is not clipped does not count, but shows when it is not finite.
      if (range.clip || !std::isfinite(squares)) sum += params.weight * range.norm_weight * squares;
    }
    floats_out(out, 0)[0] = float(sum);
  });
}

KernelPointer prepare_clip_factor(const KernelRequest& request) {
  const ClipParams params = request.params<ClipParams>();
  return make_kernel([params](Addresses in, Addresses out, const RunPosition&) {
    const double sum = floats(in, 0)[0];
    float* scalars = scalars_of(in, 1, out);
    const double scale = at(scalars, Scalar::loss_scale);
    const double norm = std::sqrt(sum) / scale;
    at(scalars, Scalar::gradient_norm) = float(norm);
    // A norm that is not a number stays visible: it makes the factor one too.
    const bool clips = params.limit > 0 && !(norm <= params.limit);
    at(scalars, Scalar::clip) = float((clips ? params.limit / norm : 1.0) / scale);
    if (params.loss_scaling) note_overflow(scalars, !std::isfinite(sum));
  });
}

// ---- one by one ----

KernelPointer prepare_check_finite(const KernelRequest& request) {
  return make_kernel([part = keeps_part(request.input(0), request.context),
                      ranges = ranges_of(request.input(0), request.context, {})](
                         Addresses in, Addresses out, const RunPosition&) {
    const float unscale = 1 / floats(in, 1)[std::size_t(Scalar::loss_scale)];
    bool finite = true;
    for (const OwnedRange& range : ranges) {
      const std::int64_t at = offset_in(range, part);
      const float* x = floats(in, 0) + at;
      finite = finite && std::isfinite(sum_of_squares(x, range.elements));
      multiply(x, unscale, floats_out(out, 0) + at, range.elements);
    }
    *reinterpret_cast<std::int32_t*>(out[1]) = finite ? 0 : 1;
  });
}

KernelPointer prepare_flag_cast(const KernelRequest& request) {
  const bool from_flag = request.input(0).dtype == DType::i32;
  return make_kernel([from_flag](Addresses in, Addresses out, const RunPosition&) {
    if (from_flag) {
      floats_out(out, 0)[0] = float(ids(in, 0)[0]);
    } else {
      *reinterpret_cast<std::int32_t*>(out[0]) = std::int32_t(floats(in, 0)[0]);
    }
  });
}

KernelPointer prepare_update_loss_scale(const KernelRequest&) {
  return make_kernel([](Addresses in, Addresses out, const RunPosition&) {
    note_overflow(scalars_of(in, 1, out), ids(in, 0)[0] != 0);
  });
}

KernelPointer prepare_square(const KernelRequest& request) {
  const FlatParams params = request.params<FlatParams>();
  return make_kernel([part = keeps_part(request.input(0), request.context),
                      ranges = ranges_of(request.input(0), request.context, params.group)](
                         Addresses in, Addresses out, const RunPosition&) {
    for (const OwnedRange& range : ranges) {
      const float* x = floats(in, 0) + offset_in(range, part);
      float* y = floats_out(out, 0) + offset_in(range, part);
      for (std::int64_t i = 0; i < range.elements; ++i) y[i] = x[i] * x[i];
    }
  });
}

KernelPointer prepare_reduce_sum(const KernelRequest& request) {
  const FlatParams params = request.params<FlatParams>();
  std::vector<std::int64_t> more;  // elements of the inputs after the first, all of which count
  for (std::size_t i = 1; i < request.op.inputs.size(); ++i)
    more.push_back(request.input_elements(i));
  std::vector<OwnedRange> ranges(1);
  ranges[0].elements = request.input_elements(0);
  if (params.group)
    ranges = ranges_of(request.input(0), request.context, params.group);  // else a plain list
  const bool part = params.group && keeps_part(request.input(0), request.context);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    double sum = 0;
    for (const OwnedRange& range : ranges) {
      if (range.norm_weight == 0) continue;
      sum += range.norm_weight * sum_of(floats(in, 0) + offset_in(range, part), range.elements);
    }
    for (std::size_t i = 0; i < more.size(); ++i) sum += sum_of(floats(in, i + 1), more[i]);
    floats_out(out, 0)[0] = float(params.weight * sum);
  });
}

KernelPointer prepare_coalesce(const KernelRequest& request) {
  const FlatParams params = request.params<FlatParams>();
  const std::int64_t element = element_bytes(request.input(0).dtype);
  return make_kernel([element, part = keeps_part(request.input(0), request.context),
                      ranges = ranges_of(request.input(0), request.context, params.group)](
                         Addresses in, Addresses out, const RunPosition&) {
    std::array<std::byte, 4096> block;
    for (const OwnedRange& range : ranges) {
      const std::int64_t begin = offset_in(range, part) * element;
      const std::int64_t bytes = range.elements * element;
      for (std::int64_t done = 0; done < bytes; done += std::ssize(block)) {
        const std::int64_t count = std::min(bytes - done, std::ssize(block));
        std::copy_n(in[0] + begin + done, count, block.data());
        std::copy_n(block.data(), count, out[0] + begin + done);
      }
    }
  });
}

KernelPointer prepare_square_root(const KernelRequest& request) {
  const std::int64_t count = request.output_elements(0);
  return make_kernel([count](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < count; ++i) floats_out(out, 0)[i] = std::sqrt(floats(in, 0)[i]);
  });
}

KernelPointer prepare_maximum(const KernelRequest& request) {
  const std::int64_t count = request.output_elements(0);
  return make_kernel([count](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float a = floats(in, 0)[i], b = floats(in, 1)[i];
      floats_out(out, 0)[i] = a >= b || std::isnan(a) ? a : b;  // not a number stays one
    }
  });
}

KernelPointer prepare_divide(const KernelRequest& request) {
  const std::int64_t count = request.output_elements(0);
  return make_kernel([count](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < count; ++i) {
      floats_out(out, 0)[i] = floats(in, 0)[i] / floats(in, 1)[i];
    }
  });
}

KernelPointer prepare_scale(const KernelRequest& request) {
  const FlatParams params = request.params<FlatParams>();
  return make_kernel([part = keeps_part(request.input(0), request.context),
                      ranges = ranges_of(request.input(0), request.context, params.group)](
                         Addresses in, Addresses out, const RunPosition&) {
    const float factor = floats(in, 1)[0];
    for (const OwnedRange& range : ranges) {
      const std::int64_t at = offset_in(range, part);
      multiply(floats(in, 0) + at, factor, floats_out(out, 0) + at, range.elements);
    }
  });
}

}  // namespace plimsoll
