// Gated linear units (Shazeer 2020, arXiv 2002.05202): y = f(gate) up. SwiGLU has f = silu(g) =
// g s(g) with s(g) = 1 / (1 + exp(-g)). GeGLU has the tanh approximation of GELU (Hendrycks and
// Gimpel 2016, arXiv 1606.08415, section 2), which is g s(2 u) with u = sqrt(2 / pi) (g + 0.044715
// g^3).
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

constexpr float kGeluInner = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

/// f(g), and with s = f(g) / g the slope d f / d g.
struct Silu {
  static float share(float g) { return sigmoid(g); }
  static float slope(float g, float s) { return s * (1.0f + g * (1.0f - s)); }
};
struct Gelu {
  static float share(float g) { return sigmoid(2 * kGeluInner * (g + kGeluCubic * g * g * g)); }
  static float slope(float g, float s) {
    const float inner = 2 * kGeluInner * (1 + 3 * kGeluCubic * g * g);
    return s * (1.0f + g * (1.0f - s) * inner);
  }
};

// A function of its own for each, since the compiler makes wide versions of plain functions only.
PLIMSOLL_VECTORIZE void swiglu_row(const float* gate, const float* up, float* y,
                                   std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

PLIMSOLL_VECTORIZE void geglu_row(const float* gate, const float* up, float* y,
                                  std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = gate[i] * Gelu::share(gate[i]) * up[i];
}

PLIMSOLL_VECTORIZE void swiglu_backward_row(const float* dy, const float* gate, const float* up,
                                            float* dgate, float* dup, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = Silu::share(gate[i]);
    dgate[i] = dy[i] * up[i] * Silu::slope(gate[i], s);
    dup[i] = dy[i] * gate[i] * s;
  }
}

PLIMSOLL_VECTORIZE void geglu_backward_row(const float* dy, const float* gate, const float* up,
                                           float* dgate, float* dup, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = Gelu::share(gate[i]);
    dgate[i] = dy[i] * up[i] * Gelu::slope(gate[i], s);
    dup[i] = dy[i] * gate[i] * s;
  }
}

using ForwardRow = void (*)(const float* gate, const float* up, float* y, std::int64_t count);
using BackwardRow = void (*)(const float* dy, const float* gate, const float* up, float* dgate,
                             float* dup, std::int64_t count);

PLIMSOLL_VECTORIZE void scale_row(float* row, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) row[i] *= factor;
}

KernelPointer prepare_forward(const KernelRequest& request, ForwardRow run_row) {
  const std::int64_t rows = request.output(0).shape[0], columns = request.output(0).shape[1];
  const bool weighted = request.op.inputs.size() > 1;
  Scratch scratch(request);
  const Rows x(request.input(0), {rows, 2 * columns, 1}, scratch),
      y(request.output(0), {rows, columns, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* gates = x.read(in[0], row, 1);
      float* values = y.target(out[0], row);
      run_row(gates, gates + columns, values, columns);
      if (weighted) scale_row(values, floats(in, 1)[row], columns);
      y.store(out[0], row, 1);
    }
  });
}

/// With y = w f(x): dw = dy f(x) and dx = w (dy f'(x)). Every product f has an up factor that it is
/// linear in, so dy f(x) is the gradient of up times up.
KernelPointer prepare_backward(const KernelRequest& request, BackwardRow run_row) {
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  const bool weighted = request.op.inputs.size() > 2;
  Scratch scratch(request);
  const Rows dy(request.input(0), {rows, columns, 1}, scratch),
      x(request.input(1), {rows, 2 * columns, 1}, scratch),
      dx(request.output(0), {rows, 2 * columns, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float *gates = x.read(in[1], row, 1), *up = gates + columns;
      float* slopes = dx.target(out[0], row);
      run_row(dy.read(in[0], row, 1), gates, up, slopes, slopes + columns, columns);
      if (weighted) {
        floats_out(out, 1)[row] = dot(slopes + columns, up, columns);
        scale_row(slopes, floats(in, 2)[row], 2 * columns);
      }
      dx.store(out[0], row, 1);
    }
  });
}

}  // namespace

KernelPointer prepare_swiglu(const KernelRequest& request) {
  return prepare_forward(request, swiglu_row);
}
KernelPointer prepare_geglu(const KernelRequest& request) {
  return prepare_forward(request, geglu_row);
}

KernelPointer prepare_swiglu_backward(const KernelRequest& request) {
  return prepare_backward(request, swiglu_backward_row);
}
KernelPointer prepare_geglu_backward(const KernelRequest& request) {
  return prepare_backward(request, geglu_backward_row);
}

}  // namespace plimsoll
