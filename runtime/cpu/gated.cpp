// Gated linear units (Shazeer 2020, arXiv 2002.05202): y = f(gate) up. SwiGLU has f = silu(g) =
// g s(g) with s(g) = 1 / (1 + exp(-g)), and may clamp its operands (ActivationParams). GeGLU has
// GELU, or its tanh approximation (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2), which
// is g s(2 u) with u = sqrt(2 / pi) (g + 0.044715 g^3).
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

constexpr float kGeluInner = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

/// f(g), and with s = f(g) / g the slope d f / d g.
struct Gelu {
  static float share(float g) { return sigmoid(2 * kGeluInner * (g + kGeluCubic * g * g * g)); }
  static float slope(float g, float s) {
    const float inner = 2 * kGeluInner * (1 + 3 * kGeluCubic * g * g);
    return s * (1.0f + g * (1.0f - s) * inner);
  }
};
struct ExactGelu {
  static float share(float g) {
    return 0.5f * (1.0f + std::erf(g * float(std::numbers::sqrt2) / 2));
  }
  static float slope(float g, float s) {
    return s + g * 0.5f * kGeluInner * fast_exp(-0.5f * g * g);  // the density: 1 / sqrt(2 pi)
  }
};

/// A Clamp is applied to the operands of SwiGLU.
struct Clamp {
  float limit, sharpness, offset;

  explicit Clamp(const ActivationParams& params)
      : limit(params.limit > 0 ? float(params.limit) : std::numeric_limits<float>::infinity()),
        sharpness(float(params.sharpness)),
        offset(float(params.offset)) {}
};

// A function of its own for each, since the compiler makes wide versions of plain functions only.
PLIMSOLL_VECTORIZE void swiglu_row(const float* gate, const float* up, const Clamp& clamp, float* y,
                                   std::int64_t count) {
  const float limit = clamp.limit, sharpness = clamp.sharpness, offset = clamp.offset;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    float u = up[i] > limit ? limit : up[i];
    u = u < -limit ? -limit : u;
    y[i] = g / (1.0f + fast_exp(-sharpness * g)) * (u + offset);
  }
}

template <class Function>
inline void geglu_values(const float* gate, const float* up, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = gate[i] * Function::share(gate[i]) * up[i];
}
PLIMSOLL_VECTORIZE void geglu_row(const float* gate, const float* up, const Clamp&, float* y,
                                  std::int64_t count) {
  geglu_values<Gelu>(gate, up, y, count);
}
void exact_geglu_row(const float* gate, const float* up, const Clamp&, float* y,
                     std::int64_t count) {
  geglu_values<ExactGelu>(gate, up, y, count);
}

PLIMSOLL_VECTORIZE void swiglu_backward_row(const float* dy, const float* gate, const float* up,
                                            const Clamp& clamp, float* dgate, float* dup,
                                            std::int64_t count) {
  const float limit = clamp.limit, sharpness = clamp.sharpness, offset = clamp.offset;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    float u = up[i] > limit ? limit : up[i];
    u = u < -limit ? -limit : u;
    const float s = sigmoid(sharpness * g);
    const float slope = s * (1.0f + sharpness * g * (1.0f - s));
    dgate[i] = gate[i] > limit ? 0.0f : dy[i] * (u + offset) * slope;
    dup[i] = u == up[i] ? dy[i] * g * s : 0.0f;
  }
}

template <class Function>
inline void geglu_slopes(const float* dy, const float* gate, const float* up, float* dgate,
                         float* dup, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = Function::share(gate[i]);
    dgate[i] = dy[i] * up[i] * Function::slope(gate[i], s);
    dup[i] = dy[i] * gate[i] * s;
  }
}
PLIMSOLL_VECTORIZE void geglu_backward_row(const float* dy, const float* gate, const float* up,
                                           const Clamp&, float* dgate, float* dup,
                                           std::int64_t count) {
  geglu_slopes<Gelu>(dy, gate, up, dgate, dup, count);
}
void exact_geglu_backward_row(const float* dy, const float* gate, const float* up, const Clamp&,
                              float* dgate, float* dup, std::int64_t count) {
  geglu_slopes<ExactGelu>(dy, gate, up, dgate, dup, count);
}

