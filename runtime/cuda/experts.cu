// The router of a mixture of experts, and the rows between tokens and experts.
// runtime/cpu/experts.cpp has the formulas and their sources. A warp works on one token, expert or
// row at a time.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

namespace {

constexpr int kWarp = 32;

unsigned warps_for(const CudaDevice& device, std::int64_t items) {
  return blocks_for(device, items * kWarp, kWarp);
}

/// Returns the index of the highest of values that lie in shared memory, the first of equal ones,
/// and takes it out.
__device__ std::int64_t take_highest(float* values, std::int64_t count) {
  float best = kMinusInfinity;
  int at = int(count);
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp) {
    if (values[i] > best || at == int(count)) {
      best = values[i];
      at = int(i);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, best, distance);
    const int other_at = __shfl_xor_sync(kFullWarp, at, distance);
    if (other > best || (other == best && other_at < at)) {
      best = other;
      at = other_at;
    }
  }
  __syncwarp();
  if (threadIdx.x == 0) values[at] = kMinusInfinity;
  __syncwarp();
  return at;
}

/// Writes the scores of a token's logits, and returns their log-sum-exp.
template <class T>
__device__ float score(bool sigmoid, const T* logits, std::int64_t count, float* scores) {
  float most = kMinusInfinity, sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp)
    most = larger(most, to_float(logits[i]));
  most = warp_max(most);
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp) sum += expf(to_float(logits[i]) - most);
  const float all = most + logf(warp_sum(sum));
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp) {
    const float x = to_float(logits[i]);
    scores[i] = sigmoid ? 1 / (1 + expf(-x)) : expf(x - all);
  }
  __syncwarp();
  return all;
}

/// Replaces slopes of scores by those of logits, and stores them.
template <class T>
__device__ void store_slopes(bool sigmoid, const float* scores, const float* slopes,
                             std::int64_t count, T* to) {
  float mean = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp) mean += slopes[i] * scores[i];
  mean = warp_sum(mean);
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp) {
    const float s = scores[i];
    to[i] = from_float<T>(sigmoid ? slopes[i] * s * (1 - s) : s * (slopes[i] - mean));
  }
}

/// Leaves only the experts of the best groups open.
__device__ void close_groups(const RouteParams& params, const float* ranked, std::int64_t experts,
                             float* open, float* groups) {
  const std::int64_t each = experts / params.groups;
  for (std::int64_t g = 0; g < params.groups; ++g) {
    float sum = 0;
    for (std::int64_t i = 0; i < params.group_best; ++i)
      sum += ranked[g * each + take_highest(open + g * each, each)];
    if (threadIdx.x == 0) groups[g] = sum;
  }
  for (std::int64_t i = threadIdx.x; i < experts; i += kWarp) open[i] = kMinusInfinity;
  __syncwarp();
  for (std::int64_t i = 0; i < params.top_groups; ++i) {
    const std::int64_t first = take_highest(groups, params.groups) * each;
    for (std::int64_t e = threadIdx.x; e < each; e += kWarp) open[first + e] = ranked[first + e];
    __syncwarp();
  }
}

template <class T>
__global__ void route(RouteParams params, std::int64_t tokens, std::int64_t experts,
                      std::int64_t chosen, const T* logits, const float* bias, float* weights,
                      std::int32_t* ids) {
  float* scores = dynamic_shared<float>();
  float *ranked = scores + experts, *open = ranked + experts, *groups = open + experts;
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    score(params.sigmoid, logits + token * experts, experts, scores);
    for (std::int64_t i = threadIdx.x; i < experts; i += kWarp)
      ranked[i] = open[i] = scores[i] + (bias == nullptr ? 0 : bias[i]);
    if (params.top_groups < params.groups) close_groups(params, ranked, experts, open, groups);
    float sum = 0;
    for (std::int64_t j = 0; j < chosen; ++j) {
      const std::int64_t expert = take_highest(open, experts);
      sum += scores[expert];
      if (threadIdx.x == 0) {
        ids[token * chosen + j] = std::int32_t(expert);
        weights[token * chosen + j] = scores[expert];
      }
    }
    const float factor = float(params.scale) / (params.normalized ? sum : 1.0f);
    __syncwarp();
    for (std::int64_t j = threadIdx.x; j < chosen; j += kWarp)
      weights[token * chosen + j] *= factor;
  }
}

