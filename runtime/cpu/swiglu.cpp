// SwiGLU (Shazeer 2020, arXiv 2002.05202): y = silu(gate) up with silu(g) = g / (1 + exp(-g)).
#include <bit>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// exp in two ulp: 2^n times a polynomial of the rest (constants of Cephes expf, Moshier 1992).
/// std::exp does not vectorise.
inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float n = (x * 1.44269504f + kRound) - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>((std::int32_t(n) + 127) << 23);
}

PLIMSOLL_VECTORIZE void swiglu_row(const float* gate, const float* up, float* y,
                                   std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

/// d silu(g) / dg = s (1 + g (1 - s)) with s = 1 / (1 + exp(-g)).
PLIMSOLL_VECTORIZE void swiglu_backward_row(const float* dy, const float* gate, const float* up,
                                            float* dgate, float* dup, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = 1.0f / (1.0f + fast_exp(-gate[i]));
    dgate[i] = dy[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
    dup[i] = dy[i] * gate[i] * s;
  }
}

}  // namespace

KernelPointer prepare_swiglu(const KernelRequest& request) {
  const std::int64_t rows = request.output(0).shape[0], columns = request.output(0).shape[1];
  Scratch scratch(request);
  const Rows x(request.input(0), {rows, 2 * columns, 1}, scratch),
      y(request.output(0), {rows, columns, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* gates = x.read(in[0], row, 1);
      swiglu_row(gates, gates + columns, y.target(out[0], row), columns);
      y.store(out[0], row, 1);
    }
  });
}

KernelPointer prepare_swiglu_backward(const KernelRequest& request) {
  const std::int64_t rows = request.input(0).shape[0], columns = request.input(0).shape[1];
  Scratch scratch(request);
  const Rows dy(request.input(0), {rows, columns, 1}, scratch),
      x(request.input(1), {rows, 2 * columns, 1}, scratch),
      dx(request.output(0), {rows, 2 * columns, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* gates = x.read(in[1], row, 1);
      float* slopes = dx.target(out[0], row);
      swiglu_backward_row(dy.read(in[0], row, 1), gates, gates + columns, slopes, slopes + columns,
                          columns);
      dx.store(out[0], row, 1);
    }
  });
}

}  // namespace plimsoll
