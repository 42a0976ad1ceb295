// The updates: AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization",
// algorithm 2), SGD with momentum (Sutskever et al. 2013, section 2, in the form of PyTorch's
// torch.optim.SGD with dampening 0) and LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2 with
// phi the identity). One kernel for all segments; masters are written as parameters, too, in the
// same pass. A step where Scalar::found is set leaves everything as it is.
#include <memory>

#include "graph/op_table.h"
#include "runtime/cuda/flat_chunks.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"

namespace plimsoll {

namespace {

__device__ __forceinline__ float scalar(const float* scalars, Scalar which) {
  return scalars[int(which)];
}

/// The arrays that an update reads and writes, in place.
struct Arenas {
  float* parameters;  ///< or masters
  const float* gradients;
  float *first, *second;  ///< moments; `first` of SGD: the velocity
  void* cast;             ///< masters as parameters, or null
  const float *norms, *scalars;
  DType cast_type;
  bool part, gradient_part, cast_part;  ///< only what the rank updates is there
  bool clipped;                         ///< gradients are unscaled and clipped already
};

__device__ __forceinline__ float gradient_factor(const FlatChunk& chunk, const Arenas& a) {
  if (a.clipped) return 1;
  return chunk.clip ? scalar(a.scalars, Scalar::clip) : 1 / scalar(a.scalars, Scalar::loss_scale);
}

struct AdamRule {
  double rate, beta1, beta2, epsilon;
  RateSchedule rates;
};
struct SgdRule {
  double rate;
  float momentum;
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

/// kAtOnce elements of a thread, `blockDim.x` apart.
struct Batch {
  float values[kAtOnce];
  __device__ __forceinline__ Batch(const float* from, int first, int elements) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      values[k] = i < elements ? from[i] : 0;
    }
  }
  __device__ __forceinline__ void store(float* to, int first, int elements) const {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      if (i < elements) to[i] = values[k];
    }
  }
  __device__ __forceinline__ float& operator[](int k) { return values[k]; }
};

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
    store_cast(a, chunk, first, Batch(a.parameters + chunk.at(a.part), first, chunk.elements));
  });
}

__global__ void adamw(const FlatChunk* chunks, AdamRule rule, Arenas a) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return keep(a, chunk);
  const Moments f = block_moments(rule, a.scalars);
  const float factor = gradient_factor(chunk, a);
  const double rate = learning_rate(rule, a.scalars) * double(chunk.rate);
  const auto step_size = float(rate * double(f.correction));
  const auto kept = float(1 - rate * double(chunk.decay));
  float* parameters = a.parameters + chunk.at(a.part);
  const float* gradients = a.gradients + chunk.at(a.gradient_part);
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(parameters, i, chunk.elements), g(gradients, i, chunk.elements);
    Batch m(a.first + chunk.state_at, i, chunk.elements);
    Batch v(a.second + chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float slope = g[k] * factor;
      m[k] = f.beta1 * m[k] + f.one_minus_beta1 * slope;
      v[k] = f.beta2 * v[k] + f.one_minus_beta2 * (slope * slope);
      p[k] = kept * p[k] - step_size * (m[k] / (sqrtf(v[k]) * f.root_correction + f.epsilon));
    }
    p.store(parameters, i, chunk.elements);
    m.store(a.first + chunk.state_at, i, chunk.elements);
    v.store(a.second + chunk.state_at, i, chunk.elements);
    store_cast(a, chunk, i, p);
  });
}

__global__ void sgd(const FlatChunk* chunks, SgdRule rule, Arenas a) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return keep(a, chunk);
  const float factor = gradient_factor(chunk, a);
  const auto rate = float(learning_rate(rule, a.scalars) * double(chunk.rate));
  float* parameters = a.parameters + chunk.at(a.part);
  const float* gradients = a.gradients + chunk.at(a.gradient_part);
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(parameters, i, chunk.elements), g(gradients, i, chunk.elements);
    Batch velocity(a.first + chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      velocity[k] = rule.momentum * velocity[k] + (g[k] * factor + chunk.decay * p[k]);
      p[k] -= rate * velocity[k];
    }
    p.store(parameters, i, chunk.elements);
    velocity.store(a.first + chunk.state_at, i, chunk.elements);
    store_cast(a, chunk, i, p);
  });
}

/// Sums of p^2 and u^2, u being the direction of the update.
struct LambSums {
  double parameter, direction;
};

