// The update of LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2 with phi the identity): norms
// of tensors, then the update by them.
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/update.h"

namespace plimsoll {

namespace {

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
  double of_parameters = 0, of_direction = 0;
  for_each_batch(chunk.elements, [&](int i) {
    const Batch p(a.parameters, chunk.at(a.part), i, chunk.elements);
    const Batch g(a.gradients, gradient_at(chunk, a), i, chunk.elements);
    Batch m(a.first, chunk.state_at, i, chunk.elements);
    Batch v(a.second, chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      move(f, g[k] * factor, m[k], v[k]);
      const double direction =
          m[k] * f.correction / (sqrtf(v[k]) * f.root_correction + f.epsilon) + chunk.decay * p[k];
      if (i + k * int(blockDim.x) >= chunk.elements) continue;
      of_parameters += double(p[k]) * double(p[k]);
      of_direction += direction * direction;
    }
    m.store(a.first, chunk.state_at, i, chunk.elements);
    v.store(a.second, chunk.state_at, i, chunk.elements);
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
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(a.parameters, chunk.at(a.part), i, chunk.elements);
    const Batch m(a.first, chunk.state_at, i, chunk.elements);
    const Batch v(a.second, chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float denominator = sqrtf(v[k]) * f.root_correction + f.epsilon;
      p[k] -= rate * (m[k] * f.correction / denominator + chunk.decay * p[k]);
    }
    p.store(a.parameters, chunk.at(a.part), i, chunk.elements);
    store_cast(a, chunk, i, p);
  });
}

}  // namespace

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
    arenas.parameters = {in[0], DType::f32};  // only read
    arenas.gradients = {in[1], DType::f32};
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
    arenas.first = {in[1], DType::f32};  // only read
    arenas.second = {in[2], DType::f32};
    arenas.norms = input_at<float>(in, 3);
    arenas.scalars = input_at<float>(in, 4);
    if (update.casts) arenas.cast = out[1];
    update.start(lamb, rule, arenas);
  });
}

}  // namespace plimsoll
