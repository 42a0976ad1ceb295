// RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467): y = gamma x rstd, rstd = 1 / sqrt(mean of
// x^2 + epsilon), row by row.
#include <array>
#include <cmath>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kLanes = 16;

/// Sum of a b c, in lanes.
PLIMSOLL_VECTORIZE float dot3(const float* a, const float* b, const float* c, std::int64_t count) {
  std::array<float, kLanes> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += a[i + lane] * b[i + lane] * c[i + lane];
    }
  }
  float result = 0;
  for (float lane : lanes) result += lane;
  for (; i < count; ++i) result += a[i] * b[i] * c[i];
  return result;
}

PLIMSOLL_VECTORIZE void normalize(const float* x, const float* gamma, float rstd, float* y,
                                  std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * rstd * gamma[i];
}

/// dx = rstd (dy gamma - x rstd^2 mean(dy gamma x)); dgamma += dy x rstd.
PLIMSOLL_VECTORIZE void differentiate(const float* dy, const float* x, const float* gamma,
                                      float rstd, float slope, float* dx, float* dgamma,
                                      std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = rstd * dy[i] * gamma[i] - slope * x[i];
    dgamma[i] += dy[i] * x[i] * rstd;
  }
}

/// Rows as long as gamma, one at a time.
RowBlocks rows_of(const Tensor& x, const Tensor& gamma) {
  const std::int64_t columns = elements(gamma.shape);
  return {elements(x.shape) / columns, columns, 1};
}

}  // namespace

KernelPointer prepare_rms_norm(const KernelRequest& request) {
  const RowBlocks blocks = rows_of(request.input(0), request.input(1));
  const auto epsilon = float(request.params<NormParams>().epsilon);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch), gamma = whole_row(request.input(1), scratch),
                                                   y(request.output(0), blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const std::int64_t columns = blocks.columns;
    const float* scale = gamma.read(in[1], 0, 1);
    for (std::int64_t row = 0; row < blocks.rows; ++row) {
      const float* values = x.read(in[0], row, 1);
      const float squares = dot(values, values, columns);
      const float rstd = 1.0f / std::sqrt(squares / float(columns) + epsilon);
      floats_out(out, 1)[row] = rstd;
      normalize(values, scale, rstd, y.target(out[0], row), columns);
      y.store(out[0], row, 1);
    }
  });
}

KernelPointer prepare_rms_norm_backward(const KernelRequest& request) {
  const RowBlocks blocks = rows_of(request.input(1), request.input(2));
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), x(request.input(1), blocks, scratch),
      gamma = whole_row(request.input(2), scratch), dx(request.output(0), blocks, scratch),
      dgamma = whole_row(request.output(1), scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const std::int64_t columns = blocks.columns;
    const float* scale = gamma.read(in[2], 0, 1);
    dgamma.read(out[1], 0, 1);
    for (std::int64_t row = 0; row < blocks.rows; ++row) {
      const float *slopes = dy.read(in[0], row, 1), *values = x.read(in[1], row, 1);
      const float rstd = floats(in, 3)[row];
      const float slope =
          rstd * rstd * rstd * dot3(slopes, scale, values, columns) / float(columns);
      differentiate(slopes, values, scale, rstd, slope, dx.target(out[0], row),
                    dgamma.target(out[1], 0), columns);
      dx.store(out[0], row, 1);
    }
    dgamma.store(out[1], 0, 1);
  });
}

}  // namespace plimsoll
