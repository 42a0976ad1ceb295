// RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467): y = gamma x rstd, rstd = 1 / sqrt(mean of
// x^2 + epsilon), row by row.
#include <array>
#include <cmath>
#include <optional>

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

/// Rows as long as gamma, or as the last dimension without one.
RowBlocks rows_of(const Tensor& x, const Tensor* gamma) {
  const std::int64_t columns = gamma != nullptr ? elements(gamma->shape) : x.shape.back();
  return {elements(x.shape) / columns, columns, 1};
}

/// The weight of a norm as f32: ones where it has none.
class Weight {
 public:
  Weight(const Tensor* gamma, std::int64_t columns, Scratch& scratch) : columns_(columns) {
    if (gamma != nullptr) {
      row_.emplace(whole_row(*gamma, scratch));
    } else {
      ones_ = scratch.take_floats(columns);
    }
  }
  const float* read(Addresses in, std::size_t i) const {
    if (row_) return row_->read(in[i], 0, 1);
    std::fill_n(ones_, columns_, 1.0f);
    return ones_;
  }

 private:
  std::int64_t columns_;
  std::optional<Rows> row_;
  float* ones_ = nullptr;
};

}  // namespace

KernelPointer prepare_rms_norm(const KernelRequest& request) {
  const Tensor* weight = request.op.inputs.size() > 1 ? &request.input(1) : nullptr;
  const RowBlocks blocks = rows_of(request.input(0), weight);
  const auto epsilon = float(request.params<NormParams>().epsilon);
  Scratch scratch(request);
  const Rows x(request.input(0), blocks, scratch), y(request.output(0), blocks, scratch);
  const Weight gamma(weight, blocks.columns, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const std::int64_t columns = blocks.columns;
    const float* scale = gamma.read(in, 1);
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
  const bool weighted = request.op.inputs.size() > 3;
  const Tensor* weight = weighted ? &request.input(2) : nullptr;
  const RowBlocks blocks = rows_of(request.input(1), weight);
  Scratch scratch(request);
  const Rows dy(request.input(0), blocks, scratch), x(request.input(1), blocks, scratch),
      dx(request.output(0), blocks, scratch);
  const Weight gamma(weight, blocks.columns, scratch);
  float* sums = scratch.take_floats(blocks.columns);
  std::optional<Rows> dgamma;
  if (request.op.outputs.size() > 1) dgamma.emplace(whole_row(request.output(1), scratch));
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const std::int64_t columns = blocks.columns;
    const float* scale = gamma.read(in, 2);
    std::fill_n(sums, columns, 0.0f);
    for (std::int64_t row = 0; row < blocks.rows; ++row) {
      const float *slopes = dy.read(in[0], row, 1), *values = x.read(in[1], row, 1);
      const float rstd = floats(in, weighted ? 3 : 2)[row];
      const float slope =
          rstd * rstd * rstd * dot3(slopes, scale, values, columns) / float(columns);
      differentiate(slopes, values, scale, rstd, slope, dx.target(out[0], row), sums, columns);
      dx.store(out[0], row, 1);
    }
    if (dgamma) dgamma->add(out[1], 0, sums, 1);
  });
}

}  // namespace plimsoll
