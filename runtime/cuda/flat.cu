// Norms, checks, scaling and casts run over the part of an arena that a rank owns, or over a
// tensor. A block works on a chunk. Sums of chunks are added up in their order, in float64.
#include <array>
#include <limits>
#include <memory>

#include "runtime/cuda/flat_chunks.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"

namespace plimsoll {

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr double kLargestSum = std::numeric_limits<double>::max();

struct Itself {
  __device__ double operator()(float x) const { return x; }
};
struct Squared {
  __device__ double operator()(float x) const { return double(x) * double(x); }
};

/// partial[chunk] = norm weight * sum of f(x). What is not clipped does not count, unless
/// `everything`, but shows when it is not finite.
template <class Function>
__global__ void sum_chunks(const FlatChunk* chunks, bool part, bool everything, Stored x,
                           double* partial) {
  const FlatChunk chunk = chunks[blockIdx.x];
  double sum = 0;
  for_each_batch(chunk.elements, [&](int first) {
    const Batch values(x, chunk.at(part), first, chunk.elements);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sum += Function()(values[k]);
  });
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const bool finite = fabs(sum) <= kLargestSum;
  partial[blockIdx.x] = everything || chunk.clip || !finite ? chunk.norm_weight * sum : 0;
}

constexpr int kMostSums = 32;
struct Several {
  const float* at[kMostSums];
  std::int64_t count[kMostSums];
};

/// partial[b] = sum of the b-th array.
__global__ void sum_several(Several arrays, double* partial) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < arrays.count[blockIdx.x]; i += blockDim.x)
    sum += double(arrays.at[blockIdx.x][i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// sum = weight * total of partial, in one block.
__global__ void add_chunks(unsigned count, double weight, const double* partial, float* sum) {
  double total = 0;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *sum = float(weight * total);
}

__global__ void or_chunks(unsigned count, const std::int32_t* found_in, std::int32_t* found) {
  float any = 0;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) any = found_in[i] != 0 ? 1 : any;
  any = block_max(any);
  if (threadIdx.x == 0) *found = any > 0 ? 1 : 0;
}

/// y = f(x, factor) over a chunk, in a type of the same size as Word.
template <class Word, class Function>
__global__ void map_chunks(const FlatChunk* chunks, bool part, Function f, const Word* x, Word* y) {
  const FlatChunk chunk = chunks[blockIdx.x];
  const Word* from = x + chunk.at(part);
  Word* to = y + chunk.at(part);
  const auto factor = f.factor();
  for_each_batch(chunk.elements, [&](int first) {
    Word values[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      if (i < chunk.elements) values[k] = from[i];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      if (i < chunk.elements) to[i] = f(values[k], factor);
    }
  });
}

struct MakeSquare {
  __device__ float factor() const { return 0; }
  __device__ float operator()(float x, float) const { return x * x; }
};
struct MultiplyBy {
  const float* by;
  __device__ float factor() const { return *by; }
  __device__ float operator()(float x, float factor) const { return x * factor; }
};
template <class Word>
struct Copy {
  __device__ Word factor() const { return 0; }
  __device__ Word operator()(Word x, Word) const { return x; }
};

/// y = x / loss scale; found[chunk] = 1 where an x is not finite.
__global__ void unscale_chunks(const FlatChunk* chunks, bool part, const float* scalars,
                               const float* x, float* y, std::int32_t* found) {
  const FlatChunk chunk = chunks[blockIdx.x];
  const float unscale = 1 / scalars[int(Scalar::loss_scale)];
  float any = 0;
  for_each_batch(chunk.elements, [&](int first) {
    float values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      values[k] = i < chunk.elements ? x[chunk.at(part) + i] : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      if (!(fabsf(values[k]) <= kLargest)) any = 1;
      if (i < chunk.elements) y[chunk.at(part) + i] = values[k] * unscale;
    }
  });
  any = block_max(any);
  if (threadIdx.x == 0) found[blockIdx.x] = any > 0 ? 1 : 0;
}

/// Masters of a chunk, written as parameters.
template <class T>
__global__ void cast_chunks(const FlatChunk* chunks, bool part, const float* masters,
                            T* parameters) {
  const FlatChunk chunk = chunks[blockIdx.x];
  for_each_batch(chunk.elements, [&](int first) {
    float values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      values[k] = i < chunk.elements ? masters[chunk.state_at + i] : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      if (i < chunk.elements) parameters[chunk.at(part) + i] = from_float<T>(values[k]);
    }
  });
}

/// The chunks of an op's first operand, which its kernel keeps.
struct Flat {
  std::shared_ptr<const FlatChunks> chunks;
  bool part;

  Flat(const CudaRequest& request, const std::vector<OwnedRange>& ranges)
      : chunks(std::make_shared<const FlatChunks>(upload_chunks(chunks_of(ranges)))),
        part(keeps_part(request.input(0), request.context)) {}
  Flat(const CudaRequest& request, std::optional<std::int64_t> group)
      : Flat(request, ranges_of(request.input(0), request.context, group)) {}
};

std::vector<OwnedRange> counted(std::vector<OwnedRange> ranges) {
  std::erase_if(ranges, [](const OwnedRange& range) { return range.norm_weight == 0; });
  return ranges;
}

/// y = f(x), where `make` makes f from the inputs.
template <class Word, class Make>
CudaKernelPointer prepare_map(const CudaRequest& request, Make make) {
  const CudaDevice& device = request.device;
  const Flat flat(request, request.params<FlatParams>().group);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    if (flat.chunks->count == 0) return;
    launch(device.stream, flat.chunks->count, kThreads, 0, map_chunks<Word, decltype(make(in))>,
           flat.chunks->data(), flat.part, make(in), input_at<Word>(in, 0),
           output_at<Word>(out, 0));
  });
}

}  // namespace

