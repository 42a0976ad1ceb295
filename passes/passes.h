// The graph passes, one per .cpp of the same name. Each returns whether it changed the graph.
// passes/pipeline.cpp lists them in order.
#pragma once

#include "graph/graph.h"
#include "passes/pipeline.h"

namespace plimsoll {

/// linear -> matmul with the bias fused (or bias_add, if the framework's matmul cannot), attention
/// -> matmul, causal_softmax, matmul.
bool select_kernels(Graph& graph, const PassContext& context);

/// Splits parameters along their declared dimension over mp (column, row and vocabulary parallel;
/// Shoeybi et al. 2019) and puts the conjugate pairs copy_to_group / reduce_from_group where
/// replicated values meet split ones.
bool tensor_parallel(Graph& graph, const PassContext& context);

/// Adds gradient ops block by block, in reverse; parameter gradients accumulate; what backward
/// reads becomes saved; conjugate pairs become all-reduces.
bool backward(Graph& graph, const PassContext& context);

/// Full recompute: layers save their input only and repeat their forward inside backward, as far
/// as backward needs it.
bool recompute(Graph& graph, const PassContext& context);

/// Zeroing, global norm, clip and AdamW over flat arenas.
bool optimizer_step(Graph& graph, const PassContext& context);

/// Gradients summed over the replicas (dp) before the norm.
bool data_parallel(Graph& graph, const PassContext& context);

/// Stage 1 by equal element ranges: gradients reduce-scattered over the sharding axis, each rank
/// updates its part of every bucket, parameters gathered (ZeRO, Rajbhandari et al. 2019).
bool shard_optimizer(Graph& graph, const PassContext& context);

}  // namespace plimsoll
