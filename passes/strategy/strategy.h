// A Strategy is every choice about how a job is split and scheduled. The search makes these
// choices, and passes make none.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "graph/grid.h"
#include "models/framework/framework.h"
#include "models/job/job.h"

/// Names a field, which may lie in a nested struct, as a function: FIELD(mp)(strategy) is
/// strategy.mp.
#define FIELD(path) \
  [](auto& of) -> auto& { return of.path; }

namespace plimsoll {

/// A SendLifetime says how long a sent boundary tensor lives.
enum class SendLifetime : std::uint8_t {
  event,      ///< until the host waits for the send, before its slot's next use
  held,       ///< to the end of the step, as before Paddle PR 34086
  published,  ///< freed as Paddle PRs 34086 and 34230 do
};
/// A ShardingOwner says which rank updates which tensors under sharding.
enum class ShardingOwner : std::uint8_t {
  elements,  ///< equal ranges of elements, whatever tensor they belong to
  prefix,    ///< whole tensors, by the prefix walk of Paddle's sharding (PR 35878)
  greedy,    ///< whole tensors, each to the least loaded rank in order of use
  /// whole tensors, each to the least loaded rank, from the largest to the smallest
  sorted_greedy,
};
/// A CollectiveFusion says how tensors become one collective in owner mode.
enum class CollectiveFusion : std::uint8_t {
  arena,      ///< they lie together from the start
  coalesced,  ///< copied together in every step, as fuse_opt_broadcast_param_ops does
  none,       ///< one collective each
};
/// A CastPlacement says where parameters are cast to the type of the computation.
enum class CastPlacement : std::uint8_t {
  fused,         ///< the update writes the parameters in that type
  after_update,  ///< a cast of its own, once per step (Paddle PR 34965)
  every_use,     ///< a cast in every forward and recompute; backward reads its copy
};
enum class Flatten : std::uint8_t {
  fused,      ///< one norm and one update over the arenas, with a table of segments
  coalesced,  ///< Paddle PR 33461: flat views made by coalesce ops, then one op of each kind
  none,       ///< ops of their own for every tensor
};
enum class GradReduction : std::uint8_t { at_end, per_micro_batch };
/// A GradientMerge says how the gradients of micro-batches are added to the step's gradients.
enum class GradientMerge : std::uint8_t {
  direct,  ///< backward adds to them (Megatron-LM's gradient accumulation fusion)
  /// backward writes buffers of the computed type, with a cast and an add for each group of tensors
  /// and micro-batch (Paddle's fuse_grad_merge, PR 35070)
  fused,
  tensor,  ///< a cast and an add for each tensor and micro-batch (Paddle before that PR)
};
/// A ParameterGather says which parameters are gathered at once in sharding stage 3, or broadcast
/// in owner mode.
enum class ParameterGather : std::uint8_t {
  layer,
  module,  ///< a weight with its bias, a norm with its bias
  tensor,
  use,      ///< owner mode: a broadcast before every op that reads a parameter
  segment,  ///< owner mode: once per segment of the step
};

/// How layers lie on stages, and what stages send.
struct PipelineChoices {
  std::int64_t virtual_stages = 1;  ///< chunks of layers per stage
  /// Layers of each stage, e.g. {3, 3, 2}; with virtual stages, of each chunk in model order. The
  /// stages that hold the embedding or the loss may have none, and any chunk may where its stage
  /// has layers elsewhere. Empty means as even as possible, where earlier chunks take the rest.
  std::vector<std::int64_t> layer_split;
  /// Where layer_split is empty, the embedding and the loss count as this many layers when layers
  /// are spread evenly. 1 and 1 are Megatron-LM's --account-for-embedding-in-pipeline-split and
  /// --account-for-loss-in-pipeline-split.
  std::int64_t embedding_as_layers = 0, loss_as_layers = 0;
  std::int64_t send_slots = 2;
  SendLifetime send_lifetime = SendLifetime::event;
  /// Each mp rank sends 1/mp of the boundary tensor, and the receivers gather it.
  bool split_boundary = false;
  bool operator==(const PipelineChoices&) const = default;
};

/// Strategy::recompute repeats these parts.
struct RecomputedChoices {
  std::int64_t layers = 0;          ///< the first layers of each chunk; 0 = all
  std::vector<std::int64_t> list;   ///< only these layers, counted over the model
  SetOf<RecomputedModule> modules;  ///< not empty exactly when recompute is modules
  bool operator==(const RecomputedChoices&) const = default;
};

/// The activations that lie in the host's memory between forward and backward.
struct OffloadedChoices {
  /// The share of the bytes that each layer keeps for backward, in percent. Whole tensors, the
  /// largest first, make up at most this share.
  std::int64_t percent = 0;
  std::int64_t layers = 0;  ///< the first layers of each chunk; 0 = all
  bool operator==(const OffloadedChoices&) const = default;
};

/// How ranks share the tokens of a sequence: over mp, and over cp.
struct TokenChoices {
  bool sequence_parallel = false;
  ContextExchange context_exchange = ContextExchange::ring;
  bool operator==(const TokenChoices&) const = default;
};

struct ExpertChoices {
  std::int64_t etp = 0;  ///< ranks that share each expert; 0: 1 with ep above 1, else mp
  ExpertDispatch dispatch = ExpertDispatch::all_to_all;
  /// Where experts are on several ranks, those of a rank have memory for this many rows, in percent
  /// of even routing. 0: rows_room() derives it (passes/strategy/expert_rows.h).
  std::int64_t rows_percent = 0;
  /// Whether shared experts compute while tokens travel to experts and back.
  bool overlap_shared = false;
  /// Whether the forward of one micro-batch and the backward of another are issued in turns, so
  /// that each computes while the other's tokens travel to experts and back.
  bool overlap_exchange = false;
  bool operator==(const ExpertChoices&) const = default;
};

struct PrecisionChoices {
  Fp8 fp8 = Fp8::none;
  /// Whether parameters that only 8-bit products read are kept and gathered in 8 bits.
  bool fp8_parameters = false;
  /// The type in which the gradients of a step are added up over its micro-batches and reduced over
  /// ranks. `computed` is the job's precision for all gradients (Megatron-LM in fp16 without
  /// --accumulate-allreduce-grads-in-fp32, in bf16 with --grad-reduce-in-bf16; Paddle's
  /// fp16_allreduce, PR 35004).
  GradientType gradients = GradientType::f32;
  /// The type of the gradients that the update reads. With f32 they are cast once per step, before
  /// the update.
  GradientType main_gradients = GradientType::f32;
  /// The type of the parameters on which the update works, in addition to those used in the
  /// computation.
  MasterType main_parameters = MasterType::f32;
  MomentType moments = MomentType::f32;  ///< both of them
  /// Whether updates of parameters in 16 bits round at random. Nearest rounding loses updates of
  /// less than half a unit in the last place (Zamirai et al. 2020, arXiv 2010.06192).
  bool stochastic_rounding = false;
  bool operator==(const PrecisionChoices&) const = default;
};

struct GradientChoices {
  Bytes bucket_bytes{std::int64_t{4} << 20};
  GradReduction reduction = GradReduction::at_end;
  GradientMerge merge = GradientMerge::direct;
  bool overlap = true;  ///< reductions overlap backward, where the framework can
  /// Whether a block's parameters are updated as soon as backward has their gradients, whose memory
  /// is then free (Lv et al. 2023, arXiv 2306.09782, section 3.1).
  bool release = false;
  bool operator==(const GradientChoices&) const = default;
};

struct OptimizerChoices {
  CastPlacement cast_placement = CastPlacement::fused;
  Flatten flatten = Flatten::fused;
  /// The share of the parameters that a rank updates whose masters and moments are in the host's
  /// memory, in percent. The host updates them.
  std::int64_t offload_percent = 0;
  /// Whether parts of them are copied while the host updates others.
  bool overlap_offload = false;
  /// Whether moments are in the host's memory but for the update, which the device does (paged
  /// optimizers, Dettmers et al. 2023, arXiv 2305.14314, section 3).
  bool paged = false;
  bool operator==(const OptimizerChoices&) const = default;
};

/// Which ranks update which tensors under sharding.
struct OwnerChoices {
  ShardingOwner sharding_owner = ShardingOwner::elements;
  CollectiveFusion collective_fusion = CollectiveFusion::arena;
  bool operator==(const OwnerChoices&) const = default;
};

/// How parameters are gathered. All but bucket_bytes and overlap are choices of sharding stage 3.
struct GatherChoices {
  ParameterGather unit = ParameterGather::layer;
  std::int64_t prefetch_depth = 1;  ///< gathers posted this many uses ahead
  Bytes max_live_bytes;             ///< limit of gathered parameters; 0 = no limit
  /// parameters used again within this many bytes are kept; 0 = all are freed
  Bytes reuse_distance_bytes;
  std::int64_t persistence_threshold = 0;  ///< tensors of up to this many elements stay whole
  bool keep = false;                       ///< parameters are kept from forward to backward
  Bytes segment_broadcast_bytes{std::int64_t{32} << 20};  ///< unit = segment
  Bytes bucket_bytes{std::int64_t{4} << 20};              ///< param_bucket_bytes in files
  bool overlap = true;  ///< gathers overlap forwards, where the framework can
  /// Whether a rank's part of the parameters is in the host's memory, and each gather begins with a
  /// copy to the device (Ren et al. 2021, arXiv 2101.06840; PyTorch FSDP's CPUOffloadPolicy).
  bool offload = false;
  bool operator==(const GatherChoices&) const = default;
};

/// Files and command lines state all fields side by side, by the keys of
/// passes/strategy/strategy_table.h.
struct Strategy {
  std::int64_t mp = 1, pp = 1, dp = 1;
  std::int64_t cp = 1;  ///< ranks that share the tokens of each sequence
  std::int64_t ep = 1;  ///< ranks that share out the experts of a layer
  std::int64_t sharding_degree = 1;
  /// At least 1 exactly when sharding_degree > 1 or cp shards alone; 3 also with gathers.offload.
  std::int64_t sharding_stage = 0;
  std::int64_t micro_batch = 1;  ///< sequences
  /// The parts of a micro-batch's tokens for each of which the head, with the loss, is called. A
  /// call also gives their gradients, so that only one part's logits exist (Hsu et al. 2024, Liger
  /// Kernel, arXiv 2410.10989, section 3.2).
  std::int64_t loss_chunks = 1;
  Schedule schedule = Schedule::one_f_one_b;
  Recompute recompute = Recompute::none;
  RankOrder rank_order = RankOrder::sharding_dp_pp;
  PipelineChoices pipeline;
  RecomputedChoices recomputed;
  OffloadedChoices offloaded;
  TokenChoices tokens;
  ExpertChoices experts;
  PrecisionChoices precision;
  GradientChoices gradients;
  OptimizerChoices optimizer;
  OwnerChoices owners;
  GatherChoices gathers;
  bool operator==(const Strategy&) const = default;
};

std::string_view to_text(Recompute recompute);

/// Returns the axes of an order from inner to outer.
std::array<Axis, kRankAxes> axes_of(RankOrder order);
Grid grid_of(const Strategy& strategy);
/// Returns the ranks that share each expert.
std::int64_t experts_tensor_parallel(const Strategy& strategy);
/// Returns whether experts have a grid of their own. Else each mp rank has a part of each expert.
bool experts_apart(const Strategy& strategy);
/// Returns whether experts have a grid of their own over ranks of mp, which then have tokens of
/// their own.
bool needs_sequence_parallel(const Strategy& strategy);
/// Returns whether both orders number the ranks of the strategy's degrees alike. Axes of one rank
/// do not count.
bool same_ranks(const Strategy& strategy, RankOrder a, RankOrder b);
/// Returns whether ranks of one stage run different Programs, because they own different tensors.
bool classes_by_owner(const Strategy& strategy);
/// Returns the number of ranks that each update a part of the same parameters: the ranks of
/// sharding and cp, or 1 where nothing is sharded.
std::int64_t optimizer_shards(const Strategy& strategy);
/// Returns the axes of these ranks that have more than one rank; it is empty where nothing is
/// sharded.
AxisSet shard_axes(const Strategy& strategy);
/// Returns the number of different Programs of a job, in the order of class_of (graph/program.h).
std::int64_t rank_classes(const Strategy& strategy);
/// Returns the micro-batches per step. Legal strategies divide exactly.
std::int64_t micro_batches(const Job& job, const Strategy& strategy);
/// Returns the layers of each part of the model, from its front. There are pp x virtual_stages
/// parts, one for each chunk of each stage (passes/strategy/pipeline_order.h says whose they are).
/// They follow from layer_split, embedding_as_layers and loss_as_layers.
std::vector<std::int64_t> layers_per_part(const Job& job, const Strategy& strategy);
/// Returns the layers on each stage.
std::vector<std::int64_t> layers_per_stage(const Job& job, const Strategy& strategy);

/// Returns whether backward recomputes layer `layer` (counted over the model), which is the
/// index-th of its part. Strategy::recompute says how much of the layer. With per_op every second
/// layer returns true and repeats the products of which every layer would repeat half.
bool recomputes(const Strategy& strategy, std::int64_t index, std::int64_t layer);

/// Lets the strategy repeat nothing, in any layer.
void drop_recompute(Strategy& strategy);

/// Checks the rules that a strategy must keep for this job on `devices` ranks
/// (docs/reference/strategy.md). The refusal names the rule and its numbers.
Verdict legal(const Job& job, const Strategy& strategy, std::int64_t devices);
/// Checks the rules that a framework adds (models/framework/capabilities.h). A refusal names the
/// limit's source. Selective recompute also needs scores that could be dropped.
Verdict legal(const Framework& framework, const Strategy& strategy);
/// Checks these rules, and those that depend on the job: cp goes with its attention
/// (latent_exchange, sink_exchange, alibi_exchange), and without uneven_split every part has
/// equally many layers.
Verdict legal(const Framework& framework, const Job& job, const Strategy& strategy);
/// Returns the exchanges of cp that a framework has for the job's attention.
SetOf<ContextExchange> context_exchanges(const Framework& framework, const Job& job);
/// Returns whether attention is products and a softmax, whose scores are in memory, and not one
/// kernel.
bool keeps_scores(const Framework& framework, const Strategy& strategy);
/// Returns the type in which the framework adds up gradients of such a job unless a strategy states
/// it.
GradientType usual_gradient_type(const Framework& framework, const Job& job);

/// Returns the device memory of a rank that no tensor of its Program shows: the framework's context
/// and its communicators. Every rank is charged for those of the last stage, which has the most.
/// There is one communicator for mp, one for the pipeline's transfers, and one for ranks that read
/// different sequences. Where these are both shards and replicas, each of the two has its own. One
/// more is for mp x pp x shards, for the gradient norm, and one for the pipeline's two ends, for
/// tied embeddings.
Bytes memory_outside_program(const Job& job, const Strategy& strategy, const Framework& framework);

/// Sets one field from text, as `--fix KEY=VALUE` and "mp=2,pp=2" do. Values are integers, true or
/// false, the enumerators above by name ("1f1b" for one_f_one_b), or bytes as "4 MiB" or 4194304.
/// layer_split is "3+3+2" or "even", recompute_list "0+3" or "all", and recompute_modules
/// "norms+mlp" or "none". Throws UsageError for an unknown key (naming the nearest) or a bad value.
void set_field(Strategy& strategy, std::string_view key, std::string_view value);
/// Parses "mp=2,pp=2" or the JSON file at a path. In both, keys left out keep their defaults.
/// sharding_stage follows sharding_degree, and sequence_parallel needs_sequence_parallel(). Throws
/// UsageError (text) or InputError (file).
Strategy parse_strategy(std::string_view text_or_file);
Strategy strategy_from_json_text(std::string_view json, const std::string& file);
std::string strategy_text(const Strategy& strategy);  ///< canonical JSON text
/// Returns every key, in the order of files.
std::span<const std::string_view> strategy_keys();
/// Returns one field as `--fix` takes it.
std::string field_text(const Strategy& strategy, std::string_view key);
/// Returns whether summaries show the key whatever its value.
bool always_shown(std::string_view key);
/// Returns one line "mp=2 pp=1 dp=1 ...": the keys down to layer_split, and those other keys that
/// differ from their default.
std::string strategy_summary(const Strategy& strategy);

}  // namespace plimsoll
