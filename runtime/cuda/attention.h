// Flash attention never writes scores to memory (Dao et al. 2022, arXiv 2205.14135; Dao 2023, arXiv
// 2307.08691). Its files share these declarations.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "graph/tensor.h"
#include "runtime/cuda/device.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

/// Queries are [n, ., a, d], keys [n, ., kv, d] and values [n, ., kv, e] for b sequences. Strides
/// are in elements from token to token, and from head to head. Queries and keys may be parts of the
/// sequences, in the order of their positions (runtime/sequence_part.h), so what a query sees is a
/// range of keys.
struct AttentionShape {
  SequencePart queries, keys;
  /// `heads`: of queries; `groups`: queries per key head; `depth`: width of a head's query and key;
  /// `value_depth`: of its value
  int batch, heads, groups, depth, value_depth;
  std::int64_t query_stride, key_stride, value_stride, y_stride;
  int key_head_stride, value_head_stride;
  float scale;
  bool causal;
  int window;      ///< of causal attention: the keys that a query sees, its own among them; 0: all
  float soft_cap;  ///< of scaled scores; 0: none
  bool chunks;     ///< a query sees no key of another chunk of `window` tokens
  int alibi_heads, first_head;  ///< of the model, 0 without ALiBi; of this rank
  float alibi_scale;            ///< of ALiBi's biases
  ExampleTable examples;        ///< a query sees no key of another one

  int key_heads() const { return heads / groups; }
  __host__ __device__ int query_count() const { return int(queries.tokens); }
  __host__ __device__ int key_count() const { return int(keys.tokens); }
  /// The keys [first_key, key_end) that a query sees.
  __device__ int first_key(int sequence, int query) const {
    if (!causal || (window == 0 && !examples.reads())) return 0;
    const std::int64_t position = examples.position(queries, sequence, query);
    const std::int64_t begin = examples.reads() ? examples.begin(sequence, position) : 0;
    if (window == 0) return keys_before(sequence, begin);
    const std::int64_t before = position - begin;
    const std::int64_t first = chunks ? before / window * window : before - window + 1;
    return keys_before(sequence, first > 0 ? begin + first : begin);
  }
  __device__ int key_end(int sequence, int query) const {
    if (!causal) return key_count();
    return keys_before(sequence, examples.position(queries, sequence, query) + 1);
  }
  /// The queries [first_query, query_end) that see a key.
  __device__ int first_query(int sequence, int key) const {
    return causal ? queries_before(sequence, examples.position(keys, sequence, key)) : 0;
  }
  __device__ int query_end(int sequence, int key) const {
    if (!causal || (window == 0 && !examples.reads())) return query_count();
    const std::int64_t position = examples.position(keys, sequence, key);
    const std::int64_t begin = examples.reads() ? examples.begin(sequence, position) : 0;
    const std::int64_t end = examples.reads() ? examples.end(sequence, position) : 0;
    if (window == 0) return queries_before(sequence, end);
    const std::int64_t of_window =
        chunks ? begin + ((position - begin) / window + 1) * window : position + window;
    return queries_before(sequence, examples.reads() && end < of_window ? end : of_window);
  }
  /// Returns the bias of the score of a query and a key, for the slope of the head.
  __device__ float distance_bias(float slope, int sequence, int query, int key) const {
    return slope == 0 ? 0
                      : slope * float(examples.position(keys, sequence, key) -
                                      examples.position(queries, sequence, query));
  }
  __device__ float slope(int head) const {
    return alibi_heads == 0 ? 0 : alibi_slope(first_head + head, alibi_heads, alibi_scale);
  }
  /// Offsets of the heads of tokens, in elements.
  __device__ std::int64_t query_at(int sequence, int query, int head) const {
    return examples.row(queries, sequence, query) * query_stride + std::int64_t(head) * depth;
  }
  __device__ std::int64_t key_at(int sequence, int key, int key_head) const {
    return examples.row(keys, sequence, key) * key_stride +
           std::int64_t(key_head) * key_head_stride;
  }
  __device__ std::int64_t value_at(int sequence, int key, int key_head) const {
    return examples.row(keys, sequence, key) * value_stride +
           std::int64_t(key_head) * value_head_stride;
  }
  __device__ std::int64_t y_at(int sequence, int query, int head) const {
    return examples.row(queries, sequence, query) * y_stride + std::int64_t(head) * value_depth;
  }

 private:
  __device__ int keys_before(int sequence, std::int64_t position) const {
    return int(examples.before(keys, sequence, position));
  }
  __device__ int queries_before(int sequence, std::int64_t position) const {
    return int(examples.before(queries, sequence, position));
  }
};

/// Forward reads q, k, v and writes y and log_sum_exp [b,a,s]. Backward reads all of them and dy,
/// and writes dq, dk, dv with the strides of q, k, v.
struct AttentionData {
  const void *q, *k, *v;
  void* y;
  float* log_sum_exp;
  const void* dy;
  float* delta;  ///< [b,a,s] scratch: sum over a head of dy y
  void *dq, *dk, *dv;
};

/// The fast kernels use tensor cores. They need bf16 or f16, scores without a cap and ALiBi,
/// and 16-byte aligned addresses. Queries, keys and values have one width of up to 128 elements; or
/// queries and keys have up to 192 and values up to 128, as in latent attention (attention.cu,
/// attention_backward.cu).
bool attention_is_fast(DType type, const AttentionShape& shape);
void prepare_fast_attention(DType type, const AttentionShape& shape);
void prepare_fast_attention_backward(DType type, const AttentionShape& shape);
void fast_attention(const CudaDevice& device, DType type, const AttentionShape& shape,
                    const AttentionData& data);
void fast_attention_backward(const CudaDevice& device, DType type, const AttentionShape& shape,
                             const AttentionData& data);

/// The plain kernels use f32 multiplications. They take all types and heads of up to 256 elements
/// (attention_plain.cu).
void prepare_plain_attention(DType type);
void prepare_plain_attention_backward(DType type);
void plain_attention(const CudaDevice& device, DType type, const AttentionShape& shape,
                     const AttentionData& data);
void plain_attention_backward(const CudaDevice& device, DType type, const AttentionShape& shape,
                              const AttentionData& data);

/// Computes data.delta from dy and y, which is the first part of both backward kernels.
void attention_delta(const CudaDevice& device, DType type, const AttentionShape& shape,
                     const AttentionData& data);

}  // namespace plimsoll
