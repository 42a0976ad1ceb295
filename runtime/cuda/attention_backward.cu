// Flash attention backward on tensor cores computes scores again in two kernels, one by keys and
// one by queries. Blocks share no sums, so equal runs give equal bits.
#include "runtime/cuda/attention.h"
#include "runtime/cuda/attention_tiles.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// Sizes of the tiles depend on the widths of a head's key and value, since the accumulators in
/// registers grow with them.
template <int kDepth, int kValue>
struct KeySide {                                       // gradients of keys and values
  static constexpr int kTiles = kDepth == 64 ? 2 : 1;  // of 16 keys, per warp
  static constexpr int kKeys = 16 * kTiles * kAttentionWarps;
  static constexpr int kQueries = kDepth == 64 ? 32 : 64;
  static constexpr int kElements = (kKeys + 2 * kQueries) * (kDepth + kValue);
  static constexpr std::size_t kBytes = kElements * 2 + 4 * kQueries * sizeof(float);
};
template <int kDepth, int kValue>
struct QuerySide {  // gradients of queries
  static constexpr int kTiles = kDepth > 128 ? 1 : 2;
  static constexpr int kQueries = 16 * kTiles * kAttentionWarps;
  static constexpr int kKeys = kDepth == 64 ? 64 : 32;
  static constexpr int kElements = (kQueries + 2 * kKeys) * (kDepth + kValue);
  static constexpr std::size_t kBytes = kElements * 2;
};

template <class T>
struct Pointers {
  const T *q, *k, *v, *dy;
  const float *log_sum_exp, *delta;
  T *dq, *dk, *dv;
};

