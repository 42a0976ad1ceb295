// These are the graph passes, each in a .cpp of its own name. Each returns whether it changed the
// graph. passes/pipeline.cpp lists them in order.
#pragma once

#include "graph/graph.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Makes three linear layers of the one for query, key and value
/// (Framework::kernels.attention.separate_qkv), where its result is split into heads at once. It is
/// part of select_kernels.
bool separate_qkv(Graph& graph);
/// Replaces abstract ops by the kernels that the framework has. A linear layer becomes a matmul,
/// whose bias is added by bias_gelu, bias_residual_add, the matmul itself or bias_add. Attention
/// becomes matmul, softmax and matmul, or flash_attention, which includes splitting and merging
/// heads.
bool select_kernels(Graph& graph, const PassContext& context);

/// Gives each of cp ranks a part of every sequence, so that activations are 1/cp (context
/// parallelism; Megatron-LM --context-parallel-size). The pass context_exchange lets attention read
/// the parts of the other ranks.
bool context_parallel(Graph& graph, const PassContext& context);

/// Splits parameters along their declared dimension over mp: column, row and vocabulary parallel
/// (Shoeybi et al. 2019). It puts the conjugate pairs copy_to_group and reduce_from_group where
/// replicated values meet split ones.
bool tensor_parallel(Graph& graph, const PassContext& context);

/// Lets each mp rank work on its part of the tokens between the split computations (sequence
/// parallelism; Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2). It gathers tokens before
/// column-parallel layers and scatters the sums behind row-parallel ones. So norms, residual adds
/// and the tensors that stages send are 1/mp. Parameters used there get partial gradients.
bool sequence_parallel(Graph& graph, const PassContext& context);

/// Shares out the experts of each layer over ep ranks, or splits each over etp ranks, on a grid of
/// their own (Strategy::ep, etp). Tokens reach them by Strategy::experts.dispatch.
/// passes/graph/expert_parallel.cpp names the sources.
bool expert_parallel(Graph& graph, const PassContext& context);

/// Gives activations the job's type in jobs that do not compute in f32, so that their gradients and
/// the tensors that stages send get this type, too. Parameters stay f32 and are cast in every
/// forward, once for each block that reads them. Norm statistics, log-sum-exp and the loss stay
/// f32, and the logits are cast. (Micikevicius et al. 2018, arXiv 1710.03740, and Megatron-LM's
/// core/transformer/module.py Float16Module.)
bool mixed_precision(Graph& graph, const PassContext& context);

/// Adds gradient ops block by block, in reverse. Values that backward reads become saved, and
/// conjugate pairs become all-reduces. Gradients of parameters are f32, and the weight gradients'
/// matmuls accumulate into them (Megatron-LM's gradient accumulation fusion).
bool backward(Graph& graph, const PassContext& context);

/// Lets attention read the parts of sequences that are on other ranks, forward and backward, by
/// Strategy::tokens.context_exchange. passes/graph/context_exchange.cpp names the sources.
bool context_exchange(Graph& graph, const PassContext& context);

/// Lets linear layers of the blocks compute with 8-bit operands (Strategy::precision.fp8). It adds
/// casts and transposes of activations, gradients and weights. Copies of weights last for a step
/// where the library keeps them (role workspace). passes/graph/fp8_linears.cpp names the sources.
bool fp8_linears(Graph& graph, const PassContext& context);

/// Computes the gradient of a column-parallel layer's input first, and sums it over mp beside the
/// gradient of the weight (Framework::parallelism.overlap.tensor_gradients).
/// passes/graph/defer_weight_gradients.cpp names the sources.
bool defer_weight_gradients(Graph& graph, const PassContext& context);

/// Lets backward repeat forward ops. With full recompute, layers save only their input and repeat
/// their forward. With selective recompute, attention cores save only query, key and value. With
/// recompute_modules, the named modules of a layer save only what they read. With recompute_layers
/// or recompute_list only some layers do so: these are variants of their blocks, which the schedule
/// chooses. Ops are repeated as far as backward needs them, or all of them with
/// Framework::parallelism.recompute_repeats_all.
bool recompute(Graph& graph, const PassContext& context);

/// Lets the head work on 1/loss_chunks of a micro-batch's tokens. Its forward runs in its backward,
/// which the schedule calls once for each part, so that nothing of it is saved.
bool chunk_loss(Graph& graph, const PassContext& context);

/// Adds zeroing, finite check and unscaling (dynamic loss scaling), the global norm, clipping and
/// the update (AdamW, SGD with momentum, LAMB, Muon, Adafactor). They run tensor by tensor, as in a
/// framework without flat arenas: 4 n + 5 ops for n tensors where all are clipped.
bool optimizer_step(Graph& graph, const PassContext& context);

/// Lets the step's gradients be added up and reduced in the job's type, and casts them to f32 once,
/// for the update (Strategy::precision.gradients).
bool narrow_gradients(Graph& graph, const PassContext& context);

/// Gives the gradients of one micro-batch memory of their own, in the type in which the parameter
/// is used. `tensor`: backward casts and adds tensor by tensor. `fused`: arenas of all gradients
/// are cast and added group by group (Paddle's merges; docs/how-it-works/gradients.md names the
/// sources). `direct`: nothing changes, since kernels add to the step's gradients.
bool gradient_merge(Graph& graph, const PassContext& context);

/// Moves norm, clipping and update to flat arenas. `fused`: one norm, which also finds values that
/// are not finite, one clip factor and one update, with a table of segments; with
/// release_gradients the update alone. `coalesced`: as in
/// Paddle PR 33461, with its coalesce ops and temporaries, for each attribute group. `none`:
/// nothing changes.
bool flatten_optimizer(Graph& graph, const PassContext& context);

/// Sums gradients over the mp ranks that computed parts of them (Tensor::gradient_group).
bool partial_gradients(Graph& graph, const PassContext& context);

/// Sums gradients over the replicas (dp) before the norm, and over the ranks that share sequences
/// where nothing is sharded.
bool data_parallel(Graph& graph, const PassContext& context);

/// Shards the optimizer in stage 1 by equal ranges of elements (ZeRO, Rajbhandari et al. 2019).
/// Gradients are reduce-scattered over sharding and cp, each rank updates its part of every bucket,
/// and parameters are gathered.
bool shard_optimizer(Graph& graph, const PassContext& context);

/// Removes casts of parameters from forward, recompute and backward (Paddle PRs 34965 and 35878).
/// The parameters themselves get the type of the computation. The update works on f32 masters of
/// the parameters that this rank updates, so under sharding no rank keeps masters of others, and
/// gathers move the small type. The update writes the parameters itself (`fused`), or one cast
/// after it does (`after_update`). `every_use` leaves all casts. A parameter that any other op
/// reads stays f32, and so does an arena that holds one.
bool place_casts(Graph& graph, const PassContext& context);

/// Splits the update where the host updates a share of the parameters. Their masters and moments
/// are arenas in the host's memory. Their gradients are copied there and the new parameters back.
/// The host works on its own stream. Its ops come around the device's update, or behind it as a run
/// of their own that the schedule issues part by part (`overlap_offload`). With `paged_states` the
/// device updates all, and moments come from the host's memory before that, and go back behind it.
bool offload_optimizer(Graph& graph, const PassContext& context);

}  // namespace plimsoll