using ForwardRow = void (*)(const float* gate, const float* up, const Clamp& clamp, float* y,
                            std::int64_t count);
using BackwardRow = void (*)(const float* dy, const float* gate, const float* up,
                             const Clamp& clamp, float* dgate, float* dup, std::int64_t count);

PLIMSOLL_VECTORIZE void scale_row(float* row, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) row[i] *= factor;
}

KernelPointer prepare_forward(const KernelRequest& request, ForwardRow run_row) {
  const std::int64_t rows = request.output(0).shape[0], columns = request.output(0).shape[1];
  const bool weighted = request.op.inputs.size() > 1;
  const Clamp clamp(request.params<ActivationParams>());
  return map_rows<1>(request, {rows, columns, 1}, [=](const RowsRun<1>& run) {
    run_row(run.x[0], run.x[0] + columns, clamp, run.y, columns);
    if (weighted) scale_row(run.y, floats(run.in, 1)[run.first], columns);
  });
}

/// With y = w f(x): dw = dy f(x) and dx = w (dy f'(x)).
KernelPointer prepare_backward(const KernelRequest& request, BackwardRow run_row,
                               ForwardRow run_forward) {
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  const bool weighted = request.op.inputs.size() > 2;
  const Clamp clamp(request.params<ActivationParams>());
  Scratch scratch(request);
  float* values = weighted ? scratch.take_floats(columns) : nullptr;
  return map_rows<2>(request, {rows, columns, 1}, scratch, [=](const RowsRun<2>& run) {
    const float *gates = run.x[1], *up = gates + columns;
    run_row(run.x[0], gates, up, clamp, run.y, run.y + columns, columns);
    if (!weighted) return;
    run_forward(gates, up, clamp, values, columns);
    floats_out(run.out, 1)[run.first] = dot(run.x[0], values, columns);
    scale_row(run.y, floats(run.in, 2)[run.first], 2 * columns);
  });
}

/// y = x s(gate).
PLIMSOLL_VECTORIZE void gate_row(const float* x, const float* gate, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * sigmoid(gate[i]);
}

PLIMSOLL_VECTORIZE void gate_backward_row(const float* dy, const float* x, const float* gate,
                                          float* dx, float* dgate, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = sigmoid(gate[i]);
    dx[i] = dy[i] * s;
    dgate[i] = dy[i] * x[i] * s * (1.0f - s);
  }
}

bool is_exact(const KernelRequest& request) { return request.params<ActivationParams>().exact; }

}  // namespace

KernelPointer prepare_swiglu(const KernelRequest& request) {
  return prepare_forward(request, swiglu_row);
}
KernelPointer prepare_geglu(const KernelRequest& request) {
  return prepare_forward(request, is_exact(request) ? exact_geglu_row : geglu_row);
}

KernelPointer prepare_swiglu_backward(const KernelRequest& request) {
  return prepare_backward(request, swiglu_backward_row, swiglu_row);
}
KernelPointer prepare_geglu_backward(const KernelRequest& request) {
  return is_exact(request) ? prepare_backward(request, exact_geglu_backward_row, exact_geglu_row)
                           : prepare_backward(request, geglu_backward_row, geglu_row);
}

KernelPointer prepare_gate_values(const KernelRequest& request) {
  const RowBlocks blocks =
      RowBlocks::for_type(request.output(0).dtype, request.output_elements(0), 1);
  return map_rows<2>(request, blocks,
                     [](const RowsRun<2>& run) { gate_row(run.x[0], run.x[1], run.y, run.count); });
}

KernelPointer prepare_gate_values_backward(const KernelRequest& request) {
  const RowBlocks blocks =
      RowBlocks::for_type(request.output(0).dtype, request.output_elements(0), 1);
  Scratch scratch(request);
  const Rows dgate(request.output(1), {blocks.rows, 1, blocks.block}, scratch);
  return map_rows<3>(request, blocks, scratch, [dgate](const RowsRun<3>& run) {
    gate_backward_row(run.x[0], run.x[1], run.x[2], run.y, dgate.target(run.out[1], run.first),
                      run.count);
    dgate.store(run.out[1], run.first, run.count);
  });
}

}  // namespace plimsoll