/// Updates the moments; sums[chunk] of parameters and direction, in float64.
__global__ void lamb_moments(const FlatChunk* chunks, AdamRule rule, Arenas a, LambSums* sums) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return;
  const Moments f = block_moments(rule, a.scalars);
  const float factor = gradient_factor(chunk, a);
  const float* parameters = a.parameters + chunk.at(a.part);
  const float* gradients = a.gradients + chunk.at(a.gradient_part);
  double of_parameters = 0, of_direction = 0;
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(parameters, i, chunk.elements), g(gradients, i, chunk.elements);
    Batch m(a.first + chunk.state_at, i, chunk.elements);
    Batch v(a.second + chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float slope = g[k] * factor;
      m[k] = f.beta1 * m[k] + f.one_minus_beta1 * slope;
      v[k] = f.beta2 * v[k] + f.one_minus_beta2 * (slope * slope);
      const double direction =
          m[k] * f.correction / (sqrtf(v[k]) * f.root_correction + f.epsilon) + chunk.decay * p[k];
      if (i + k * int(blockDim.x) >= chunk.elements) continue;
      of_parameters += double(p[k]) * double(p[k]);
      of_direction += direction * direction;
    }
    m.store(a.first + chunk.state_at, i, chunk.elements);
    v.store(a.second + chunk.state_at, i, chunk.elements);
  });
  of_parameters = block_sum(of_parameters);
  of_direction = block_sum(of_direction);
  if (threadIdx.x == 0) sums[blockIdx.x] = {of_parameters, of_direction};
}

/// The chunks of one segment, which follow each other.
struct SegmentChunks {
  std::int32_t segment;
  std::int32_t first, count;
  double copies;
};

__global__ void add_segments(const SegmentChunks* segments, const float* scalars,
                             const LambSums* sums, float* norms) {
  if (scalar(scalars, Scalar::found) != 0) return;
  const SegmentChunks segment = segments[blockIdx.x];
  double of_parameters = 0, of_direction = 0;
  for (int i = int(threadIdx.x); i < segment.count; i += int(blockDim.x)) {
    of_parameters += sums[segment.first + i].parameter;
    of_direction += sums[segment.first + i].direction;
  }
  of_parameters = block_sum(of_parameters);
  of_direction = block_sum(of_direction);
  if (threadIdx.x != 0) return;
  norms[2 * segment.segment] = float(of_parameters / segment.copies);
  norms[2 * segment.segment + 1] = float(of_direction / segment.copies);
}

__global__ void lamb(const FlatChunk* chunks, AdamRule rule, Arenas a) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return keep(a, chunk);
  const Moments f = block_moments(rule, a.scalars);
  const double parameter = a.norms[2 * chunk.segment], direction = a.norms[2 * chunk.segment + 1];
  // A tensor of zeros moves by the learning rate alone, and so does one without a direction.
  const double trust = parameter > 0 && direction > 0 ? sqrt(parameter / direction) : 1;
  const auto rate = float(learning_rate(rule, a.scalars) * double(chunk.rate) * trust);
  float* parameters = a.parameters + chunk.at(a.part);
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(parameters, i, chunk.elements);
    Batch m(a.first + chunk.state_at, i, chunk.elements);
    Batch v(a.second + chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float denominator = sqrtf(v[k]) * f.root_correction + f.epsilon;
      p[k] -= rate * (m[k] * f.correction / denominator + chunk.decay * p[k]);
    }
    p.store(parameters, i, chunk.elements);
    store_cast(a, chunk, i, p);
  });
}

/// The state that updates share when they are prepared.
struct Update {
  const CudaDevice* device;
  std::vector<OwnedRange> ranges;
  std::shared_ptr<const FlatChunks> chunks;
  Arenas arenas = {};  ///< without addresses
  bool casts;          ///< the last output is the parameters

  template <class Params>
  Update(const CudaRequest& request, const Params& params)
      : device(&request.device),
        ranges(ranges_of(request.input(0), request.context, params.group)),
        chunks(std::make_shared<const FlatChunks>(
            upload_chunks(chunks_of(ranges, params.weight_decay)))) {
    arenas.part = keeps_part(request.input(0), request.context);
    arenas.gradient_part = keeps_part(request.input(1), request.context);
    arenas.clipped = params.clipped;
    const std::size_t last = request.op.outputs.size() - 1;
    casts = updates_parameters(request.op);
    if (!casts) return;
    arenas.cast_type = request.output(last).dtype;
    arenas.cast_part = request.output_elements(last) == request.output_elements(0);
  }

