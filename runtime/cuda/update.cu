// The updates: AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization",
// algorithm 2), also with moments in 8 bits, and SGD with momentum (Sutskever et al. 2013, section
// 2, in the form of PyTorch's torch.optim.SGD with dampening 0). One kernel for all segments;
// masters are written as parameters, too, in the same pass. A step where Scalar::found is set
// leaves everything as it is.
#include <array>
#include <map>

#include "models/job/philox.h"
#include "runtime/cuda/philox.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/update.h"
#include "runtime/random_rounding.h"
#include "runtime/state/moment_codes.h"
#include "runtime/state/parts.h"

namespace plimsoll {

namespace {

struct SgdRule {
  double rate;
  float momentum;
  RateSchedule rates;
};

/// Rounds new parameters at random, as runtime/cpu/update.cpp does.
__device__ __forceinline__ float rounded(const Arenas& a, int i, float value) {
  if (a.rounded == nullptr) return value;
  const RoundedChunk& place = a.rounded[blockIdx.x];
  const std::uint64_t key =
      device_philox_key(a.seed, std::int64_t(scalar(a.scalars, Scalar::step)), place.site);
  const std::uint64_t index = place.whole(i), four = index / 4;
  const PhiloxWords drawn =
      device_philox(std::uint32_t(four), std::uint32_t(four >> 32), std::uint32_t(place.layer), 0,
                    std::uint32_t(key), std::uint32_t(key >> 32));
  return rounded_at_random(a.parameters.type, value, drawn.words[index % 4]);
}

__global__ void adamw(const FlatChunk* chunks, AdamRule rule, Arenas a) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return keep(a, chunk);
  const Moments f = block_moments(rule, a.scalars);
  const float factor = gradient_factor(chunk, a);
  const double rate = learning_rate(rule, a.scalars) * double(chunk.rate);
  const auto step_size = float(rate * double(f.correction));
  const auto kept = float(1 - rate * double(chunk.decay));
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(a.parameters, chunk.at(a.part), i, chunk.elements);
    const Batch g(a.gradients, gradient_at(chunk, a), i, chunk.elements);
    Batch m(a.first, chunk.state_at, i, chunk.elements);
    Batch v(a.second, chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      move(f, g[k] * factor, m[k], v[k]);
      p[k] = kept * p[k] - step_size * (m[k] / (sqrtf(v[k]) * f.root_correction + f.epsilon));
      p[k] = rounded(a, i + k * int(blockDim.x), p[k]);
    }
    p.store(a.parameters, chunk.at(a.part), i, chunk.elements);
    m.store(a.first, chunk.state_at, i, chunk.elements);
    v.store(a.second, chunk.state_at, i, chunk.elements);
    store_cast(a, chunk, i, p);
  });
}

/// Codes and scales of both moments, and the values of the codes (runtime/state/moment_codes.h).
struct CodedMoments {
  std::uint8_t* codes[2];
  float* scales;
  std::int64_t blocks;  ///< scales of one moment
  const float* values;  ///< 256 for the first moment, then for the second
};

/// Returns the code of the nearest value, among ascending ones.
__device__ __forceinline__ int nearest_code(const float* values, float x) {
  int below = 0, above = 255;
  while (below < above) {
    const int middle = (below + above) / 2;
    if (x > 0.5f * (values[middle] + values[middle + 1])) {
      below = middle + 1;
    } else {
      above = middle;
    }
  }
  return below;
}

