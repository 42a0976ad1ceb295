// Cross entropy over a vocabulary that may be split over mp: own loops around oneDNN's exp.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/example_reader.h"
#include "runtime/row_shares.h"

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

/// Computes exp in place over whole rows, in blocks that stay in the cache between the loops around
/// it.
class BlockExp {
 public:
  BlockExp(const KernelRequest& request, const RowBlocks& blocks, Scratch& scratch)
      : blocks_(blocks), exp_(blocks, [&](std::int64_t rows) {
          return prepare(request, rows * blocks.columns, scratch);
        }) {}

  /// For each block of rows, before(first row, rows) must leave the exponents at data(first row),
  /// and after(first row, rows) finds their exp there.
  template <class Data, class Before, class After>
  void run(Data data, Before before, After after) {
    blocks_.each([&](std::int64_t first, std::int64_t count) {
      before(first, count);
      Primitive& exp = exp_.for_rows(count);
      exp.set(DNNL_ARG_SRC, data(first));
      exp.set(DNNL_ARG_DST, data(first));
      exp.execute();
      after(first, count);
    });
  }

 private:
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

  RowBlocks blocks_;
  BlockPrimitive exp_;
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

/// The shares in the loss of a rank's rows.
struct LossShares {
  RowShares rows;
  ExampleReader examples;

  explicit LossShares(const KernelRequest& request)
      : rows(request.params<VocabularyParams>(),
             own_tokens(request.context, request.params<VocabularyParams>().sequence)),
        examples(request.context) {}

  double of(std::int64_t row) const {
    if (!examples.reads()) return rows.of(row);
    const std::int64_t token = row / rows.depths, of = token / rows.part.tokens;
    const std::int64_t depth = row % rows.depths;
    const std::int64_t position = examples.position(rows.part, of, token % rows.part.tokens);
    return examples.loss_share(of, position, depth + 1) * (depth == 0 ? 1 : rows.depth_weight);
  }
};

}  // namespace

KernelPointer prepare_logits_max(const KernelRequest& request) {
  const LogitColumns shard = logit_columns(request);
  Scratch scratch(request);
  const Rows logits(request.input(0), {shard.rows, shard.columns, 1}, scratch);
  return make_kernel([shard, logits](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < shard.rows; ++row) {
      floats_out(out, 0)[row] = largest(logits.read(in[0], row, 1), shard.real);
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
  const RowBlocks blocks = RowBlocks::in_cache(shard.rows, shard.real);
  BlockExp block_exp(request, blocks, scratch);
  const Rows rows(request.input(0), {shard.rows, shard.columns, blocks.block}, scratch);
  float* block = scratch.take_floats(blocks.block * shard.real);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) mutable {
    const float* max = floats(in, 1);
    const std::int32_t* targets = ids(in, 2);
    float* stats = floats_out(out, 0);
    const auto shift = [&](std::int64_t first, std::int64_t count) {
      const float* logits = rows.read(in[0], first, count);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = first + i;
        subtract(logits + i * shard.columns, max[row], block + i * shard.real, shard.real);
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
  const auto params = request.params<VocabularyParams>();
  LossShares shares(request);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& position) mutable {
    shares.examples.read(position);
    const float *max = floats(in, 0), *stats = floats(in, 1);
    double loss = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const double log_sum = std::log(double(stats[2 * row]));
      floats_out(out, 0)[row] = float(double(max[row]) + log_sum);
      loss += shares.of(row) * (log_sum - double(stats[2 * row + 1]));
    }
    float* scalars = floats_out(out, 1);
    std::copy_n(floats(in, 2), scalars == floats(in, 2) ? 0 : kScalars, scalars);
    scalars[std::size_t(Scalar::loss)] += float(params.loss_weight * loss);
  });
}

KernelPointer prepare_cross_entropy_backward(const KernelRequest& request) {
  const LogitColumns shard = logit_columns(request);
  const auto params = request.params<VocabularyParams>();
  LossShares shares(request);
  const bool scales = request.op.inputs.size() > 3;
  Scratch scratch(request);
  const RowBlocks blocks = RowBlocks::in_cache(shard.rows, shard.columns);
  BlockExp block_exp(request, blocks, scratch);
  const Rows logit_rows(request.input(0), blocks, scratch),
      gradient_rows(request.output(0), blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& position) mutable {
    shares.examples.read(position);
    const float* log_sum_exp = floats(in, 2);
    const std::int32_t* targets = ids(in, 1);
    const float loss_scale = scales ? floats(in, 3)[0] : 1;
    const std::int64_t padding = shard.columns - shard.real;
    const auto shift = [&](std::int64_t first, std::int64_t count) {
      const float* logits = logit_rows.read(in[0], first, count);
      float* gradients = gradient_rows.target(out[0], first);
      for (std::int64_t i = 0; i < count; ++i) {
        float* gradient = gradients + i * shard.columns;
        subtract(logits + i * shard.columns, log_sum_exp[first + i], gradient, shard.real);
        std::fill_n(gradient + shard.real, padding, 0.0f);
      }
    };
    const auto finish = [&](std::int64_t first, std::int64_t count) {
      float* gradients = gradient_rows.target(out[0], first);
      for (std::int64_t i = 0; i < count; ++i) {
        float* gradient = gradients + i * shard.columns;
        const float weight = float(params.loss_weight * shares.of(first + i)) * loss_scale;
        multiply(gradient, weight, shard.real);
        std::fill_n(gradient + shard.real, padding, 0.0f);
        const std::int64_t target = shard.local(targets[first + i]);
        if (target >= 0) gradient[target] -= weight;
      }
      gradient_rows.store(out[0], first, count);
    };
    block_exp.run([&](std::int64_t row) { return gradient_rows.target(out[0], row); }, shift,
                  finish);
  });
}

}  // namespace plimsoll