template <class T>
__global__ void route_backward(RouteParams params, std::int64_t tokens, std::int64_t experts,
                               std::int64_t chosen, const float* dweights, const T* logits,
                               const std::int32_t* ids, T* dlogits) {
  float* scores = dynamic_shared<float>();
  float* slopes = scores + experts;
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    score(params.sigmoid, logits + token * experts, experts, scores);
    float sum = 0, product = 0;
    for (std::int64_t j = 0; j < chosen; ++j) {
      const float s = scores[ids[token * chosen + j]];
      sum += s;
      product += dweights[token * chosen + j] * s;
    }
    const float shift = params.normalized ? product / sum : 0;
    const float factor = float(params.scale) / (params.normalized ? sum : 1.0f);
    for (std::int64_t i = threadIdx.x; i < experts; i += kWarp) slopes[i] = 0;
    __syncwarp();
    for (std::int64_t j = threadIdx.x; j < chosen; j += kWarp)
      slopes[ids[token * chosen + j]] = factor * (dweights[token * chosen + j] - shift);
    __syncwarp();
    store_slopes(params.sigmoid, scores, slopes, experts, dlogits + token * experts);
  }
}

template <class T>
__global__ void balance_backward(BalanceParams params, std::int64_t before,
                                 std::int64_t of_sequence, std::int64_t tokens,
                                 std::int64_t experts, const T* logits, const float* all_counts,
                                 const float* loss_scale, T* dlogits) {
  float* scores = dynamic_shared<float>();
  float *slopes = scores + experts, *counts = slopes + experts;
  const std::int64_t of_loss = of_sequence * params.sequences;
  const float scale = loss_scale == nullptr ? 1 : *loss_scale;
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const float* first = all_counts + (before + token) / of_loss * params.sequences * experts;
    for (std::int64_t e = threadIdx.x; e < experts; e += kWarp) {
      counts[e] = 0;
      for (std::int64_t i = 0; i < params.sequences; ++i) counts[e] += first[i * experts + e];
    }
    const T* row = logits + token * experts;
    const float z = score(params.sigmoid, row, experts, scores);
    float choices = 0, sum = 0, product = 0;
    for (std::int64_t e = threadIdx.x; e < experts; e += kWarp) {
      choices += counts[e];
      sum += scores[e];
      product += counts[e] * scores[e];
    }
    choices = warp_sum(choices);
    sum = warp_sum(sum);
    const float shift = warp_sum(product) / sum;
    const float weight = scale * float(params.balance_weight) * float(experts) / choices /
                         float(params.sequence * params.sequences) / sum;
    for (std::int64_t e = threadIdx.x; e < experts; e += kWarp)
      slopes[e] = weight * (counts[e] - shift);
    float mean = 0;
    for (std::int64_t e = threadIdx.x; e < experts; e += kWarp) mean += slopes[e] * scores[e];
    mean = warp_sum(mean);
    const float z_slope = scale * 2 * float(params.z_weight) * z;
    for (std::int64_t e = threadIdx.x; e < experts; e += kWarp) {
      const float s = scores[e];
      const float slope = params.sigmoid ? slopes[e] * s * (1 - s) : s * (slopes[e] - mean);
      dlogits[token * experts + e] = from_float<T>(slope + z_slope * expf(to_float(row[e]) - z));
    }
  }
}

/// A warp counts the choices of one expert.
__global__ void count_choices(std::int64_t choices, const std::int32_t* chosen, float* load) {
  float count = 0;
  for (std::int64_t i = threadIdx.x; i < choices; i += kWarp)
    count += chosen[i] == std::int32_t(blockIdx.x);
  count = warp_sum(count);
  if (threadIdx.x == 0) load[blockIdx.x] += count;
}

__global__ void move_selection_bias(std::int64_t experts, float step, float even, float* load,
                                    float* bias) {
  for (std::int64_t e = global_thread(); e < experts; e += global_threads()) {
    if (load[e] != even) bias[e] += load[e] < even ? step : -step;
    load[e] = 0;
  }
}

/// A Limiting is the work of limit_choices. Tokens [begin, begin + own) are this rank's.
struct Limiting {
  SequencePart all;
  std::int64_t each, experts, capacity, begin, own;
};

/// A warp counts the choices of expert blockIdx.x in the order of a sequence's tokens.
__global__ void limit(Limiting p, const std::int32_t* chosen, float* counts, std::int32_t* kept) {
  const std::int64_t expert = blockIdx.x, choices = p.all.tokens * p.each;
  const unsigned before_lane = (1u << threadIdx.x) - 1;
  for (std::int64_t b = 0; b < p.all.batch; ++b) {
    std::int64_t taken = 0;
    for (std::int64_t from = 0; from < choices; from += kWarp) {
      const std::int64_t i = from + threadIdx.x;
      const std::int64_t token = p.all.row(b, i < choices ? i / p.each : 0);
      const bool hit = i < choices && chosen[token * p.each + i % p.each] == expert;
      const unsigned hits = __ballot_sync(kFullWarp, hit);
      if (hit && token >= p.begin && token < p.begin + p.own) {
        const bool fits = taken + __popc(hits & before_lane) < p.capacity;
        kept[(token - p.begin) * p.each + i % p.each] =
            fits ? std::int32_t(expert) : std::int32_t(-1);
      }
      taken += __popc(hits);
    }
    if (threadIdx.x == 0) counts[b * p.experts + expert] = float(taken);
  }
}