/// A thread has one element of a block of moments, and all threads share its scales.
__global__ void adamw_8bit(const FlatChunk* chunks, AdamRule rule, Arenas a, CodedMoments moments) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return keep(a, chunk);
  __shared__ float values[2][256];
  for (int c = 0; c < 2; ++c) values[c][threadIdx.x] = moments.values[c * 256 + int(threadIdx.x)];
  const Moments f = block_moments(rule, a.scalars);  // waits for the values, too
  const float factor = gradient_factor(chunk, a);
  const double rate = learning_rate(rule, a.scalars) * double(chunk.rate);
  const auto step_size = float(rate * double(f.correction));
  const auto kept = float(1 - rate * double(chunk.decay));
  for (int begin = 0; begin < chunk.elements; begin += int(kMomentBlock)) {
    const int i = begin + int(threadIdx.x);
    const bool own = i < chunk.elements;
    const std::int64_t at = chunk.state_at + i;
    float moment[2] = {};
    for (int c = 0; c < 2; ++c) {
      const float scale =
          moments.scales[c * moments.blocks + (chunk.state_at + begin) / kMomentBlock];
      if (own) moment[c] = values[c][moments.codes[c][at]] * scale;
    }
    const float slope =
        own ? load_any(a.gradients.type, a.gradients.at, gradient_at(chunk, a) + i) * factor : 0;
    move(f, slope, moment[0], moment[1]);
    if (own) {
      const std::int64_t place = chunk.at(a.part) + i;
      const float denominator = sqrtf(moment[1]) * f.root_correction + f.epsilon;
      const float before = load_any(a.parameters.type, a.parameters.at, place);
      const float p = rounded(a, i, kept * before - step_size * (moment[0] / denominator));
      store_any(a.parameters.type, a.parameters.at, place, p);
      if (a.cast != nullptr) store_any(a.cast_type, a.cast, chunk.at(a.cast_part) + i, p);
    }
    for (int c = 0; c < 2; ++c) {
      const float scale = block_max(fabsf(moment[c]));  // behind it all have read the old scales
      const int code = nearest_code(values[c], scale > 0 ? moment[c] / scale : 0);
      const int next = __shfl_xor_sync(kFullWarp, code, 1);
      std::uint8_t* to = moments.codes[c] + at;
      if (i % 2 == 0 && i + 1 < chunk.elements) {  // two at once
        *reinterpret_cast<std::uint16_t*>(to) = std::uint16_t(code | next << 8);
      } else if (i % 2 == 0 && own) {
        *to = std::uint8_t(code);
      }
      if (threadIdx.x == 0)
        moments.scales[c * moments.blocks + (chunk.state_at + begin) / kMomentBlock] = scale;
    }
  }
}

__global__ void sgd(const FlatChunk* chunks, SgdRule rule, Arenas a) {
  const FlatChunk chunk = chunks[blockIdx.x];
  if (scalar(a.scalars, Scalar::found) != 0) return keep(a, chunk);
  const float factor = gradient_factor(chunk, a);
  const auto rate = float(learning_rate(rule, a.scalars) * double(chunk.rate));
  for_each_batch(chunk.elements, [&](int i) {
    Batch p(a.parameters, chunk.at(a.part), i, chunk.elements);
    const Batch g(a.gradients, gradient_at(chunk, a), i, chunk.elements);
    Batch velocity(a.first, chunk.state_at, i, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      velocity[k] = rule.momentum * velocity[k] + (g[k] * factor + chunk.decay * p[k]);
      p[k] -= rate * velocity[k];
    }
    p.store(a.parameters, chunk.at(a.part), i, chunk.elements);
    velocity.store(a.first, chunk.state_at, i, chunk.elements);
    store_cast(a, chunk, i, p);
  });
}

}  // namespace

namespace {

/// The places of chunks of parameters that are rounded at random; else no memory.
std::shared_ptr<const DeviceMemory> rounded_chunks(const CudaRequest& request,
                                                   const std::vector<OwnedRange>& ranges) {
  const auto& params = request.params<AdamParams>();
  if (!params.stochastic || request.input(0).dtype == DType::f32 || ranges.empty())
    return std::make_shared<const DeviceMemory>();
  std::vector<RoundedChunk> places;
  for (const OwnedRange& range : ranges) {
    const Segment& segment = request.context.program->segments[std::size_t(range.segment)];
    const auto whole = [&](std::int64_t index) {
      return global_index(segment.shape, segment.split, request.context.at, index);
    };
    RoundedChunk place{};
    place.together = elements(segment.shape);
    if (segment.split && parts_of(*segment.split) > 1) {
      for (std::int64_t d = 0; d < segment.split->dim; ++d)
        place.together /= segment.shape[std::size_t(d)];
    }
    place.begin = whole(0);
    if (place.together < segment.elements)
      place.skip = whole(place.together) - place.begin - place.together;
    place.site = philox_site(segment.parameter);
    place.layer = segment.layer;
    for (std::int64_t at = 0; at < range.elements; at += kChunkElements) {
      place.local = range.arena_offset - segment.offset + at;
      places.push_back(place);
    }
  }
  return std::make_shared<const DeviceMemory>(upload_values(places));
}

}  // namespace

