// Keys and values of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) are taken apart
// from the product that gives both, and the rope key that all heads share is put before each key.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// Columns of one head: of the rope key, of the rest of a key, and of a value.
struct LatentHeads {
  std::int64_t rows, heads, rope, nope, value;

  LatentHeads(const Tensor& k, const Tensor& v, const Tensor& rope_key)
      : rows(k.shape[0]),
        heads(k.shape[2]),
        rope(rope_key.shape[3]),
        nope(k.shape[3] - rope_key.shape[3]),
        value(v.shape[3]) {}
  __host__ __device__ std::int64_t columns() const { return rope + nope + value; }
};

/// A thread copies packs of one head's key and value, side by side: `columns` of them.
template <int kCount, class T>
__global__ void share_rope_key(LatentHeads s, const T* kv, const T* rope, T* k, T* v) {
  const std::int64_t packs = s.columns() / kCount, count = s.rows * s.heads * packs;
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const std::int64_t head = i / packs, column = i % packs * kCount;
    float values[kCount];
    if (column < s.rope) {
      load(rope + head / s.heads * s.rope + column, values);
    } else {
      load(kv + head * (s.nope + s.value) + column - s.rope, values);
    }
    if (column < s.rope + s.nope) {
      store(k + head * (s.rope + s.nope) + column, values);
    } else {
      store(v + head * s.value + column - s.rope - s.nope, values);
    }
  }
}

/// A thread copies packs of kv's gradient, or sums packs of the rope key's over the heads, in
/// order.
template <int kCount, class T>
__global__ void share_rope_key_backward(LatentHeads s, const T* dk, const T* dv, T* dkv, T* drope) {
  const std::int64_t key = s.rope + s.nope, joined = (s.nope + s.value) / kCount;
  const std::int64_t shared = s.rope / kCount, of_row = shared + s.heads * joined;
  for (std::int64_t i = global_thread(); i < s.rows * of_row; i += global_threads()) {
    const std::int64_t row = i / of_row, within = i % of_row;
    float values[kCount];
    if (within < shared) {
      float sum[kCount] = {};
      for (std::int64_t head = 0; head < s.heads; ++head) {
        load(dk + (row * s.heads + head) * key + within * kCount, values);
#pragma unroll
        for (int j = 0; j < kCount; ++j) sum[j] += values[j];
      }
      store(drope + row * s.rope + within * kCount, sum);
      continue;
    }
    const std::int64_t head = row * s.heads + (within - shared) / joined;
    const std::int64_t column = (within - shared) % joined * kCount;
    if (column < s.nope) {
      load(dk + head * key + s.rope + column, values);
    } else {
      load(dv + head * s.value + column - s.nope, values);
    }
    store(dkv + head * (s.nope + s.value) + column, values);
  }
}

/// Whether every head's parts can be read in packs.
template <class T>
bool wide(const LatentHeads& s, std::initializer_list<const void*> addresses) {
  const std::int64_t pack = kPack<T>;
  return s.rope % pack == 0 && s.nope % pack == 0 && s.value % pack == 0 && aligned(addresses);
}

}  // namespace

CudaKernelPointer prepare_share_rope_key(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const LatentHeads s(request.output(0), request.output(1), request.input(1));
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T *kv = input_at<T>(in, 0), *rope = input_at<T>(in, 1);
    T *k = output_at<T>(out, 0), *v = output_at<T>(out, 1);
    const bool packs = wide<T>(s, {kv, rope, k, v});
    const std::int64_t count = s.rows * s.heads * s.columns() / (packs ? kPack<T> : 1);
    launch(device.stream, blocks_for(device, count), kThreads, 0,
           packs ? share_rope_key<kPack<T>, T> : share_rope_key<1, T>, s, kv, rope, k, v);
  });
}

CudaKernelPointer prepare_share_rope_key_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const LatentHeads s(request.input(0), request.input(1), request.output(1));
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T *dk = input_at<T>(in, 0), *dv = input_at<T>(in, 1);
    T *dkv = output_at<T>(out, 0), *drope = output_at<T>(out, 1);
    const bool packs = wide<T>(s, {dk, dv, dkv, drope});
    const std::int64_t count = s.rows * s.heads * s.columns() / (packs ? kPack<T> : 1);
    launch(device.stream, blocks_for(device, count), kThreads, 0,
           packs ? share_rope_key_backward<kPack<T>, T> : share_rope_key_backward<1, T>, s, dk, dv,
           dkv, drope);
  });
}

}  // namespace plimsoll
