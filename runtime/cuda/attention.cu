// Flash attention runs forward on tensor cores; this file also prepares forward and backward.
#include "graph/op_table.h"
#include "runtime/attention_layout.h"
#include "runtime/cuda/attention.h"
#include "runtime/cuda/attention_tiles.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

constexpr int kQueries = 128, kKeys = 64;  // rows of the tiles

template <int kDepth, int kValue>
constexpr int kForwardElements = (kQueries + 2 * kKeys) * kDepth + 2 * kKeys* kValue;

/// A block has 128 queries of one head, and a warp 32 of them. It walks over the keys that they
/// see. Tiles of keys and values are copied while the tiles before are multiplied.
template <class T, int kDepth, int kValue>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward(AttentionShape s, const T* q, const T* k, const T* v, T* y,
                      float* log_sum_exp) {
  using Queries = Tile<T, kQueries, kDepth>;
  using Keys = Tile<T, kKeys, kDepth>;
  using Values = Tile<T, kKeys, kValue>;
  constexpr int kTiles = 2, kSteps = kDepth / 16;
  T* queries = dynamic_shared<T>();
  const auto keys = [&](int i) {
    return queries + Queries::kElements + i % 2 * (Keys::kElements + Values::kElements);
  };
  const auto values = [&](int i) { return keys(i) + Keys::kElements; };

  // The blocks with the most keys first.
  const int first = int(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int head = int(blockIdx.y), key_head = head / s.groups, batch = int(blockIdx.z);
  const int lane = int(threadIdx.x) % 32, own = int(threadIdx.x) / 32 * 32;  // row of the warp
  const int rows = s.query_count() - first, last_row = rows < kQueries ? rows - 1 : kQueries - 1;
  const int end = s.key_end(batch, first + last_row);
  const int rounds = (end + kKeys - 1) / kKeys, skipped = s.first_key(batch, first) / kKeys;
  const auto start = [&](int i) {
    Keys::start(keys(i), k, s.key_count() - i * kKeys, s.depth,
                [&](int row) { return s.key_at(batch, i * kKeys + row, key_head); });
    Values::start(values(i), v, s.key_count() - i * kKeys, s.value_depth,
                  [&](int row) { return s.value_at(batch, i * kKeys + row, key_head); });
    commit_copies();
  };
  // The keys that each row of the thread sees: a range, which may be empty.
  int from_key[kTiles][2], to_key[kTiles][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own + 16 * m + lane / 4 + 8 * half;
      from_key[m][half] = s.first_key(batch, first + (row < rows ? row : last_row));
      to_key[m][half] = s.key_end(batch, first + (row < rows ? row : last_row));
    }
  }

  Queries::start(queries, q, rows, s.depth,
                 [&](int row) { return s.query_at(batch, first + row, head); });
  start(skipped);
  float out[kTiles][kValue / 8][4] = {};
  float most[kTiles][2], sum[kTiles][2] = {};
#pragma unroll
  for (int m = 0; m < kTiles; ++m) most[m][0] = most[m][1] = kMinusInfinity;
  const float scale = s.scale * kLog2E;

  for (int i = skipped; i < rounds; ++i) {
    wait_for_copies();
    __syncthreads();  // tile i is there, and nobody reads tile i - 1 any more
    if (i + 1 < rounds) start(i + 1);

    float scores[kTiles][kKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) Queries::left(a[m], queries, own + 16 * m, step);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        std::uint32_t b[4];
        Keys::right_transposed(b, keys(i), 16 * n, step);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_add<T>(scores[m][2 * n], a[m], b[0], b[1]);
          multiply_add<T>(scores[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }

    const int column = i * kKeys;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const bool all = from_key[m][1] <= column && column + kKeys <= to_key[m][0];
      if (all) continue;  // later rows see from and up to later keys
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int at = column + 8 * n + lane % 4 * 2 + e % 2;
          if (at < from_key[m][e / 2] || at >= to_key[m][e / 2]) scores[m][n][e] = kMinusInfinity;
        }
      }
    }

    // The running maximum and sum of each row; what was summed so far shrinks with it.
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float now = most[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          now = fmaxf(now, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        now = quad_max(now);
        // With a window a row may see nothing of the first tiles.
        const float from = now == kMinusInfinity ? 0 : now;
        const float shrink = fast_exp2((most[m][half] - from) * scale);
        most[m][half] = now;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][n][e] = fast_exp2((scores[m][n][e] - from) * scale);
            total += scores[m][n][e];
          }
        }
        sum[m][half] = sum[m][half] * shrink + total;