CudaKernelPointer prepare_adamw(const CudaRequest& request) {
  const auto& params = request.params<AdamParams>();
  const Update update(request, params);
  const AdamRule rule = adam_rule(params, request.context);
  const auto places = rounded_chunks(request, update.ranges);
  const bool coded = request.op.kind == OpKind::adamw_8bit;
  const std::size_t states = coded ? 4 : 3;  // what comes before the cast parameters
  std::vector<float> values;                 // of codes
  for (const bool negative : {true, false})
    values.insert(values.end(), moment_code(negative).begin(), moment_code(negative).end());
  const auto code =
      std::make_shared<const DeviceMemory>(coded ? upload_values(values) : DeviceMemory());
  std::vector<Tensor> state;  // by output
  for (std::size_t i = 0; i < states; ++i) state.push_back(request.output(i));
  const DType gradient_type = request.input(1).dtype;
  const std::int64_t seed = params.seed;
  return make_cuda_kernel([=](DeviceAddresses in, DeviceAddresses out) {
    Arenas arenas = update.arenas;
    const auto stored = [&](std::size_t i) {
      return update.state(in, i == 0 ? 0 : i + 1, out, i, elements(state[i].shape), state[i].dtype);
    };
    arenas.parameters = stored(0);
    arenas.parameters.at =
        update.part_of(arenas.parameters.at, arenas.parameters.type, arenas.part);
    arenas.gradients = {in[1], gradient_type};
    arenas.first = stored(1);
    arenas.second = stored(2);
    arenas.scalars = input_at<float>(in, in.size() - 1);
    arenas.rounded = places->as<const RoundedChunk>();
    arenas.seed = seed;
    if (update.casts) arenas.cast = update.part_of(out[states], arenas.cast_type, arenas.cast_part);
    if (!coded) return update.start(adamw, rule, arenas);
    static_assert(kThreads == kMomentBlock && kChunkElements % kMomentBlock == 0);
    const CodedMoments moments{
        {static_cast<std::uint8_t*>(arenas.first.at), static_cast<std::uint8_t*>(arenas.second.at)},
        static_cast<float*>(stored(3).at) + update.begin / kMomentBlock,
        elements(state[3].shape) / 2,
        code->as<const float>()};
    update.start(adamw_8bit, rule, arenas, moments);
  });
}

CudaKernelPointer prepare_adamw_8bit(const CudaRequest& request) { return prepare_adamw(request); }

CudaKernelPointer prepare_sgd(const CudaRequest& request) {
  const auto& params = request.params<SgdParams>();
  const Update update(request, params);
  const SgdRule rule{params.learning_rate, float(params.momentum), request.context.rates};
  const std::int64_t arena = request.output_elements(0), owned = request.output_elements(1);
  return make_cuda_kernel([=](DeviceAddresses in, DeviceAddresses out) {
    Arenas arenas = update.arenas;
    arenas.parameters = update.state(in, 0, out, 0, arena);
    arenas.gradients = {in[1], DType::f32};
    arenas.first = update.state(in, 2, out, 1, owned);
    arenas.scalars = input_at<float>(in, 3);
    if (update.casts) arenas.cast = out[2];
    update.start(sgd, rule, arenas);
  });
}

namespace {

/// An update by the host's processors, in the order of the stream: the kernel of the cpu backend
/// runs on memory of the host, behind a copy of the step's scalars.
class HostUpdate final : public Kernel {
 public:
  explicit HostUpdate(const CudaRequest& request)
      : stream_(request.device.stream),
        backend_(make_backend("cpu")),
        kernel_(backend_->prepare(request.op, request.tensors, request.context)) {
    void* scalars = nullptr;
    check(cudaHostAlloc(&scalars, kScalarBytes, cudaHostAllocDefault), "memory of the host");
    scalars_ = static_cast<std::byte*>(scalars);
  }
  ~HostUpdate() override { static_cast<void>(cudaFreeHost(scalars_)); }
  HostUpdate(const HostUpdate&) = delete;
  HostUpdate& operator=(const HostUpdate&) = delete;

  void run(DeviceAddresses in, DeviceAddresses out, const RunPosition& position) override {
    check(cudaMemcpyAsync(scalars_, in.back(), kScalarBytes, cudaMemcpyDefault, stream_),
          "a copy of scalars");
    // A captured graph keeps the address of the work.
    Work& work = works_[in[0]];
    work = {kernel_.get(), {in.begin(), in.end()}, {out.begin(), out.end()}, position};
    work.in.back() = scalars_;
    check(cudaLaunchHostFunc(stream_, &HostUpdate::do_work, &work), "an update by the host");
  }

 private:
  struct Work {
    Kernel* kernel = nullptr;
    std::vector<std::byte*> in, out;
    RunPosition position;
  };
  static constexpr std::size_t kScalarBytes = kScalars * sizeof(float);

  static void CUDART_CB do_work(void* data) {
    Work& work = *static_cast<Work*>(data);
    work.kernel->run(work.in, work.out, work.position);
  }

  cudaStream_t stream_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Kernel> kernel_;
  std::byte* scalars_ = nullptr;
  std::map<const std::byte*, Work> works_;  ///< by the address of the parameters
};

}  // namespace

CudaKernelPointer prepare_host_adamw(const CudaRequest& request) {
  return std::make_unique<HostUpdate>(request);
}
CudaKernelPointer prepare_host_sgd(const CudaRequest& request) {
  return std::make_unique<HostUpdate>(request);
}

}  // namespace plimsoll