/// The experts of this rank, and the rows for which it has memory.
struct OwnExperts {
  std::int64_t first, count, most_rows;
  bool drops;  ///< rows without memory are left out, and are no error
};

OwnExperts own_experts(const CudaRequest& request, std::int64_t count) {
  const auto params = request.params<PlaceParams>();
  const std::int64_t before = params.parts > 1 ? request.context.at[std::size_t(Axis::ep)] : 0;
  return {before * count, count, params.rows, params.drops};
}

/// A Placing is the work of place_choices.
struct Placing {
  std::int64_t choices;
  OwnExperts own;
};

/// Walks over the choices of expert blockIdx.x of this rank. Writes rows from `row` on where `rows`
/// is given and they fit, and returns the number of rows.
__device__ std::int64_t walk(const Placing& p, const std::int32_t* chosen, std::int64_t row,
                             std::int32_t* rows) {
  const std::int64_t expert = p.own.first + blockIdx.x, first = row;
  const unsigned before_lane = (1u << threadIdx.x) - 1;
  for (std::int64_t from = 0; from < p.choices; from += kWarp) {
    const std::int64_t i = from + threadIdx.x;
    const bool hit = i < p.choices && chosen[i] == expert;
    const unsigned hits = __ballot_sync(kFullWarp, hit);
    const std::int64_t next = row + __popc(hits & before_lane);
    if (rows != nullptr && hit && next < p.own.most_rows) rows[i] = std::int32_t(next);
    row += __popc(hits);
  }
  return row - first;
}

/// Choices that get no row keep -1.
__global__ void drop_all(Placing p, std::int32_t* rows) {
  const std::int64_t first = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < p.choices; i += std::int64_t(gridDim.x) * blockDim.x)
    rows[i] = -1;
}

__global__ void count_rows(Placing p, const std::int32_t* chosen, std::int32_t* numbers) {
  const std::int64_t rows = walk(p, chosen, 0, nullptr);
  if (threadIdx.x == 0) numbers[blockIdx.x] = std::int32_t(rows);
}

/// Stores where the rows of an expert end. Rows for which there is no memory are left out, and
/// `overflow` says that they came, unless they are dropped.
__device__ void store_end(const OwnExperts& own, std::int64_t expert, std::int64_t end,
                          const RunPosition* position, RowOverflow* overflow, std::int32_t* ends) {
  ends[expert] = std::int32_t(end < own.most_rows ? end : own.most_rows);
  const bool last = expert == own.count - 1;
  if (!last || own.drops || end <= own.most_rows || overflow->rows > 0) return;
  overflow->position = *position;
  overflow->most = own.most_rows;
  overflow->first = own.first;
  overflow->last = own.first + expert;
  overflow->rows = end;
}

__global__ void add_up(Placing p, const std::int32_t* numbers, const RunPosition* position,
                       RowOverflow* overflow, std::int32_t* ends) {
  std::int64_t end = 0;
  for (std::int64_t e = 0; e < p.own.count; ++e) {
    end += numbers[e];
    store_end(p.own, e, end, position, overflow, ends);
  }
}

__global__ void give_rows(Placing p, const std::int32_t* chosen, const std::int32_t* ends,
                          std::int32_t* rows) {
  walk(p, chosen, blockIdx.x > 0 ? ends[blockIdx.x - 1] : 0, rows);
}

/// Where the rows of each expert of this rank end that all ranks give it together.
__global__ void sum_ends(std::int64_t ranks, std::int64_t experts, OwnExperts own,
                         const std::int32_t* all_ends, const RunPosition* position,
                         RowOverflow* overflow, std::int32_t* ends) {
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < own.count; ++e) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int32_t* from = all_ends + rank * experts + own.first + e;
      row += *from - (own.first + e > 0 ? from[-1] : 0);
    }
    store_end(own, e, row, position, overflow, ends);
  }
}

}  // namespace

CudaKernelPointer prepare_route(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const auto params = request.params<RouteParams>();
  const std::int64_t tokens = request.input(0).shape[0], experts = request.input(0).shape[1],
                     chosen = request.output(0).shape[1];
  const auto shared = std::size_t(3 * experts + params.groups) * sizeof(float);
  const bool biased = request.op.inputs.size() > 1;
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, warps_for(device, tokens), kWarp, shared, route<T>, params, tokens,
           experts, chosen, input_at<T>(in, 0), biased ? input_at<float>(in, 1) : nullptr,
           output_at<float>(out, 0), output_at<std::int32_t>(out, 1));
  });
}

CudaKernelPointer prepare_count_choices(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t choices = request.input_elements(0), experts = request.output_elements(0);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, unsigned(experts), kWarp, 0, count_choices, choices,
           input_at<std::int32_t>(in, 0), output_at<float>(out, 0));
  });
}

