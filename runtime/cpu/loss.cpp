// Cross entropy over a vocabulary that may be split over mp: own loops around oneDNN's exp.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/vectorize.h"

namespace plimsoll {

namespace {

/// This rank's columns of the logits.
struct LogitColumns {
  std::int64_t first;    ///< global index of column 0
  std::int64_t columns;  ///< with padding
  std::int64_t real;     ///< leading columns that are below the real vocabulary
  std::int64_t rows;

  /// Column of the target here, or -1.
  std::int64_t local(std::int32_t target) const {
    const std::int64_t column = target - first;
    return column >= 0 && column < real ? column : -1;
  }
};

LogitColumns logit_columns(const KernelRequest& request) {
  const auto& params = request.params<VocabularyParams>();
  const Shape& shape = request.input(0).shape;
  LogitColumns result{};
  result.rows = shape[0];
  result.columns = shape[1];
  const std::int64_t part = params.split_degree > 1 ? request.context.at[std::size_t(Axis::mp)] : 0;
  result.first = part * result.columns;
  result.real = std::clamp<std::int64_t>(params.vocabulary - result.first, 0, result.columns);
  return result;
}

/// exp in place over whole rows, in blocks that stay in the cache between the loops around it.
class BlockExp {
 public:
  BlockExp(const KernelRequest& request, std::int64_t rows, std::int64_t columns, Scratch& scratch)
      : rows_(rows),
        columns_(columns),
        block_rows_(std::clamp<std::int64_t>(kBlockElements / columns, 1, rows)),
        block_(prepare(request, block_rows_ * columns, scratch)),
        rest_(prepare(request, std::max<std::int64_t>(rows % block_rows_, 1) * columns, scratch)) {}

  std::int64_t block_elements() const { return block_rows_ * columns_; }

  /// For each block of rows: before(first row, rows) must leave the exponents at data(first row),
  /// after(first row, rows) finds their exp there.
  template <class Data, class Before, class After>
  void run(Data data, Before before, After after) {
    for (std::int64_t row = 0; row < rows_; row += block_rows_) {
      const std::int64_t count = std::min(block_rows_, rows_ - row);
      before(row, count);
      Primitive& exp = count == block_rows_ ? block_ : rest_;
      exp.set(DNNL_ARG_SRC, data(row));
      exp.set(DNNL_ARG_DST, data(row));
      exp.execute();
      after(row, count);
    }
  }

 private:
  static constexpr std::int64_t kBlockElements = 16'384;  // 64 KiB, a fraction of any L2 cache

  static Primitive prepare(const KernelRequest& request, std::int64_t count, Scratch& scratch) {
    const dnnl::memory::desc layout = dense({count});
    const dnnl::eltwise_forward::primitive_desc descriptor(
        {dnnl::prop_kind::forward_inference, dnnl::algorithm::eltwise_exp, layout},
        scratchpad_attributes(), request.library.engine);
    Primitive exp(request.library, descriptor, scratch);
    exp.declare(DNNL_ARG_SRC, layout);
    exp.declare(DNNL_ARG_DST, layout);
    return exp;
  }

  std::int64_t rows_, columns_, block_rows_;
  Primitive block_, rest_;
};

constexpr std::int64_t kLanes = 16;

PLIMSOLL_VECTORIZE float largest(const float* values, std::int64_t count) {
  std::array<float, kLanes> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  float result = -std::numeric_limits<float>::infinity();
  for (float lane : lanes) result = std::max(result, lane);
  for (; i < count; ++i) result = std::max(result, values[i]);
  return result;
}

PLIMSOLL_VECTORIZE float total(const float* values, std::int64_t count) {
  std::array<float, kLanes> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  float result = 0;
  for (float lane : lanes) result += lane;
  for (; i < count; ++i) result += values[i];
  return result;
}

PLIMSOLL_VECTORIZE void subtract(const float* values, float offset, float* result,
                                 std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) result[i] = values[i] - offset;
}

PLIMSOLL_VECTORIZE void multiply(float* values, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

}  // namespace

KernelPointer prepare_logits_max(const KernelRequest& request) {
  const LogitColumns shard = logit_columns(request);
  return make_kernel([shard](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < shard.rows; ++row) {
      floats_out(out, 0)[row] = largest(floats(in, 0) + row * shard.columns, shard.real);
    }
  });
}

KernelPointer prepare_logits_sum_exp(const KernelRequest& request) {
  const LogitColumns shard = logit_columns(request);
  if (shard.real == 0) {  // nothing but padding: contributes nothing
    return make_kernel([shard](Addresses, Addresses out, const RunPosition&) {
      std::fill_n(floats_out(out, 0), 2 * shard.rows, 0.0f);
    });
  }
  Scratch scratch(request);
  BlockExp block_exp(request, shard.rows, shard.real, scratch);
  float* block = scratch.take_floats(block_exp.block_elements());
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    const float *logits = floats(in, 0), *max = floats(in, 1);
    const std::int32_t* targets = ids(in, 2);
    float* stats = floats_out(out, 0);
    const auto shift = [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = first + i;
        subtract(logits + row * shard.columns, max[row], block + i * shard.real, shard.real);
        const std::int64_t target = shard.local(targets[row]);
        stats[2 * row + 1] = target < 0 ? 0.0f : block[i * shard.real + target];
      }
    };
    const auto sum = [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        stats[2 * (first + i)] = total(block + i * shard.real, shard.real);
    };
    block_exp.run([&](std::int64_t) { return block; }, shift, sum);
  });
}

KernelPointer prepare_token_loss(const KernelRequest& request) {
  const std::int64_t rows = request.input_elements(0);
  const double weight = request.params<VocabularyParams>().loss_weight;
  return make_kernel([rows, weight](Addresses in, Addresses out, const RunPosition&) {
    const float *max = floats(in, 0), *stats = floats(in, 1);
    double loss = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const double log_sum = std::log(double(stats[2 * row]));
      floats_out(out, 0)[row] = float(double(max[row]) + log_sum);
      loss += log_sum - double(stats[2 * row + 1]);
    }
    float* scalars = floats_out(out, 1);
    std::copy_n(floats(in, 2), scalars == floats(in, 2) ? 0 : kScalars, scalars);
    scalars[std::size_t(Scalar::loss)] += float(weight * loss);
  });
}

KernelPointer prepare_cross_entropy_backward(const KernelRequest& request) {
  const LogitColumns shard = logit_columns(request);
  const auto weight = float(request.params<VocabularyParams>().loss_weight);
  Scratch scratch(request);
  BlockExp block_exp(request, shard.rows, shard.columns, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    const float *logits = floats(in, 0), *log_sum_exp = floats(in, 2);
    const std::int32_t* targets = ids(in, 1);
    float* gradients = floats_out(out, 0);
    const std::int64_t padding = shard.columns - shard.real;
    const auto shift = [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t row = first; row < first + count; ++row) {
        float* gradient = gradients + row * shard.columns;
        subtract(logits + row * shard.columns, log_sum_exp[row], gradient, shard.real);
        std::fill_n(gradient + shard.real, padding, 0.0f);
      }
    };
    const auto finish = [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t row = first; row < first + count; ++row) {
        float* gradient = gradients + row * shard.columns;
        multiply(gradient, weight, shard.real);
        std::fill_n(gradient + shard.real, padding, 0.0f);
        const std::int64_t target = shard.local(targets[row]);
        if (target >= 0) gradient[target] -= weight;
      }
    };
    block_exp.run([&](std::int64_t row) { return gradients + row * shard.columns; }, shift, finish);
  });
}

}  // namespace plimsoll