#pragma unroll
        for (int n = 0; n < kValue / 8; ++n) {
          out[m][n][2 * half] *= shrink;
          out[m][n][2 * half + 1] *= shrink;
        }
      }
    }

#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        as_left<T>(a[m], scores[m][2 * step], scores[m][2 * step + 1]);
#pragma unroll
      for (int n = 0; n < kValue / 16; ++n) {
        std::uint32_t b[4];
        Values::right(b, values(i), 16 * step, n);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_add<T>(out[m][2 * n], a[m], b[0], b[1]);
          multiply_add<T>(out[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  log_sum_exp += (std::int64_t(batch) * s.heads + head) * s.query_count() + first;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const float low = quad_sum(sum[m][0]), high = quad_sum(sum[m][1]);
    // A row that sees no key of this part has the result 0, and minus infinity.
    const float of_low = low > 0 ? 1 / low : 0, of_high = high > 0 ? 1 / high : 0;
#pragma unroll
    for (int n = 0; n < kValue / 8; ++n) {
      store_result(
          y, [&](int row) { return s.y_at(batch, first + row, head); }, rows, s.value_depth,
          own + 16 * m, 8 * n, out[m][n], of_low, of_high);
    }
    const int row = own + 16 * m + lane / 4;
    if (lane % 4 != 0) continue;
    if (row < rows) log_sum_exp[row] = low > 0 ? most[m][0] * s.scale + logf(low) : kMinusInfinity;
    if (row + 8 < rows)
      log_sum_exp[row + 8] = high > 0 ? most[m][1] * s.scale + logf(high) : kMinusInfinity;
  }
}

template <class T, class Function>
void with_kernel_of(const AttentionShape& s, Function f) {
  if (s.depth > 128) {
    f(T{}, attention_forward<T, 192, 128>, kForwardElements<192, 128>);
  } else if (s.depth > 64) {
    f(T{}, attention_forward<T, 128, 128>, kForwardElements<128, 128>);
  } else {
    f(T{}, attention_forward<T, 64, 64>, kForwardElements<64, 64>);
  }
}

template <class Function>
void with_fast_kernel(DType type, const AttentionShape& s, Function f) {
  type == DType::bf16 ? with_kernel_of<bf16>(s, f) : with_kernel_of<f16>(s, f);
}

AttentionShape shape_of(const CudaRequest& request, const AttentionLayout& at) {
  const auto& params = request.params<AttentionParams>();
  AttentionShape s = {};
  s.queries = at.queries;
  s.keys = at.keys;
  s.batch = int(at.batch);
  s.heads = int(at.heads);
  s.depth = int(at.depth);
  s.value_depth = int(at.value_depth);
  s.groups = int(at.groups);
  s.query_stride = at.q.stride;
  s.key_stride = at.k.stride;
  s.value_stride = at.v.stride;
  s.y_stride = at.heads * at.value_depth;
  s.key_head_stride = int(at.k.head);
  s.value_head_stride = int(at.v.head);
  s.scale = float(params.scale);
  s.causal = params.causal;
  s.window = int(params.window);
  s.soft_cap = float(params.soft_cap);
  s.chunks = params.chunks;
  s.alibi_heads = int(params.alibi_heads);
  s.alibi_scale = float(params.alibi_scale);
  s.first_head = int(at.first_head);
  s.examples = request.device.examples;
  return s;
}

/// Where queries, keys and values start in operands, of which the first is input `first` of the op.
struct Starts {
  std::byte *q, *k, *v;
  Starts(DeviceAddresses operands, const AttentionLayout& at, std::size_t first,
         std::int64_t element) {
    const auto start = [&](const HeadsPlace& place) {
      return operands[place.operand - first] + place.offset * element;
    };
    q = start(at.q);
    k = start(at.k);
    v = start(at.v);
  }
};

}  // namespace

