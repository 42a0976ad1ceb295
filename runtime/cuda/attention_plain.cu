// Flash attention by f32 multiplications, for f32 and for what tensor cores cannot read: tiles of
// 16 rows in shared memory, a thread per score. No speed is claimed.
#include "runtime/cuda/attention.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

constexpr int kRows = 16, kMostDepth = 256, kPerThread = kMostDepth / kRows;
constexpr int kStride = kMostDepth + 1;  // rows start in different banks
constexpr int kTileFloats = kRows * kStride;
constexpr int kSquare = kRows * (kRows + 1);

/// 16 rows as f32, the i-th from element offset(i); zeros from row `rows` on.
template <class T, class Offset>
__device__ void load_tile(float* tile, const T* from, int rows, int depth, Offset offset) {
  for (int i = int(threadIdx.x); i < kRows * depth; i += int(blockDim.x)) {
    const int row = i / depth, column = i % depth;
    tile[row * kStride + column] = row < rows ? to_float(from[offset(row) + column]) : 0;
  }
}

__device__ float dot(const float* a, const float* b, int depth) {
  float sum = 0;
  for (int i = 0; i < depth; ++i) sum += a[i] * b[i];
  return sum;
}

/// Over the 16 threads of a row.
__device__ float row_sum(float value) {
  for (int distance = 8; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kFullWarp, value, distance);
  return value;
}
__device__ float row_max(float value) {
  for (int distance = 8; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, distance));
  return value;
}

/// A score of the product of a query and a key.
__device__ float score_of(const AttentionShape& s, float product) {
  const float score = product * s.scale;
  return s.soft_cap > 0 ? s.soft_cap * tanhf(score / s.soft_cap) : score;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_forward(AttentionShape s, const T* q, const T* k, const T* v, T* y, float* log_sum_exp) {
  float* queries = dynamic_shared<float>();
  float *keys = queries + kTileFloats, *values = keys + kTileFloats, *p = values + kTileFloats;
  const int first = int(blockIdx.x) * kRows, head = int(blockIdx.y), batch = int(blockIdx.z);
  const int r = int(threadIdx.x) / kRows, c = int(threadIdx.x) % kRows, row = first + r;
  const int rows = s.query_count() - first, last = first + (rows < kRows ? rows : kRows) - 1;
  load_tile(queries, q, rows, s.depth, [&](int i) { return s.query_at(batch, first + i, head); });
  float out[kPerThread] = {}, most = kMinusInfinity, sum = 0;
  const int end = s.key_end(batch, last), own = row < s.query_count() ? row : last;
  const int from_key = s.first_key(batch, own), to_key = s.key_end(batch, own);
  const float slope = s.slope(head);
  for (int at = s.first_key(batch, first) / kRows * kRows; at < end; at += kRows) {
    __syncthreads();
    load_tile(keys, k, s.key_count() - at, s.depth,
              [&](int i) { return s.key_at(batch, at + i, head / s.groups); });
    load_tile(values, v, s.key_count() - at, s.value_depth,
              [&](int i) { return s.value_at(batch, at + i, head / s.groups); });
    __syncthreads();
    const bool seen = at + c >= from_key && at + c < to_key;
    const float score = score_of(s, dot(queries + r * kStride, keys + c * kStride, s.depth)) +
                        (seen ? s.distance_bias(slope, batch, own, at + c) : 0);
    const float now = fmaxf(most, row_max(seen ? score : kMinusInfinity));
    // With a window a row may see nothing of the first tiles.
    const float base = now == kMinusInfinity ? 0 : now;
    const float value = seen ? expf(score - base) : 0, shrink = expf(most - base);
    p[r * (kRows + 1) + c] = value;
    sum = sum * shrink + row_sum(value);
    most = now;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int column = c + kRows * i;
      if (column >= s.value_depth) continue;
      out[i] *= shrink;
      for (int j = 0; j < kRows; ++j)
        out[i] += p[r * (kRows + 1) + j] * values[j * kStride + column];
    }
  }
  if (row >= s.query_count()) return;
  T* to = y + s.y_at(batch, row, head);
  // A row that sees no key of this part has the result 0, and minus infinity.
  const float share = sum > 0 ? 1 / sum : 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (c + kRows * i < s.value_depth) to[c + kRows * i] = from_float<T>(out[i] * share);
  }
  if (c == 0) {
    log_sum_exp[(std::int64_t(batch) * s.heads + head) * s.query_count() + row] =
        sum > 0 ? most + logf(sum) : kMinusInfinity;
  }
}

