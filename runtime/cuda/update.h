// Updates of arenas on the device share their operands, the factors of moments, and the table of
// chunks.
#pragma once

#include <memory>
#include <vector>

#include "graph/op_table.h"
#include "runtime/cuda/flat_chunks.h"
#include "runtime/cuda/launch.h"

namespace plimsoll {

__device__ __forceinline__ float scalar(const float* scalars, Scalar which) {
  return scalars[int(which)];
}

/// Where a chunk's parameters lie in the whole tensor (runtime/state/parts.h, global_index), and
/// the random words for it.
struct RoundedChunk {
  std::int64_t local;           ///< the chunk's first element in the rank's part of the tensor
  std::int64_t together, skip;  ///< elements in a row, and those of other ranks behind them
  std::int64_t begin;           ///< of the rank's part in the whole
  std::int64_t site, layer;

  __device__ std::uint64_t whole(int i) const {
    const std::int64_t index = local + i;
    return std::uint64_t(begin + index + index / together * skip);
  }
};

/// The arrays that an update reads and writes, in place.
struct Arenas {
  Stored parameters;  ///< or masters
  Stored gradients;
  Stored first, second;  ///< moments; `first` of SGD: the velocity
  void* cast;            ///< masters as parameters, or null
  const float *norms, *scalars;
  const RoundedChunk* rounded;  ///< by chunk, or null: parameters are rounded to the nearest
  std::int64_t seed;            ///< of the random words
  DType cast_type;
  bool part, cast_part;  ///< only what the rank updates is there
  GradientPlace gradient;
  bool clipped;  ///< gradients are unscaled and clipped already
};

/// Returns the element of the gradients at which a chunk's begin.
__device__ __forceinline__ std::int64_t gradient_at(const FlatChunk& chunk, const Arenas& a) {
  return chunk.at(a.gradient.part) - a.gradient.begin;
}

__device__ __forceinline__ float gradient_factor(const FlatChunk& chunk, const Arenas& a) {
  if (a.clipped) return 1;
  return chunk.clip ? scalar(a.scalars, Scalar::clip) : 1 / scalar(a.scalars, Scalar::loss_scale);
}

struct AdamRule {
  double rate, beta1, beta2, epsilon;
  RateSchedule rates;
};

/// The learning rate of the running update.
template <class Rule>
__device__ __forceinline__ double learning_rate(const Rule& rule, const float* scalars) {
  return rule.rate * rate_factor(rule.rates, scalar(scalars, Scalar::step));
}

/// First and second moment, bias corrected: what AdamW and LAMB have in common.
struct Moments {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  float correction;       ///< 1 / (1 - beta1^step)
  float root_correction;  ///< 1 / sqrt(1 - beta2^step)
};

/// By one thread for its block: powers in float64.
__device__ __forceinline__ Moments block_moments(const AdamRule& rule, const float* scalars) {
  __shared__ Moments shared;
  if (threadIdx.x == 0) {
    const double step = scalar(scalars, Scalar::step);
    shared.beta1 = float(rule.beta1);
    shared.one_minus_beta1 = float(1 - rule.beta1);
    shared.beta2 = float(rule.beta2);
    shared.one_minus_beta2 = float(1 - rule.beta2);
    shared.epsilon = float(rule.epsilon);
    shared.correction = float(1 / (1 - pow(rule.beta1, step)));
    shared.root_correction = float(1 / sqrt(1 - pow(rule.beta2, step)));
  }
  __syncthreads();
  return shared;
}

/// Moves both moments by a gradient.
__device__ __forceinline__ void move(const Moments& f, float slope, float& first, float& second) {
  first = f.beta1 * first + f.one_minus_beta1 * slope;
  second = f.beta2 * second + f.one_minus_beta2 * (slope * slope);
}

/// Masters are parameters of another type as well.
__device__ __forceinline__ void store_cast(const Arenas& a, const FlatChunk& chunk, int first,
                                           const Batch& parameters) {
  if (a.cast == nullptr) return;
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    const int i = first + k * int(blockDim.x);
    if (i < chunk.elements)
      store_any(a.cast_type, a.cast, chunk.at(a.cast_part) + i, parameters.values[k]);
  }
}

/// A skipped step: parameters are written again from the masters as they are.
__device__ __forceinline__ void keep(const Arenas& a, const FlatChunk& chunk) {
  if (a.cast == nullptr) return;
  for_each_batch(chunk.elements, [&](int first) {
    store_cast(a, chunk, first, Batch(a.parameters, chunk.at(a.part), first, chunk.elements));
  });
}

/// The state that updates share when they are prepared.
struct Update {
  const CudaDevice* device;
  std::vector<OwnedRange> ranges;
  std::shared_ptr<const FlatChunks> chunks;
  Arenas arenas = {};      ///< without addresses
  bool casts;              ///< the last output is the parameters
  std::int64_t begin = 0;  ///< of the moments, in the rank's state

  template <class Params>
  Update(const CudaRequest& request, const Params& params)
      : device(&request.device),
        ranges(updated_ranges(request.input(0), request.input(2), request.context, params)),
        chunks(std::make_shared<const FlatChunks>(
            upload_chunks(chunks_of(ranges, params.weight_decay)))) {
    arenas.part = keeps_part(request.input(0), request.context);
    arenas.gradient = gradient_place(request.input(1), request.input(2), request.context, params);
    begin = state_begin(request.input(2), params);
    arenas.clipped = params.clipped;
    const std::size_t last = request.op.outputs.size() - 1;
    casts = updates_parameters(request.op);
    if (!casts) return;
    arenas.cast_type = request.output(last).dtype;
    arenas.cast_part = keeps_part(request.output(last), request.context);
  }

  /// In place, unless a caller keeps two copies: then the whole tensor is copied first.
  Stored state(DeviceAddresses in, std::size_t input, DeviceAddresses out, std::size_t output,
               std::int64_t elements, DType type = DType::f32) const {
    if (in[input] != out[output]) {
      check(
          cudaMemcpyAsync(out[output], in[input], std::size_t((elements * bytes_of(type)).count()),
                          cudaMemcpyDeviceToDevice, device->stream),
          "update");
    }
    return {out[output], type};
  }
  /// Returns where the part of an operand begins whose moments there are. `part`: the operand has
  /// what the rank updates alone.
  std::byte* part_of(void* operand, DType type, bool part) const {
    return static_cast<std::byte*>(operand) + (part ? (begin * bytes_of(type)).count() : 0);
  }
  template <class Kernel, class... Arguments>
  void start(Kernel kernel, Arguments... arguments) const {
    if (chunks->count == 0) return;
    launch(device->stream, chunks->count, kThreads, 0, kernel, chunks->data(), arguments...);
  }
};

template <class Params>
AdamRule adam_rule(const Params& params, const RankContext& context) {
  return {params.learning_rate, params.beta1, params.beta2, params.epsilon, context.rates};
}

}  // namespace plimsoll