bool attention_is_fast(DType type, const AttentionShape& s) {
  const bool narrow = s.depth <= 128 && s.value_depth == s.depth;
  const bool latent = s.depth > 128 && s.depth <= 192 && s.value_depth <= 128;
  return (type == DType::bf16 || type == DType::f16) && s.depth % 8 == 0 &&
         s.value_depth % 8 == 0 && (narrow || latent) && s.soft_cap == 0 && s.alibi_heads == 0;
}

void prepare_fast_attention(DType type, const AttentionShape& s) {
  with_fast_kernel(type, s, [](auto, auto kernel, int elements) {
    allow_shared(kernel, std::size_t(elements) * 2);
  });
}

void fast_attention(const CudaDevice& device, DType type, const AttentionShape& s,
                    const AttentionData& data) {
  with_fast_kernel(type, s, [&](auto zero, auto kernel, int elements) {
    using T = decltype(zero);
    const dim3 grid(unsigned((s.query_count() + kQueries - 1) / kQueries), unsigned(s.heads),
                    unsigned(s.batch));
    launch(device.stream, grid, kAttentionThreads, std::size_t(elements) * 2, kernel, s,
           static_cast<const T*>(data.q), static_cast<const T*>(data.k),
           static_cast<const T*>(data.v), static_cast<T*>(data.y), data.log_sum_exp);
  });
}

CudaKernelPointer prepare_flash_attention(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const AttentionLayout at =
      attention_layout(request, request.params<AttentionParams>(), 0, request.op.inputs.size());
  const AttentionShape s = shape_of(request, at);
  const DType type = request.input(0).dtype;
  const std::int64_t element = bytes_of(type).count();
  const bool fast = attention_is_fast(type, s);
  if (fast) prepare_fast_attention(type, s);
  prepare_plain_attention(type);  // also for addresses that tensor cores cannot read
  const auto run = [=, &device](DeviceAddresses in, DeviceAddresses out) {
    const Starts from(in, at, 0, element);
    AttentionData data = {};
    data.q = from.q;
    data.k = from.k;
    data.v = from.v;
    data.y = out[0];
    data.log_sum_exp = output_at<float>(out, 1);
    if (fast && aligned({data.q, data.k, data.v, data.y})) {
      fast_attention(device, type, s, data);
    } else {
      plain_attention(device, type, s, data);
    }
  };
  return make_cuda_kernel(run, flops(request.op, request.tensors));
}

CudaKernelPointer prepare_flash_attention_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::size_t operands = request.op.outputs.size();
  const AttentionLayout at =
      attention_layout(request, request.params<AttentionParams>(), 1, operands);
  const AttentionShape s = shape_of(request, at);
  const DType type = request.input(0).dtype;
  const std::int64_t element = bytes_of(type).count();
  const bool fast = attention_is_fast(type, s);
  if (fast) prepare_fast_attention_backward(type, s);
  prepare_plain_attention_backward(type);
  DeviceScratch scratch(request);
  float* delta = scratch.take_values<float>(std::int64_t(s.batch) * s.heads * s.query_count());
  const auto run = [=, &device](DeviceAddresses in, DeviceAddresses out) {
    const Starts from(in.subspan(1, operands), at, 1, element), to(out, at, 1, element);
    const std::size_t y = 1 + operands;
    AttentionData data = {};
    data.q = from.q;
    data.k = from.k;
    data.v = from.v;
    data.y = in[y];
    data.log_sum_exp = const_cast<float*>(input_at<float>(in, y + 1));  // only read
    data.dy = in[0];
    data.delta = delta;
    data.dq = to.q;
    data.dk = to.k;
    data.dv = to.v;
    attention_delta(device, type, s, data);
    if (fast && aligned({data.q, data.k, data.v, data.dy, data.dq, data.dk, data.dv})) {
      fast_attention_backward(device, type, s, data);
    } else {
      plain_attention_backward(device, type, s, data);
    }
  };
  return make_cuda_kernel(run, flops(request.op, request.tensors));
}

}  // namespace plimsoll