CudaKernelPointer prepare_move_selection_bias(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const auto params = request.params<SelectionParams>();
  const std::int64_t experts = request.input_elements(0);
  return make_cuda_kernel([=, &device](DeviceAddresses, DeviceAddresses out) {
    launch(device.stream, blocks_for(device, experts), kThreads, 0, move_selection_bias, experts,
           float(params.step), float(params.even), output_at<float>(out, 0),
           output_at<float>(out, 1));
  });
}

CudaKernelPointer prepare_route_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const auto params = request.params<RouteParams>();
  const std::int64_t tokens = request.input(1).shape[0], experts = request.input(1).shape[1],
                     chosen = request.input(0).shape[1];
  const auto shared = std::size_t(2 * experts) * sizeof(float);
  return make_typed_kernel(request.input(1).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, warps_for(device, tokens), kWarp, shared, route_backward<T>, params,
           tokens, experts, chosen, input_at<float>(in, 0), input_at<T>(in, 1),
           input_at<std::int32_t>(in, 2), output_at<T>(out, 0));
  });
}

// In place: the weights stay as they are.
CudaKernelPointer prepare_balance_experts(const CudaRequest&) {
  return make_cuda_kernel([](DeviceAddresses, DeviceAddresses) {});
}

CudaKernelPointer prepare_balance_experts_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const auto params = request.params<BalanceParams>();
  const std::int64_t tokens = request.input(0).shape[0], experts = request.input(0).shape[1];
  const auto& split = request.input(0).split;
  const std::int64_t before = split ? tokens * part_index(*split, request.context.at) : 0;
  const std::int64_t of_sequence = tokens * (split ? split->degree : 1) / request.input(1).shape[0];
  const auto shared = std::size_t(3 * experts) * sizeof(float);
  const bool scaled = request.op.inputs.size() > 2;
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, warps_for(device, tokens), kWarp, shared, balance_backward<T>, params,
           before, of_sequence, tokens, experts, input_at<T>(in, 0), input_at<float>(in, 1),
           scaled ? input_at<float>(in, 2) : nullptr, output_at<T>(out, 0));
  });
}

CudaKernelPointer prepare_limit_choices(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const auto params = request.params<LimitParams>();
  const Shape& chosen = request.input(0).shape;
  const bool keeps = request.op.outputs.size() > 1;
  const std::int64_t own = keeps ? request.output(1).shape[0] : 0;
  const std::int64_t of_mp = keeps ? chosen[0] / params.ranks / own : 1;
  const Coordinates& at = request.context.at;
  const std::int64_t part = params.ranks > 1 ? at[std::size_t(Axis::cp)] : 0;
  const Limiting limiting{
      .all = {.tokens = params.sequence,
              .ranks = params.ranks,
              .rank = -1,
              .batch = chosen[0] / params.sequence},
      .each = chosen[1],
      .experts = request.output(0).shape[1],
      .capacity = params.capacity,
      .begin = (part * of_mp + (of_mp > 1 ? at[std::size_t(Axis::mp)] : 0)) * own,
      .own = own};
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, unsigned(limiting.experts), kWarp, 0, limit, limiting,
           input_at<std::int32_t>(in, 0), output_at<float>(out, 0),
           keeps ? output_at<std::int32_t>(out, 1) : nullptr);
  });
}

CudaKernelPointer prepare_place_choices(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& chosen = request.input(0).shape;
  const Placing placing{chosen[0] * chosen[1], own_experts(request, request.output_elements(1))};
  DeviceScratch scratch(request);
  auto* numbers = scratch.take_values<std::int32_t>(placing.own.count);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const auto* ids = input_at<std::int32_t>(in, 0);
    auto *rows = output_at<std::int32_t>(out, 0), *ends = output_at<std::int32_t>(out, 1);
    const auto experts = unsigned(placing.own.count);
    // Choices that were dropped have no row.
    launch(device.stream, experts, kWarp, 0, drop_all, placing, rows);
    launch(device.stream, experts, kWarp, 0, count_rows, placing, ids, numbers);
    launch(device.stream, 1, 1, 0, add_up, placing, numbers, device.position, device.overflow,
           ends);
    launch(device.stream, experts, kWarp, 0, give_rows, placing, ids, ends, rows);
  });
}

CudaKernelPointer prepare_received_ends(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t ranks = request.input(0).shape[0], experts = request.input(0).shape[1];
  const OwnExperts own = own_experts(request, request.output_elements(0));
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch(device.stream, 1, 1, 0, sum_ends, ranks, experts, own, input_at<std::int32_t>(in, 0),
           device.position, device.overflow, output_at<std::int32_t>(out, 0));
  });
}

}  // namespace plimsoll