  /// In place, unless a caller keeps two copies: then the whole tensor is copied first.
  float* state(DeviceAddresses in, std::size_t input, DeviceAddresses out, std::size_t output,
               std::int64_t elements) const {
    if (in[input] != out[output]) {
      check(cudaMemcpyAsync(out[output], in[input], std::size_t(elements) * sizeof(float),
                            cudaMemcpyDeviceToDevice, device->stream),
            "update");
    }
    return output_at<float>(out, output);
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

}  // namespace

CudaKernelPointer prepare_adamw(const CudaRequest& request) {
  const auto& params = request.params<AdamParams>();
  const Update update(request, params);
  const AdamRule rule = adam_rule(params, request.context);
  const std::int64_t arena = request.output_elements(0), owned = request.output_elements(1);
  return make_cuda_kernel([=](DeviceAddresses in, DeviceAddresses out) {
    Arenas arenas = update.arenas;
    arenas.parameters = update.state(in, 0, out, 0, arena);
    arenas.gradients = input_at<float>(in, 1);
    arenas.first = update.state(in, 2, out, 1, owned);
    arenas.second = update.state(in, 3, out, 2, owned);
    arenas.scalars = input_at<float>(in, 4);
    if (update.casts) arenas.cast = out[3];
    update.start(adamw, rule, arenas);
  });
}

CudaKernelPointer prepare_sgd(const CudaRequest& request) {
  const auto& params = request.params<SgdParams>();
  const Update update(request, params);
  const SgdRule rule{params.learning_rate, float(params.momentum), request.context.rates};
  const std::int64_t arena = request.output_elements(0), owned = request.output_elements(1);
  return make_cuda_kernel([=](DeviceAddresses in, DeviceAddresses out) {
    Arenas arenas = update.arenas;
    arenas.parameters = update.state(in, 0, out, 0, arena);
    arenas.gradients = input_at<float>(in, 1);
    arenas.first = update.state(in, 2, out, 1, owned);
    arenas.scalars = input_at<float>(in, 3);
    if (update.casts) arenas.cast = out[2];
    update.start(sgd, rule, arenas);
  });
}

CudaKernelPointer prepare_lamb_norms(const CudaRequest& request) {
  const auto& params = request.params<LambParams>();
  const Update update(request, params);
  const AdamRule rule = adam_rule(params, request.context);
  std::vector<SegmentChunks> segments;
  std::int32_t chunk = 0;
  for (const OwnedRange& range : update.ranges) {
    // A segment may be cut at bucket borders; its parts follow each other.
    if (segments.empty() || segments.back().segment != range.segment)
      segments.push_back({std::int32_t(range.segment), chunk, 0, range.copies});
    const auto count = std::int32_t((range.elements + kChunkElements - 1) / kChunkElements);
    segments.back().count += count;
    chunk += count;
  }
  const auto table = std::make_shared<const DeviceMemory>(upload_values(segments));
  const auto count = unsigned(segments.size());
  DeviceScratch scratch(request);
  LambSums* sums = scratch.take_values<LambSums>(chunk);
  const std::int64_t owned = request.output_elements(0), norms = request.output_elements(2);
  return make_cuda_kernel([=](DeviceAddresses in, DeviceAddresses out) {
    Arenas arenas = update.arenas;
    arenas.parameters = const_cast<float*>(input_at<float>(in, 0));  // only read
    arenas.gradients = input_at<float>(in, 1);
    arenas.first = update.state(in, 2, out, 0, owned);
    arenas.second = update.state(in, 3, out, 1, owned);
    arenas.scalars = input_at<float>(in, 4);
    const cudaStream_t stream = update.device->stream;
    check(cudaMemsetAsync(out[2], 0, std::size_t(norms) * sizeof(float), stream), "lamb_norms");
    if (count == 0) return;
    update.start(lamb_moments, rule, arenas, sums);
    launch(stream, count, kThreads, 0, add_segments, table->as<const SegmentChunks>(),
           arenas.scalars, sums, output_at<float>(out, 2));
  });
}

CudaKernelPointer prepare_lamb(const CudaRequest& request) {
  const auto& params = request.params<LambParams>();
  const Update update(request, params);
  const AdamRule rule = adam_rule(params, request.context);
  const std::int64_t arena = request.output_elements(0);
  return make_cuda_kernel([=](DeviceAddresses in, DeviceAddresses out) {
    Arenas arenas = update.arenas;
    arenas.parameters = update.state(in, 0, out, 0, arena);
    arenas.first = const_cast<float*>(input_at<float>(in, 1));  // only read
    arenas.second = const_cast<float*>(input_at<float>(in, 2));
    arenas.norms = input_at<float>(in, 3);
    arenas.scalars = input_at<float>(in, 4);
    if (update.casts) arenas.cast = out[1];
    update.start(lamb, rule, arenas);
  });
}

}  // namespace plimsoll
