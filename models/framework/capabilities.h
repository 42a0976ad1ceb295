// Capabilities say which strategies a framework can run. Each limit names the document or code that
// states it. legal() in passes/strategy/strategy.h applies them. The defaults are those of the
// bundled runtime, which runs all that needs no other kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/tensor.h"
#include "models/kinds/set_of.h"

namespace plimsoll {

// Frameworks differ in these choices of a strategy. The arrays have their words in files and in
// text.

enum class Schedule : std::uint8_t {
  one_f_one_b,  ///< with virtual_stages > 1, Megatron-LM's interleaved order
  gpipe,        ///< all forwards, then all backwards
  zb_h1,        ///< 1F1B with late weight gradients (Qi et al. 2023, arXiv 2401.10241)
  zb_h2,        ///< the same with more forwards in flight (the same paper)
  zb_v,         ///< two chunks per stage, placed as a V (the same paper, section 6)
  v_half,       ///< a V that keeps half as much (Qi et al. 2024, arXiv 2405.15362)
  v_min,        ///< a V that keeps a third (the same paper)
  dualpipe_v,   ///< the half of DualPipe that is placed as a V (DeepSeek-V3, arXiv 2412.19437)
  dualpipe,     ///< two such halves, each of which ends the micro-batches of the other
};
inline constexpr std::string_view kSchedules[] = {
    "1f1b", "gpipe", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v", "dualpipe"};

/// A Recompute is what backward repeats instead of keeping it. none: nothing. selective: the
/// attention core of each layer (Korthikanti et al. 2022, arXiv 2205.05198). full: each layer.
/// per_op: all of each layer but attention and every second linear layer (Liang et al. 2024, arXiv
/// 2410.06511, section 2.1). modules: some modules of each layer (Strategy::recomputed.modules).
enum class Recompute : std::uint8_t { none, selective, full, per_op, modules };
inline constexpr std::string_view kRecomputes[] = {"none", "selective", "full", "per_op",
                                                   "modules"};

/// A RecomputedModule is a part of a layer that backward may repeat by itself. The parts and their
/// bounds are those of Megatron-LM's --recompute-modules (megatron/core/transformer).
enum class RecomputedModule : std::uint8_t {
  core_attention,        ///< what Recompute::selective repeats: scores, softmax and context
  norms,                 ///< the norms that read the residual stream
  latent_up_projection,  ///< latent attention: from normed latents to query, key and value
  mlp,                   ///< the MLP of layers without experts
  experts,               ///< the mixture: router, exchanges, experts and shared experts
  expert_activation,     ///< the activation between the two products of experts
  shared_experts,        ///< the MLP beside the experts that all tokens pass through
};
inline constexpr std::string_view kRecomputedModules[] = {
    "core_attention",    "norms",         "latent_up_projection", "mlp", "experts",
    "expert_activation", "shared_experts"};

/// RecomputedLayers are the layers that a recompute of whole layers repeats.
enum class RecomputedLayers : std::uint8_t {
  all,
  first,  ///< the first ones of each stage, or of each of its chunks (Strategy::recomputed.layers)
  every_nth,  ///< layers k, k + n, k + 2n, ... with k below n (Strategy::recomputed.list)
  listed,     ///< any layers (Strategy::recomputed.list)
};
inline constexpr std::string_view kRecomputedLayers[] = {"all", "first", "every_nth", "listed"};

/// An Fp8 says how the operands of linear layers of the blocks are scaled in 8-bit floating point.
/// delayed: by the largest value of earlier steps; current: by the tensor's own largest value. Both
/// are as in Transformer Engine (recipes DelayedScaling and Float8CurrentScaling). tensorwise and
/// rowwise: by the largest value of the tensor or of each row, as in torchao
/// (docs/how-it-works/layers.md). Everything else keeps the job's type.
/// mxfp8 and blockwise: by the largest value of each block of 32 or 128, as in the recipes
/// MXFP8BlockScaling and Float8BlockScaling.
enum class Fp8 : std::uint8_t { none, delayed, current, tensorwise, rowwise, mxfp8, blockwise };
inline constexpr std::string_view kFp8s[] = {"none",    "delayed", "current",  "tensorwise",
                                             "rowwise", "mxfp8",   "blockwise"};
/// Returns whether blocks have scales. Rows and columns of a tensor then differ in their scales.
inline bool scales_blocks(Fp8 recipe) { return recipe == Fp8::mxfp8 || recipe == Fp8::blockwise; }
/// Returns whether weights may be cast once in a step, and parameters may be these 8-bit copies:
/// with the recipes of Transformer Engine.
inline bool casts_weights_once(Fp8 recipe) {
  return recipe == Fp8::delayed || recipe == Fp8::current || scales_blocks(recipe);
}

/// A ContextExchange is how ranks that share sequences exchange keys and values
/// (docs/how-it-works/splitting-layers.md).
enum class ContextExchange : std::uint8_t { ring, all_gather, all_to_all };
inline constexpr std::string_view kContextExchanges[] = {"ring", "all_gather", "all_to_all"};

/// An ExpertDispatch says how tokens reach the ranks of their experts.
enum class ExpertDispatch : std::uint8_t {
  all_to_all,  ///< each row goes to the rank of its expert
  all_gather,  ///< all ranks get all tokens, and the sums of their rows are scattered
};
inline constexpr std::string_view kExpertDispatches[] = {"all_to_all", "all_gather"};

/// A GradientType is a type of gradients: f32, or the job's precision.
enum class GradientType : std::uint8_t { f32, computed };
inline constexpr std::string_view kGradientTypes[] = {"f32", "computed"};

/// A MasterType is a type of the parameters that the update works on, where the job is in 16 bits.
enum class MasterType : std::uint8_t {
  f32,
  f16,
  remainder,  ///< the 16 bits of the f32 value that are not in the bf16 parameter
  none,       ///< there are none: the update works on the parameters in their own 16 bits
};
inline constexpr std::string_view kMasterTypes[] = {"f32", "f16", "remainder", "none"};

/// An ExpertOverlap is what a forward and a backward that are issued in turns
/// (Strategy::experts.overlap_exchange) go with, at the same time.
enum class ExpertOverlap : std::uint8_t {
  plain,             ///< without a pipeline, and with several chunks on each stage
  one_chunk,         ///< a pipeline with one chunk on each stage
  full_recompute,    ///< of whole layers, or op by op
  expert_recompute,  ///< of mixtures of experts alone
  all_gather,        ///< ExpertDispatch::all_gather
  shared_experts,    ///< Strategy::experts.overlap_shared
};
inline constexpr std::string_view kExpertOverlaps[] = {
    "plain", "one_chunk", "full_recompute", "expert_recompute", "all_gather", "shared_experts"};

/// An ActivationOffload is a form, or a companion, of activations in the host's memory
/// (Strategy::offloaded).
enum class ActivationOffload : std::uint8_t {
  all_layers,
  first_layers,  ///< Strategy::offloaded.layers above 0
  share,         ///< Strategy::offloaded.percent below 100
  recompute,     ///< layers are recomputed, too
  pipeline,      ///< pp above 1
};
inline constexpr std::string_view kActivationOffloads[] = {"all_layers", "first_layers", "share",
                                                           "recompute", "pipeline"};

/// A MomentType is a type of the optimizer's moments. fp8 and block8 have 8 bits; block8 also has
/// an f32 scale for 256 of them (8-bit Adam, Dettmers et al. 2022, arXiv 2110.02861, section 2.1).
enum class MomentType : std::uint8_t { f32, bf16, f16, fp8, block8 };
inline constexpr std::string_view kMomentTypes[] = {"f32", "bf16", "f16", "fp8", "block8"};

/// A RankOrder is the order in which ranks are numbered, with the axis that changes fastest first.
/// Ranks that split tensors (mp) come first, then ranks that split sequences (cp).
enum class RankOrder : std::uint8_t {
  sharding_dp_pp,
  sharding_pp_dp,
  pp_sharding_dp,
  dp_sharding_pp,
  dp_pp_sharding,
  pp_dp_sharding,
};
inline constexpr std::string_view kRankOrders[] = {"mp-cp-sharding-dp-pp", "mp-cp-sharding-pp-dp",
                                                   "mp-cp-pp-sharding-dp", "mp-cp-dp-sharding-pp",
                                                   "mp-cp-dp-pp-sharding", "mp-cp-pp-dp-sharding"};

/// A Sourced value is what a framework has of one kind of choice, with the document or code that
/// says so. The source is empty where nothing is missing. Numbers in sources are always part of a
/// word: the search groups refusals by their text, without its numbers.
template <class T>
struct Sourced {
  T value{};
  std::string source{};
  bool operator==(const Sourced&) const = default;
};

/// How ranks may share the work.
struct RankCapabilities {
  Sourced<bool> pipeline{true};
  Sourced<bool> tensor_parallel{true};
  /// Whether several ranks may each have the whole model: alone, and with pipelines or split
  /// tensors.
  Sourced<bool> replicas{true}, replicas_beside_others{true};
  /// The stages of ZeRO (Strategy::sharding_stage) without and with a pipeline. In a pipeline,
  /// stage 1 is any scheme that keeps gradients and parameters whole until the last micro-batch.
  Sourced<SetOf<std::int64_t>> sharding_stages{{1, 2, 3}}, pipeline_sharding_stages{{1, 2, 3}};
  /// Whether several sets of ranks may each shard one copy of the model (dp and sharding_degree
  /// above 1).
  Sourced<bool> replicated_shards{true};
  /// Whether a rank may own whole tensors (Strategy::owners.sharding_owner).
  Sourced<bool> whole_owners{true};
  /// Whether a rank may own whole tensors that are updated one by one, as Muon's matrices are.
  Sourced<bool> matrix_owners{true};
  /// The orders in which the framework can number ranks (Strategy::rank_order).
  Sourced<SetOf<RankOrder>> orders{{RankOrder::sharding_dp_pp, RankOrder::sharding_pp_dp,
                                    RankOrder::pp_sharding_dp, RankOrder::dp_sharding_pp,
                                    RankOrder::dp_pp_sharding, RankOrder::pp_dp_sharding}};
  bool operator==(const RankCapabilities&) const = default;
};

struct PipelineCapabilities {
  Sourced<SetOf<Schedule>> schedules{{Schedule::one_f_one_b, Schedule::gpipe, Schedule::zb_h1,
                                      Schedule::zb_h2, Schedule::zb_v, Schedule::v_half,
                                      Schedule::v_min, Schedule::dualpipe_v, Schedule::dualpipe}};
  Sourced<bool> virtual_stages{true};
  /// Whether stages, or their chunks, may have different numbers of layers, and whether those at
  /// the ends may have none.
  Sourced<bool> uneven_split{true}, empty_parts{true};
  Sourced<bool> split_boundary{true};
  bool operator==(const PipelineCapabilities&) const = default;
};

struct RecomputeCapabilities {
  Sourced<SetOf<Recompute>> recompute{{Recompute::none, Recompute::selective, Recompute::full}};
  Sourced<SetOf<RecomputedLayers>> layers{{RecomputedLayers::all, RecomputedLayers::first,
                                           RecomputedLayers::every_nth, RecomputedLayers::listed}};
  /// The modules that Recompute::modules may choose.
  Sourced<SetOf<RecomputedModule>> modules;
  /// Whether the head gives gradients of a part of the tokens at once (Strategy::loss_chunks).
  Sourced<bool> loss_chunks{false};
  bool operator==(const RecomputeCapabilities&) const = default;
};

/// How ranks may share the tokens of a sequence (Strategy::cp). Where the set of `context` is
/// empty, they cannot.
struct ExchangeCapabilities {
  Sourced<SetOf<ContextExchange>> context;
  /// The exchanges among them that also go with latent attention, whose keys and values differ in
  /// width.
  Sourced<SetOf<ContextExchange>> latent{
      {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all}};
  /// The exchanges among them that also go with sinks, and with ALiBi.
  Sourced<SetOf<ContextExchange>> sinks{
      {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all}};
  Sourced<SetOf<ContextExchange>> alibi;
  bool operator==(const ExchangeCapabilities&) const = default;
};

struct ExpertCapabilities {
  /// How tokens may reach experts on other ranks (Strategy::ep). Where the set is empty, every rank
  /// has all experts.
  Sourced<SetOf<ExpertDispatch>> dispatch;
  /// Whether another number of ranks may share each expert than share the other layers
  /// (Strategy::experts.etp).
  Sourced<bool> tensor_parallel{false};
  /// The stages of ZeRO with which ranks may share both experts and sequences (ep and cp above 1).
  Sourced<SetOf<std::int64_t>> context_stages{{1, 2, 3}};
  /// The choices with which a forward and a backward in turns go
  /// (Strategy::experts.overlap_exchange). Where the set is empty, they cannot be issued in turns.
  Sourced<SetOf<ExpertOverlap>> overlap_exchange;
  /// With which dispatches shared experts may compute (Strategy::experts.overlap_shared).
  Sourced<SetOf<ExpertDispatch>> overlap_shared;
  bool operator==(const ExpertCapabilities&) const = default;
};

/// Precision of products, of gradients and of the optimizer's state.
struct PrecisionCapabilities {
  Sourced<SetOf<Fp8>> fp8{{Fp8::none}};
  /// Whether linear layers' parameters can be kept and gathered in 8 bits
  /// (Strategy::precision.fp8_parameters).
  Sourced<bool> fp8_parameters{false};
  Sourced<SetOf<GradientType>> gradient_types{{GradientType::f32, GradientType::computed}};
  /// Precisions of jobs whose gradients have the computed type unless the strategy says otherwise.
  Sourced<SetOf<DType>> computed_by_default;
  /// Types of the gradients that the update reads.
  Sourced<SetOf<GradientType>> main_gradient_types{{GradientType::f32}};
  Sourced<SetOf<MasterType>> master_types{{MasterType::f32}};
  Sourced<SetOf<MomentType>> moment_types{{MomentType::f32}};
  /// Whether narrow gradients, masters and moments, and parameters in 8 bits, also work without
  /// sharding.
  Sourced<bool> narrow_states_unsharded{true};
  /// Whether backward updates parameters as soon as their gradients are there
  /// (Strategy::gradients.release).
  Sourced<bool> release_gradients{false};
  bool operator==(const PrecisionCapabilities&) const = default;
};

/// Whether the host can update a share of the parameters (Strategy::optimizer.offload_percent), and
/// whether parts of them are copied during its work (Strategy::optimizer.overlap_offload). Whether,
/// and with what, its memory holds activations (Strategy::offloaded): where the set is empty,
/// never. Whether it holds moments between updates (Strategy::optimizer.paged), and parameters
/// (Strategy::gathers.offload).
struct OffloadCapabilities {
  Sourced<bool> optimizer{false}, overlap{false};
  Sourced<bool> paged_states{false}, parameters{false};
  Sourced<SetOf<ActivationOffload>> activations;
  bool operator==(const OffloadCapabilities&) const = default;
};

/// Sharding stage 3.
struct GatherCapabilities {
  Sourced<std::int64_t> most_prefetch_depth{std::int64_t{1} << 16};
  Sourced<bool> keeps{true};  ///< Strategy::gathers.keep
  /// Whether a strategy may set max_live_bytes, reuse_distance_bytes and persistence_threshold.
  Sourced<bool> live_limits{true};
  bool operator==(const GatherCapabilities&) const = default;
};

struct Capabilities {
  RankCapabilities ranks;
  PipelineCapabilities pipelines;
  RecomputeCapabilities repeats;
  ExchangeCapabilities exchanges;
  ExpertCapabilities experts;
  PrecisionCapabilities precision;
  OffloadCapabilities offload;
  GatherCapabilities gathers;
  bool operator==(const Capabilities&) const = default;
};

}  // namespace plimsoll