/// p and ds = p (dp - delta), times the slope of a cap, of query `row` and key `column` of a head
/// with this slope of ALiBi, from tiles in which they have these rows.
struct Slopes {
  float p, ds;
  __device__ Slopes(const AttentionShape& s, const AttentionData& d, int batch,
                    std::int64_t statistics, float alibi, int row, int column, const float* query,
                    const float* slope, const float* key, const float* value)
      : p(0), ds(0) {
    const bool there = row < s.query_count() && column < s.key_count();
    if (!there || column < s.first_key(batch, row) || column >= s.key_end(batch, row)) return;
    const float score = score_of(s, dot(query, key, s.depth));
    p = expf(score + s.distance_bias(alibi, batch, row, column) - d.log_sum_exp[statistics + row]);
    ds = p * (dot(slope, value, s.value_depth) - d.delta[statistics + row]);
    if (s.soft_cap > 0) ds *= 1 - score * score / (s.soft_cap * s.soft_cap);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) plain_key_gradients(AttentionShape s, AttentionData d) {
  float* keys = dynamic_shared<float>();
  float *values = keys + kTileFloats, *queries = values + kTileFloats;
  float *slopes = queries + kTileFloats, *p = slopes + kTileFloats, *ds = p + kSquare;
  const int first = int(blockIdx.x) * kRows, key_head = int(blockIdx.y), batch = int(blockIdx.z);
  const int r = int(threadIdx.x) / kRows, c = int(threadIdx.x) % kRows;
  const int rows = s.key_count() - first, last = first + (rows < kRows ? rows : kRows) - 1;
  const auto at_keys = [&](int i) { return s.key_at(batch, first + i, key_head); };
  const auto at_values = [&](int i) { return s.value_at(batch, first + i, key_head); };
  load_tile(keys, static_cast<const T*>(d.k), rows, s.depth, at_keys);
  load_tile(values, static_cast<const T*>(d.v), rows, s.value_depth, at_values);
  float dk[kPerThread] = {}, dv[kPerThread] = {};
  for (int member = 0; member < s.groups; ++member) {
    const int head = key_head * s.groups + member;
    const std::int64_t statistics = (std::int64_t(batch) * s.heads + head) * s.query_count();
    const int end = s.query_end(batch, last);
    for (int at = s.first_query(batch, first) / kRows * kRows; at < end; at += kRows) {
      __syncthreads();
      load_tile(queries, static_cast<const T*>(d.q), s.query_count() - at, s.depth,
                [&](int i) { return s.query_at(batch, at + i, head); });
      load_tile(slopes, static_cast<const T*>(d.dy), s.query_count() - at, s.value_depth,
                [&](int i) { return s.y_at(batch, at + i, head); });
      __syncthreads();
      const Slopes mine(s, d, batch, statistics, s.slope(head), at + c, first + r,
                        queries + c * kStride, slopes + c * kStride, keys + r * kStride,
                        values + r * kStride);
      p[r * (kRows + 1) + c] = mine.p;
      ds[r * (kRows + 1) + c] = mine.ds;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int column = c + kRows * i;
        for (int j = 0; j < kRows && column < s.value_depth; ++j)
          dv[i] += p[r * (kRows + 1) + j] * slopes[j * kStride + column];
        for (int j = 0; j < kRows && column < s.depth; ++j)
          dk[i] += ds[r * (kRows + 1) + j] * queries[j * kStride + column];
      }
    }
  }
  if (r >= rows) return;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int column = c + kRows * i;
    if (column < s.depth)
      static_cast<T*>(d.dk)[at_keys(r) + column] = from_float<T>(dk[i] * s.scale);
    if (column < s.value_depth) static_cast<T*>(d.dv)[at_values(r) + column] = from_float<T>(dv[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_query_gradients(AttentionShape s, AttentionData d) {
  float* queries = dynamic_shared<float>();
  float *slopes = queries + kTileFloats, *keys = slopes + kTileFloats;
  float *values = keys + kTileFloats, *ds = values + kTileFloats;
  const int first = int(blockIdx.x) * kRows, head = int(blockIdx.y), batch = int(blockIdx.z);
  const int r = int(threadIdx.x) / kRows, c = int(threadIdx.x) % kRows;
  const std::int64_t statistics = (std::int64_t(batch) * s.heads + head) * s.query_count();
  const int rows = s.query_count() - first, last = first + (rows < kRows ? rows : kRows) - 1;
  load_tile(queries, static_cast<const T*>(d.q), rows, s.depth,
            [&](int i) { return s.query_at(batch, first + i, head); });
  load_tile(slopes, static_cast<const T*>(d.dy), rows, s.value_depth,
            [&](int i) { return s.y_at(batch, first + i, head); });
  float dq[kPerThread] = {};
  const int end = s.key_end(batch, last);
  for (int at = s.first_key(batch, first) / kRows * kRows; at < end; at += kRows) {
    __syncthreads();
    load_tile(keys, static_cast<const T*>(d.k), s.key_count() - at, s.depth,
              [&](int i) { return s.key_at(batch, at + i, head / s.groups); });
    load_tile(values, static_cast<const T*>(d.v), s.key_count() - at, s.value_depth,
              [&](int i) { return s.value_at(batch, at + i, head / s.groups); });
    __syncthreads();
    const Slopes mine(s, d, batch, statistics, s.slope(head), first + r, at + c,
                      queries + r * kStride, slopes + r * kStride, keys + c * kStride,
                      values + c * kStride);
    ds[r * (kRows + 1) + c] = mine.ds;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int column = c + kRows * i;
      if (column >= s.depth) continue;
      for (int j = 0; j < kRows; ++j) dq[i] += ds[r * (kRows + 1) + j] * keys[j * kStride + column];
    }
  }
  if (r >= rows) return;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int column = c + kRows * i;
    if (column >= s.depth) continue;
    static_cast<T*>(d.dq)[s.query_at(batch, first + r, head) + column] =
        from_float<T>(dq[i] * s.scale);
  }
}

/// A warp per token and head.
template <class T>
__global__ void sum_delta(AttentionShape s, std::int64_t rows, const T* dy, const T* y,
                          float* delta) {
  const int lane = int(threadIdx.x) % 32;
  for (std::int64_t row = global_thread() / 32; row < rows; row += global_threads() / 32) {
    const int head = int(row % s.heads), query = int(row / s.heads % s.queries.tokens);
    const int batch = int(row / s.heads / s.queries.tokens);
    const std::int64_t at = s.y_at(batch, query, head);
    float sum = 0;
    for (int i = lane; i < s.value_depth; i += 32)
      sum += to_float(dy[at + i]) * to_float(y[at + i]);
    sum = warp_sum(sum);
    if (lane == 0) delta[(std::int64_t(batch) * s.heads + head) * s.query_count() + query] = sum;
  }
}

constexpr std::size_t kForwardBytes = (3 * kTileFloats + kSquare) * sizeof(float);
constexpr std::size_t kBackwardBytes = (4 * kTileFloats + 2 * kSquare) * sizeof(float);

}  // namespace

