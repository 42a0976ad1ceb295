// Flash attention never writes scores to memory (Dao et al. 2022, arXiv 2205.14135; Dao 2023, arXiv
// 2307.08691). Its files share these declarations.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "graph/tensor.h"
#include "runtime/cuda/device.h"

namespace plimsoll {

/// Queries are [n, ., a, d] and keys and values [n, ., kv, d] for b sequences. Strides are in
/// elements from token to token.
struct AttentionShape {
  /// `heads`: of queries; `groups`: queries per key head; `depth`: width of a head
  int batch, sequence, heads, groups, depth;
  std::int64_t query_stride, key_stride, y_stride;
  float scale;
  bool causal;
  int window;  ///< of causal attention: the keys that a query sees, its own among them

  int key_heads() const { return heads / groups; }
  __device__ bool sees(int query, int key) const {
    return !causal || (key <= query && query - key < window);
  }
  /// The first key that a query from `query` on sees, and the end of the queries that see a key up
  /// to `key`.
  __device__ int first_key(int query) const {
    return causal && query >= window ? query - window + 1 : 0;
  }
  __device__ int query_end(int key) const {
    return causal && key < sequence - window ? key + window : sequence;
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

/// The fast kernels use tensor cores. They need bf16 or f16, heads of up to 128 elements, and
/// 16-byte aligned addresses (attention.cu, attention_backward.cu).
bool attention_is_fast(DType type, int depth);
void prepare_fast_attention(DType type, int depth);
void prepare_fast_attention_backward(DType type, int depth);
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
