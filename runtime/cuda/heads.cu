// Copies between [n,parts,a,d] and [b,a,s,d], and rotary position embeddings.
#include <memory>

#include "runtime/batch_place.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"
#include "runtime/rotary_angles.h"

namespace plimsoll {

namespace {

/// Sizes of heads [b,a,s,d], or of grouped ones [b,kv,g*s,d], the same memory with a = kv*g.
struct Heads {
  std::int64_t batch, heads, sequence, row_bytes;
  Heads(const Tensor& tensor, std::int64_t sequence)
      : batch(tensor.shape[0]),
        heads(tensor.shape[1] * tensor.shape[2] / sequence),
        sequence(sequence),
        row_bytes(tensor.shape[3] * bytes_of(tensor.dtype).count()) {}
};

constexpr std::size_t kMostParts = 3;
struct Parts {
  std::byte* at[kMostParts];
};

/// Tokens [b,s,parts,a,d] to or from `parts` tensors [b,a,s,d]; in words of which a row of a head
/// has `words`.
template <class Word, bool kToHeads>
__global__ void exchange_heads(std::int64_t count, std::int64_t words, std::int64_t heads,
                               std::int64_t parts, std::int64_t sequence, Word* tokens,
                               Parts in_heads) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    // The index in tokens, taken apart.
    const std::int64_t word = i % words, row = i / words;
    const std::int64_t head = row % heads, rest = row / heads;
    const std::int64_t part = rest % parts, token = rest / parts;
    const std::int64_t position = token % sequence, batch = token / sequence;
    std::byte* other = part == 0 ? in_heads.at[0] : part == 1 ? in_heads.at[1] : in_heads.at[2];
    Word& there = reinterpret_cast<Word*>(
        other)[((batch * heads + head) * sequence + position) * words + word];
    if (kToHeads) {
      there = tokens[i];
    } else {
      tokens[i] = there;
    }
  }
}

template <bool kToHeads>
void launch_exchange(const CudaDevice& device, const Heads& shape, std::byte* tokens,
                     std::span<std::byte* const> heads) {
  Parts parts = {};
  std::copy(heads.begin(), heads.end(), parts.at);
  bool wide = aligned({tokens}, shape.row_bytes);
  for (const std::byte* part : heads) wide = wide && aligned({part});
  const auto start = [&](auto word) {
    using Word = decltype(word);
    const std::int64_t words = shape.row_bytes / std::int64_t(sizeof(Word));
    const std::int64_t rows = shape.batch * shape.heads * shape.sequence;
    const std::int64_t count = rows * std::int64_t(heads.size()) * words;
    launch(device.stream, blocks_for(device, count), kThreads, 0, exchange_heads<Word, kToHeads>,
           count, words, shape.heads, std::int64_t(heads.size()), shape.sequence,
           reinterpret_cast<Word*>(tokens), parts);
  };
  with_word(wide, start);
}

/// RotaryAngles in the GPU's memory: made when the kernel is prepared.
struct DeviceAngles {
  DeviceMemory cosine, sine, growth;

  explicit DeviceAngles(const RotaryAngles& angles)
      : cosine(upload_values(angles.cosine)),
        sine(upload_values(angles.sine)),
        growth(upload_values(angles.growth)) {}
};

struct RotaryShape {
  std::int64_t rows, width;  ///< of x: tokens, elements of each
  std::int64_t turned;       ///< leading elements of a row whose heads are turned
  std::int64_t depth;        ///< of a head
  std::int64_t half;         ///< of the columns of a head that are turned
  std::int64_t sequence;
  std::int64_t grown;     ///< leading elements of a row, which are multiplied by the token's growth
  SequencePart part;      ///< of the positions of a rank's tokens
  ExampleTable examples;  ///< positions count from the first token of one
  /// Returns the place of a token's angles and growth in their tables.
  __device__ std::int64_t place(std::int64_t row) const {
    if (!examples.reads()) return row % sequence;
    const std::int64_t position = examples.position(part, row / sequence, row % sequence);
    return position - examples.begin(row / sequence, position);
  }
};