/// A block has some keys of one head, and a warp 16 or 32 of them. It walks over the queries of the
/// heads that share them. With p = exp(scores - log_sum_exp) and ds = p (dp - delta), all of them
/// transposed here, dv = p dy and dk = ds q scale.
template <class T, int kDepth, int kValue>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_key_gradients(AttentionShape s, Pointers<T> a) {
  using Side = KeySide<kDepth, kValue>;
  using Keys = Tile<T, Side::kKeys, kDepth>;
  using Values = Tile<T, Side::kKeys, kValue>;
  using Queries = Tile<T, Side::kQueries, kDepth>;
  using Rises = Tile<T, Side::kQueries, kValue>;  // of slopes
  constexpr int kTiles = Side::kTiles, kQueries = Side::kQueries;
  T* keys = dynamic_shared<T>();
  T* values = keys + Keys::kElements;
  const auto queries = [&](int i) {
    return values + Values::kElements + i % 2 * (Queries::kElements + Rises::kElements);
  };
  const auto slopes = [&](int i) { return queries(i) + Queries::kElements; };
  auto* statistics = reinterpret_cast<float*>(dynamic_shared<T>() + Side::kElements);
  const auto log_sums = [&](int i) { return statistics + i % 2 * 2 * kQueries; };
  const auto deltas = [&](int i) { return log_sums(i) + kQueries; };

  const int first = int(blockIdx.x) * Side::kKeys;  // those with the most queries come first
  const int key_head = int(blockIdx.y), batch = int(blockIdx.z);
  const int lane = int(threadIdx.x) % 32, own = int(threadIdx.x) / 32 * 16 * kTiles;
  const int key_rows = s.key_count() - first;
  const int last_key = key_rows < Side::kKeys ? key_rows - 1 : Side::kKeys - 1;
  const auto at_keys = [&](int row) { return s.key_at(batch, first + row, key_head); };
  Keys::start(keys, a.k, key_rows, s.depth, at_keys);
  const auto at_values = [&](int row) { return s.value_at(batch, first + row, key_head); };
  Values::start(values, a.v, key_rows, s.value_depth, at_values);
  // The queries that see each row of the thread: a range, which may be empty.
  int from_query[kTiles][2], to_query[kTiles][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own + 16 * m + lane / 4 + 8 * half;
      from_query[m][half] = s.first_query(batch, first + (row < key_rows ? row : last_key));
      to_query[m][half] = s.query_end(batch, first + (row < key_rows ? row : last_key));
    }
  }

  const int skipped =
      s.first_query(batch, first) / kQueries;  // tiles of queries that see none of them
  const int end = s.query_end(batch, first + last_key);
  const int tiles = (end + kQueries - 1) / kQueries - skipped;
  const int per_head = tiles > 0 ? tiles : 0;
  const int rounds = per_head * s.groups;
  const auto query = [&](int i) { return (i % per_head + skipped) * kQueries; };
  const auto start = [&](int i) {
    const int head = key_head * s.groups + i / per_head, at = query(i);
    const int rows = s.query_count() - at;
    Queries::start(queries(i), a.q, rows, s.depth,
                   [&](int row) { return s.query_at(batch, at + row, head); });
    Rises::start(slopes(i), a.dy, rows, s.value_depth,
                 [&](int row) { return s.y_at(batch, at + row, head); });
    commit_copies();
    const std::int64_t row = (std::int64_t(batch) * s.heads + head) * s.query_count() + at;
    if (int(threadIdx.x) < kQueries) {  // behind the end: p = exp(-infinity)
      const int r = int(threadIdx.x);
      log_sums(i)[r] = r < rows ? a.log_sum_exp[row + r] * kLog2E : -kMinusInfinity;
      deltas(i)[r] = r < rows ? a.delta[row + r] : 0;
    }
  };

  if (rounds > 0) start(0);
  float dk[kTiles][kDepth / 8][4] = {}, dv[kTiles][kValue / 8][4] = {};
  const float scale = s.scale * kLog2E;
  for (int i = 0; i < rounds; ++i) {
    wait_for_copies();
    __syncthreads();
    if (i + 1 < rounds) start(i + 1);
#pragma unroll
    for (int part = 0; part < kQueries / 32; ++part) {  // 32 queries at a time
      float p[kTiles][4][4] = {}, dp[kTiles][4][4] = {};
#pragma unroll
      for (int step = 0; step < kDepth / 16; ++step) {
        std::uint32_t of_keys[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) Keys::left(of_keys[m], keys, own + 16 * m, step);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          std::uint32_t b[4];
          Queries::right_transposed(b, queries(i), 32 * part + 16 * n, step);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(p[m][2 * n], of_keys[m], b[0], b[1]);
            multiply_add<T>(p[m][2 * n + 1], of_keys[m], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < kValue / 16; ++step) {
        std::uint32_t of_values[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) Values::left(of_values[m], values, own + 16 * m, step);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          std::uint32_t b[4];
          Rises::right_transposed(b, slopes(i), 32 * part + 16 * n, step);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(dp[m][2 * n], of_values[m], b[0], b[1]);
            multiply_add<T>(dp[m][2 * n + 1], of_values[m], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = 32 * part + 8 * n + lane % 4 * 2 + e % 2;
          const float log_sum = log_sums(i)[column], delta = deltas(i)[column];
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            const int at = query(i) + column;
            const bool seen = at >= from_query[m][e / 2] && at < to_query[m][e / 2];
            const float value = seen ? fast_exp2(p[m][n][e] * scale - log_sum) : 0;
            p[m][n][e] = value;
            dp[m][n][e] = value * (dp[m][n][e] - delta);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t of_p[kTiles][4], of_ds[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          as_left<T>(of_p[m], p[m][2 * step], p[m][2 * step + 1]);
          as_left<T>(of_ds[m], dp[m][2 * step], dp[m][2 * step + 1]);
        }
#pragma unroll
        for (int n = 0; n < kValue / 16; ++n) {
          std::uint32_t b[4];
          Rises::right(b, slopes(i), 32 * part + 16 * step, n);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(dv[m][2 * n], of_p[m], b[0], b[1]);
            multiply_add<T>(dv[m][2 * n + 1], of_p[m], b[2], b[3]);
          }
        }
#pragma unroll
        for (int n = 0; n < kDepth / 16; ++n) {
          std::uint32_t b[4];
          Queries::right(b, queries(i), 32 * part + 16 * step, n);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(dk[m][2 * n], of_ds[m], b[0], b[1]);
            multiply_add<T>(dk[m][2 * n + 1], of_ds[m], b[2], b[3]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int row = own + 16 * m;
#pragma unroll
    for (int n = 0; n < kDepth / 8; ++n)
      store_result(a.dk, at_keys, key_rows, s.depth, row, 8 * n, dk[m][n], s.scale, s.scale);
#pragma unroll
    for (int n = 0; n < kValue / 8; ++n)
      store_result(a.dv, at_values, key_rows, s.value_depth, row, 8 * n, dv[m][n], 1.0f, 1.0f);
  }
}

/// A block has 64 or 128 queries of one head, a warp 16 or 32 of them, and walks over the keys that
/// they see: dq = ds k scale.
template <class T, int kDepth, int kValue>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_query_gradients(AttentionShape s, Pointers<T> a) {
  using Side = QuerySide<kDepth, kValue>;
  using Queries = Tile<T, Side::kQueries, kDepth>;
  using Rises = Tile<T, Side::kQueries, kValue>;  // of slopes
  using Keys = Tile<T, Side::kKeys, kDepth>;
  using Values = Tile<T, Side::kKeys, kValue>;
  constexpr int kTiles = Side::kTiles, kKeys = Side::kKeys;
  T* queries = dynamic_shared<T>();
  T* slopes = queries + Queries::kElements;
  const auto keys = [&](int i) {
    return slopes + Rises::kElements + i % 2 * (Keys::kElements + Values::kElements);
  };
  const auto values = [&](int i) { return keys(i) + Keys::kElements; };

  const int first = int(gridDim.x - 1 - blockIdx.x) * Side::kQueries;
  const int head = int(blockIdx.y), key_head = head / s.groups, batch = int(blockIdx.z);
  const int lane = int(threadIdx.x) % 32, own = int(threadIdx.x) / 32 * 16 * kTiles;
  const int rows = s.query_count() - first;
  const int last_row = rows < Side::kQueries ? rows - 1 : Side::kQueries - 1;
  const auto at_queries = [&](int row) { return s.query_at(batch, first + row, head); };
  Queries::start(queries, a.q, rows, s.depth, at_queries);
  Rises::start(slopes, a.dy, rows, s.value_depth,
               [&](int row) { return s.y_at(batch, first + row, head); });
  const auto start = [&](int i) {
    Keys::start(keys(i), a.k, s.key_count() - i * kKeys, s.depth,
                [&](int row) { return s.key_at(batch, i * kKeys + row, key_head); });
    Values::start(values(i), a.v, s.key_count() - i * kKeys, s.value_depth,
                  [&](int row) { return s.value_at(batch, i * kKeys + row, key_head); });
    commit_copies();
  };
  const int skipped = s.first_key(batch, first) / kKeys;  // tiles of keys that none of them sees
  start(skipped);

  float log_sums[kTiles][2], deltas[kTiles][2];
  int from_key[kTiles][2], to_key[kTiles][2];  // the keys that each row of the thread sees
  const std::int64_t statistics = (std::int64_t(batch) * s.heads + head) * s.query_count() + first;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own + 16 * m + lane / 4 + 8 * half;
      log_sums[m][half] = row < rows ? a.log_sum_exp[statistics + row] * kLog2E : -kMinusInfinity;
      deltas[m][half] = row < rows ? a.delta[statistics + row] : 0;
      from_key[m][half] = s.first_key(batch, first + (row < rows ? row : last_row));
      to_key[m][half] = s.key_end(batch, first + (row < rows ? row : last_row));
    }
  }
  const int end = s.key_end(batch, first + last_row);
  const int rounds = (end + kKeys - 1) / kKeys;
  float dq[kTiles][kDepth / 8][4] = {};
  const float scale = s.scale * kLog2E;
  for (int i = skipped; i < rounds; ++i) {
    wait_for_copies();
    __syncthreads();
    if (i + 1 < rounds) start(i + 1);
#pragma unroll
    for (int part = 0; part < kKeys / 32; ++part) {  // 32 keys at a time
      float p[kTiles][4][4] = {}, dp[kTiles][4][4] = {};
#pragma unroll
      for (int step = 0; step < kDepth / 16; ++step) {
        std::uint32_t of_queries[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) Queries::left(of_queries[m], queries, own + 16 * m, step);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          std::uint32_t b[4];
          Keys::right_transposed(b, keys(i), 32 * part + 16 * n, step);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(p[m][2 * n], of_queries[m], b[0], b[1]);
            multiply_add<T>(p[m][2 * n + 1], of_queries[m], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < kValue / 16; ++step) {
        std::uint32_t of_slopes[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) Rises::left(of_slopes[m], slopes, own + 16 * m, step);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          std::uint32_t b[4];
          Values::right_transposed(b, values(i), 32 * part + 16 * n, step);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(dp[m][2 * n], of_slopes[m], b[0], b[1]);
            multiply_add<T>(dp[m][2 * n + 1], of_slopes[m], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int column = i * kKeys + 32 * part + 8 * n + lane % 4 * 2 + e % 2;
            const bool seen = column >= from_key[m][e / 2] && column < to_key[m][e / 2];
            const float value = seen ? fast_exp2(p[m][n][e] * scale - log_sums[m][e / 2]) : 0;
            dp[m][n][e] = value * (dp[m][n][e] - deltas[m][e / 2]);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t of_ds[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) as_left<T>(of_ds[m], dp[m][2 * step], dp[m][2 * step + 1]);
#pragma unroll
        for (int n = 0; n < kDepth / 16; ++n) {
          std::uint32_t b[4];
          Keys::right(b, keys(i), 32 * part + 16 * step, n);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add<T>(dq[m][2 * n], of_ds[m], b[0], b[1]);
            multiply_add<T>(dq[m][2 * n + 1], of_ds[m], b[2], b[3]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kDepth / 8; ++n) {
      store_result(a.dq, at_queries, rows, s.depth, own + 16 * m, 8 * n, dq[m][n], s.scale,
                   s.scale);
    }
  }
}

template <class T, int kDepth, int kValue>
void allow() {
  allow_shared(attention_key_gradients<T, kDepth, kValue>, KeySide<kDepth, kValue>::kBytes);
  allow_shared(attention_query_gradients<T, kDepth, kValue>, QuerySide<kDepth, kValue>::kBytes);
}

template <class T, int kDepth, int kValue>
void start(const CudaDevice& device, const AttentionShape& s, const AttentionData& d) {
  using OfKeys = KeySide<kDepth, kValue>;
  using OfQueries = QuerySide<kDepth, kValue>;
  const Pointers<T> pointers{static_cast<const T*>(d.q),
                             static_cast<const T*>(d.k),
                             static_cast<const T*>(d.v),
                             static_cast<const T*>(d.dy),
                             d.log_sum_exp,
                             d.delta,
                             static_cast<T*>(d.dq),
                             static_cast<T*>(d.dk),
                             static_cast<T*>(d.dv)};
  const auto grid = [&](int count, int rows, int heads) {
    return dim3(unsigned((count + rows - 1) / rows), unsigned(heads), unsigned(s.batch));
  };
  launch(device.stream, grid(s.key_count(), OfKeys::kKeys, s.key_heads()), kAttentionThreads,
         OfKeys::kBytes, attention_key_gradients<T, kDepth, kValue>, s, pointers);
  launch(device.stream, grid(s.query_count(), OfQueries::kQueries, s.heads), kAttentionThreads,
         OfQueries::kBytes, attention_query_gradients<T, kDepth, kValue>, s, pointers);
}

template <class T>
void allow_for(const AttentionShape& s) {
  s.depth > 128 ? allow<T, 192, 128>() : s.depth > 64 ? allow<T, 128, 128>() : allow<T, 64, 64>();
}

template <class T>
void start_for(const CudaDevice& device, const AttentionShape& s, const AttentionData& d) {
  s.depth > 128  ? start<T, 192, 128>(device, s, d)
  : s.depth > 64 ? start<T, 128, 128>(device, s, d)
                 : start<T, 64, 64>(device, s, d);
}

}  // namespace

void prepare_fast_attention_backward(DType type, const AttentionShape& s) {
  type == DType::bf16 ? allow_for<bf16>(s) : allow_for<f16>(s);
}

void fast_attention_backward(const CudaDevice& device, DType type, const AttentionShape& s,
                             const AttentionData& data) {
  type == DType::bf16 ? start_for<bf16>(device, s, data) : start_for<f16>(device, s, data);
}

}  // namespace plimsoll