FlatChunks upload_chunks(const std::vector<FlatChunk>& chunks) {
  FlatChunks uploaded;
  uploaded.memory = upload_values(chunks);
  uploaded.count = unsigned(chunks.size());
  return uploaded;
}

std::vector<FlatChunk> chunks_of(const std::vector<OwnedRange>& ranges, double weight_decay) {
  std::vector<FlatChunk> chunks;
  for (const OwnedRange& range : ranges) {
    for (std::int64_t at = 0; at < range.elements; at += kChunkElements) {
      FlatChunk chunk{};
      chunk.arena_at = range.arena_offset + at;
      chunk.state_at = range.state_offset + at;
      chunk.elements = std::int32_t(std::min(kChunkElements, range.elements - at));
      chunk.segment = std::int32_t(range.segment);
      chunk.norm_weight = range.norm_weight;
      chunk.rate = float(range.rate);
      chunk.decay = float(weight_decay_of(range, weight_decay));
      chunk.clip = range.clip;
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

CudaKernelPointer prepare_squared_norm(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const FlatParams params = request.params<FlatParams>();
  const Flat flat(request, counted(ranges_of(request.input(0), request.context, params.group)));
  const DType type = request.input(0).dtype;
  DeviceScratch scratch(request);
  double* partial = scratch.take_values<double>(flat.chunks->count);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const unsigned count = flat.chunks->count;
    if (count > 0) {
      launch(device.stream, count, kThreads, 0, sum_chunks<Squared>, flat.chunks->data(), flat.part,
             false, Stored{in[0], type}, partial);
    }
    launch(device.stream, 1, 1024, 0, add_chunks, count, params.weight, partial,
           output_at<float>(out, 0));
  });
}

CudaKernelPointer prepare_reduce_sum(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const FlatParams params = request.params<FlatParams>();
  std::vector<OwnedRange> ranges(1);  // without a group a plain list
  ranges[0].elements = request.input_elements(0);
  if (params.group) {
    ranges = counted(ranges_of(request.input(0), request.context, params.group));
  }
  Flat flat(request, ranges);
  flat.part = flat.part && params.group.has_value();
  std::vector<std::int64_t> more;  // elements of the inputs after the first
  for (std::size_t i = 1; i < request.op.inputs.size(); ++i)
    more.push_back(request.input_elements(i));
  DeviceScratch scratch(request);
  const auto all = unsigned(flat.chunks->count + more.size());
  double* partial = scratch.take_values<double>(all);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const unsigned count = flat.chunks->count;
    if (count > 0) {
      launch(device.stream, count, kThreads, 0, sum_chunks<Itself>, flat.chunks->data(), flat.part,
             true, Stored{in[0], DType::f32}, partial);
    }
    for (std::size_t first = 0; first < more.size(); first += kMostSums) {
      const std::size_t arrays = std::min<std::size_t>(kMostSums, more.size() - first);
      Several several = {};
      for (std::size_t i = 0; i < arrays; ++i) {
        several.at[i] = input_at<float>(in, first + i + 1);
        several.count[i] = more[first + i];
      }
      launch(device.stream, unsigned(arrays), kThreads, 0, sum_several, several,
             partial + count + first);
    }
    launch(device.stream, 1, 1024, 0, add_chunks, all, params.weight, partial,
           output_at<float>(out, 0));
  });
}

CudaKernelPointer prepare_check_finite(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Flat flat(request, std::optional<std::int64_t>());
  DeviceScratch scratch(request);
  auto* found = scratch.take_values<std::int32_t>(flat.chunks->count);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const unsigned count = flat.chunks->count;
    if (count > 0) {
      launch(device.stream, count, kThreads, 0, unscale_chunks, flat.chunks->data(), flat.part,
             input_at<float>(in, 1), input_at<float>(in, 0), output_at<float>(out, 0), found);
    }
    launch(device.stream, 1, 1024, 0, or_chunks, count, found, output_at<std::int32_t>(out, 1));
  });
}

CudaKernelPointer prepare_square(const CudaRequest& request) {
  return prepare_map<float>(request, [](DeviceAddresses) { return MakeSquare{}; });
}

CudaKernelPointer prepare_scale(const CudaRequest& request) {
  return prepare_map<float>(request,
                            [](DeviceAddresses in) { return MultiplyBy{input_at<float>(in, 1)}; });
}

CudaKernelPointer prepare_coalesce(const CudaRequest& request) {
  if (bytes_of(request.input(0).dtype).count() == 2) {
    return prepare_map<std::uint16_t>(request,
                                      [](DeviceAddresses) { return Copy<std::uint16_t>{}; });
  }
  return prepare_map<std::uint32_t>(request, [](DeviceAddresses) { return Copy<std::uint32_t>{}; });
}

CudaKernelPointer prepare_cast_parameters(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Tensor& masters = request.input(0);
  const Flat flat(request, updated_ranges(masters, masters, request.context, AdamParams()));
  const DType type = request.output(0).dtype;
  const bool part = keeps_part(request.output(0), request.context);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    if (flat.chunks->count == 0) return;
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, flat.chunks->count, kThreads, 0, cast_chunks<T>, flat.chunks->data(),
             part, input_at<float>(in, 0), output_at<T>(out, 0));
    });
  });
}

}  // namespace plimsoll