/// Elements i and i + half of a head are turned by position * base^(-i/half) (Su et al. 2021, arXiv
/// 2104.09864; the pairing of GPT-NeoX). Blocks walk over rows; a thread rotates pairs of packs.
template <int kCount, class T>
__global__ void turn(RotaryShape shape, const float* cosine, const float* sine, const float* growth,
                     const T* x, T* y) {
  const std::int64_t packs = shape.half / kCount, pairs = shape.turned / shape.depth * packs;
  const std::int64_t kept = shape.depth - 2 * shape.half;
  for (std::int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const std::int64_t place = shape.place(row), angles = place * shape.half;
    const T* from = x + row * shape.width;
    T* to = y + row * shape.width;
    const float growing = shape.grown > 0 ? growth[place] : 1;
    const auto factor_at = [&](std::int64_t at) { return at < shape.grown ? growing : 1; };
    for (std::int64_t i = threadIdx.x; i < pairs; i += blockDim.x) {
      const std::int64_t head = i / packs, within = i % packs * kCount;
      const std::int64_t at = head * shape.depth + within;
      float first[kCount], second[kCount], c[kCount], s[kCount];
      load(from + at, first);
      load(from + at + shape.half, second);
      load(cosine + angles + within, c);
      load(sine + angles + within, s);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const float a = first[j], b = second[j], factor = factor_at(at);
        first[j] = (a * c[j] - b * s[j]) * factor;
        second[j] = (b * c[j] + a * s[j]) * factor;
      }
      store(to + at, first);
      store(to + at + shape.half, second);
    }
    if (from == to && shape.grown == 0) continue;
    const auto keep = [&](std::int64_t at) {
      to[at] = from_float<T>(to_float(from[at]) * factor_at(at));
    };
    for (std::int64_t i = threadIdx.x; i < shape.turned / shape.depth * kept; i += blockDim.x)
      keep(i / kept * shape.depth + 2 * shape.half + i % kept);
    for (std::int64_t i = shape.turned + threadIdx.x; i < shape.width; i += blockDim.x) keep(i);
  }
}

}  // namespace

CudaKernelPointer prepare_split_heads(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Heads shape(request.output(0), request.params<AttentionParams>().sequence);
  return make_cuda_kernel([shape, &device](DeviceAddresses in, DeviceAddresses out) {
    launch_exchange<true>(device, shape, in[0], out);
  });
}

CudaKernelPointer prepare_split_heads_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Heads shape(request.input(0), request.params<AttentionParams>().sequence);
  return make_cuda_kernel([shape, &device](DeviceAddresses in, DeviceAddresses out) {
    launch_exchange<false>(device, shape, out[0], in);
  });
}

CudaKernelPointer prepare_merge_heads(const CudaRequest& request) {
  return prepare_split_heads_backward(request);  // of one part
}

CudaKernelPointer prepare_merge_heads_backward(const CudaRequest& request) {
  return prepare_split_heads(request);
}

namespace {

CudaKernelPointer prepare_turns(const CudaRequest& request, double direction) {
  const CudaDevice& device = request.device;
  const auto& params = request.params<RotaryParams>();
  const Shape& x = request.input(0).shape;  // [n, parts, heads, d]
  const std::int64_t of_head = params.width == 0 ? x[3] : params.width;
  const std::int64_t grown = params.growth.span > 0 ? x[2] * x[3] : 0;
  const SequencePart part = own_tokens(request.context, params.sequence);
  const SequencePart whole{.tokens = part.tokens * part.ranks};
  const RotaryShape shape{x[0],
                          x[1] * x[2] * x[3],
                          params.rotated * x[2] * x[3],
                          x[3],
                          of_head / 2,
                          params.sequence,
                          grown,
                          part,
                          device.examples};
  const auto angles = std::make_shared<const DeviceAngles>(
      rotary_angles(params, shape.examples.reads() ? whole : part, of_head, direction));
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* from = input_at<T>(in, 0);
    T* to = output_at<T>(out, 0);
    const bool wide = aligned({from, to}, shape.half * std::int64_t(sizeof(T))) &&
                      shape.depth * std::int64_t(sizeof(T)) % 16 == 0;
    const std::int64_t pairs = shape.turned / shape.depth * shape.half / (wide ? kPack<T> : 1);
    const std::int64_t work = shape.turned > 0 ? pairs : shape.grown;
    const int threads = int(std::clamp<std::int64_t>((work + 31) / 32 * 32, 32, kThreads));
    launch(device.stream, blocks_for(device, shape.rows * threads, threads), threads, 0,
           wide ? turn<kPack<T>, T> : turn<1, T>, shape, angles->cosine.as<const float>(),
           angles->sine.as<const float>(), angles->growth.as<const float>(), from, to);
  });
}

}  // namespace

CudaKernelPointer prepare_rotary(const CudaRequest& request) { return prepare_turns(request, 1); }

CudaKernelPointer prepare_rotary_backward(const CudaRequest& request) {
  return prepare_turns(request, -1);
}

}  // namespace plimsoll
