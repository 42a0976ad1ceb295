// Layer modules are the parts of a layer that backward may repeat by themselves.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "models/framework/capabilities.h"

namespace plimsoll {

/// One module of one layer: the norm before attention, say.
struct LayerModule {
  RecomputedModule kind = RecomputedModule::norms;
  std::vector<bool> ops;  ///< by forward op, whether it belongs to the module
};

/// Returns the modules of these kinds among the forward ops of a layer's block, in any order. No
/// op is in two of them. Casts and collectives that passes have added belong to the module which
/// alone reads them. Of modules that end in a collective, it belongs to them, too.
///
/// Bounds of modules follow from kinds of ops and from who reads whose results. They are those of
/// Megatron-LM: megatron/core/transformer/transformer_layer.py (layernorm, mlp, moe),
/// multi_latent_attention.py (mla_up_proj), moe/experts.py (moe_act), moe/moe_layer.py
/// (shared_experts), attention.py (core_attn).
std::vector<LayerModule> layer_modules(const Graph& graph, std::span<const Op> forward,
                                       SetOf<RecomputedModule> kinds);

/// Returns whether an op is in the attention core: the products, the cap of scores, the softmax and
/// its dropout between query, key, value and the context.
bool in_attention_core(const Graph& graph, std::span<const Op> ops, const Op& op);

/// Returns whether a module is a function of its own that a checkpoint repeats with its output. Of
/// the others only the discarded output is computed again.
bool is_checkpointed(RecomputedModule kind);

/// Returns whether a module is repeated as a whole, in frameworks that do so
/// (Framework::parallelism.recompute_repeats_all), also where backward needs a part of it.
bool is_repeated_whole(RecomputedModule kind);

}  // namespace plimsoll
