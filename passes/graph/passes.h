// The graph passes, one per .cpp of the same name. Each returns whether it changed the graph.
// passes/pipeline.cpp lists them in order.
#pragma once

#include "graph/graph.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// One linear layer for query, key and value becomes three (Framework::separate_qkv), where its
/// result is split into heads at once. Part of select_kernels.
bool separate_qkv(Graph& graph);
/// linear -> matmul, its bias added by the kernel that the framework has for that: bias_gelu,
/// bias_residual_add, the matmul itself, or bias_add. Attention -> matmul, softmax, matmul;
/// or flash_attention, which takes in splitting and merging heads.
bool select_kernels(Graph& graph, const PassContext& context);

/// Each of cp ranks has a part of every sequence: activations are 1/cp (context parallelism;
/// Megatron-LM --context-parallel-size). Attention reads the parts of the others:
/// context_exchange.
bool context_parallel(Graph& graph, const PassContext& context);

/// Splits parameters along their declared dimension over mp (column, row and vocabulary parallel;
/// Shoeybi et al. 2019) and puts the conjugate pairs copy_to_group / reduce_from_group where
/// replicated values meet split ones.
bool tensor_parallel(Graph& graph, const PassContext& context);

/// Between the split computations each mp rank works on its part of the tokens (sequence
/// parallelism; Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2): gathers tokens before
/// column-parallel layers and scatters the sums behind row-parallel ones, so that norms, residual
/// adds and what stages send are 1/mp. Parameters used there get partial gradients.
bool sequence_parallel(Graph& graph, const PassContext& context);

/// Jobs that do not compute in f32: activations get the job's type, so that their gradients and
/// what stages send get it too. Parameters stay f32 and are cast in every forward, once for each
/// block that reads them. Norm statistics, log-sum-exp and the loss stay f32; the logits are cast.
/// (Micikevicius et al. 2018, arXiv 1710.03740, and Megatron-LM's core/transformer/module.py
/// Float16Module.)
bool mixed_precision(Graph& graph, const PassContext& context);

/// Adds gradient ops block by block, in reverse; parameter gradients accumulate; what backward
/// reads becomes saved; conjugate pairs become all-reduces. Gradients of parameters are f32, and
/// the weight gradients' matmuls accumulate into them (Megatron-LM's gradient accumulation fusion).
bool backward(Graph& graph, const PassContext& context);

/// Attention over parts of sequences on other ranks, forward and backward, by Strategy::
/// context_exchange. passes/graph/context_exchange.cpp names the sources.
bool context_exchange(Graph& graph, const PassContext& context);

/// Linear layers of the blocks compute with 8-bit operands (Strategy::fp8): casts and transposes of
/// activations, of gradients and of weights, whose copies last for a step where the library keeps
/// them (role workspace). passes/graph/fp8_linears.cpp names the sources.
bool fp8_linears(Graph& graph, const PassContext& context);

/// Behind column-parallel layers the gradient of the input is computed first and summed over mp
/// beside the gradient of the weight (Framework::overlap_tensor_gradients).
/// passes/graph/defer_weight_gradients.cpp names the sources.
bool defer_weight_gradients(Graph& graph, const PassContext& context);

/// Full recompute: layers save their input only and repeat their forward inside backward.
/// Selective: their attention cores save query, key and value only. With recompute_layers or
/// recompute_list only some layers do: variants of their blocks, which the schedule picks. As far
/// as backward needs it, or whole, as Framework::recompute_repeats_all says.
bool recompute(Graph& graph, const PassContext& context);

/// Zeroing, finite check and unscaling (dynamic loss scaling), global norm, clip and update
/// (AdamW, SGD with momentum, LAMB), tensor by tensor as a framework without flat arenas runs
/// them: 4 n + 5 ops for n tensors where all are clipped.
bool optimizer_step(Graph& graph, const PassContext& context);

/// The step's gradients are added up and reduced in the job's type and cast to f32 once, for the
/// update (Strategy::gradient_type).
bool narrow_gradients(Graph& graph, const PassContext& context);

/// The gradients that a micro-batch adds to the step's get memory of its own, in the type that its
/// parameter is used in: `tensor` casts and adds tensor by tensor inside backward; `fused` arenas
/// of all of them, group by group (Paddle's merges; docs/how-it-works/gradients.md names the
/// sources). `direct`: nothing changes, kernels add to the step's gradients.
bool gradient_merge(Graph& graph, const PassContext& context);

/// Norm, clipping and update over flat arenas. `fused`: one norm, which also shows what is not
/// finite, one clip factor and one update, with a table of segments. `coalesced`: as Paddle PR
/// 33461, with its coalesce ops and temporaries, for each attribute group. `none`: nothing changes.
bool flatten_optimizer(Graph& graph, const PassContext& context);

/// Gradients of which mp ranks computed parts are summed over them (Tensor::gradient_group).
bool partial_gradients(Graph& graph, const PassContext& context);

/// Gradients summed over the replicas (dp), and over the ranks that share sequences where nothing
/// is sharded, before the norm.
bool data_parallel(Graph& graph, const PassContext& context);

/// Stage 1 by equal element ranges: gradients reduce-scattered over sharding and cp, each rank
/// updates its part of every bucket, parameters gathered (ZeRO, Rajbhandari et al. 2019).
bool shard_optimizer(Graph& graph, const PassContext& context);

/// Casts of parameters leave forward, recompute and backward (Paddle PRs 34965 and 35878): the
/// parameters themselves get the type that is computed in, and the update works on f32 masters of
/// what this rank updates, so that under sharding nobody keeps masters of others and gathers move
/// the small type. The parameters are written by the update itself (`fused`) or by one cast after
/// it (`after_update`); `every_use` leaves all casts. A parameter that anything but such a cast
/// reads stays f32, and so does an arena that holds one.
bool place_casts(Graph& graph, const PassContext& context);

/// Sharding stage 3 with owners and gather = use: before every op that reads a parameter it is
/// broadcast from its owner into a temporary of that op (Paddle fleet's stage 3 pass). What is only
/// cast is broadcast as what it is cast to. Other forms of stage 3 the schedule adds.
bool broadcast_parameters(Graph& graph, const PassContext& context);

}  // namespace plimsoll