void prepare_plain_attention(DType type) {
  with_type(type, [](auto zero) { allow_shared(plain_forward<decltype(zero)>, kForwardBytes); });
}

void prepare_plain_attention_backward(DType type) {
  with_type(type, [](auto zero) {
    using T = decltype(zero);
    allow_shared(plain_key_gradients<T>, kBackwardBytes);
    allow_shared(plain_query_gradients<T>, kBackwardBytes);
  });
}

void plain_attention(const CudaDevice& device, DType type, const AttentionShape& s,
                     const AttentionData& data) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(unsigned((s.query_count() + kRows - 1) / kRows), unsigned(s.heads),
                    unsigned(s.batch));
    launch(device.stream, grid, kThreads, kForwardBytes, plain_forward<T>, s,
           static_cast<const T*>(data.q), static_cast<const T*>(data.k),
           static_cast<const T*>(data.v), static_cast<T*>(data.y), data.log_sum_exp);
  });
}

void plain_attention_backward(const CudaDevice& device, DType type, const AttentionShape& s,
                              const AttentionData& data) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const auto grid = [&](int count, int heads) {
      return dim3(unsigned((count + kRows - 1) / kRows), unsigned(heads), unsigned(s.batch));
    };
    launch(device.stream, grid(s.key_count(), s.key_heads()), kThreads, kBackwardBytes,
           plain_key_gradients<T>, s, data);
    launch(device.stream, grid(s.query_count(), s.heads), kThreads, kBackwardBytes,
           plain_query_gradients<T>, s, data);
  });
}

void attention_delta(const CudaDevice& device, DType type, const AttentionShape& s,
                     const AttentionData& data) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = std::int64_t(s.batch) * s.query_count() * s.heads;
    launch(device.stream, blocks_for(device, rows * 32), kThreads, 0, sum_delta<T>, s, rows,
           static_cast<const T*>(data.dy), static_cast<const T*>(data.y), data.delta);
  });
}

}  // namespace plimsoll
