// Strategy: every choice about how a job is split and scheduled. Passes make no choices of their
// own; the search makes all of them.
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

namespace plimsoll {

/// How long a sent boundary tensor lives.
enum class SendLifetime : std::uint8_t {
  event,      ///< until the host waits for the send, before its slot's next use
  held,       ///< to the end of the step, as before Paddle PR 34086
  published,  ///< freed as Paddle PRs 34086 and 34230 do
};
/// Who updates what under sharding.
enum class ShardingOwner : std::uint8_t {
  elements,       ///< equal ranges of elements, whatever tensor they belong to
  prefix,         ///< whole tensors, by the prefix walk of Paddle's sharding (PR 35878)
  greedy,         ///< whole tensors, each to the least loaded rank in order of use
  sorted_greedy,  ///< the same from the largest to the smallest
};
/// How tensors become one collective in owner mode.
enum class CollectiveFusion : std::uint8_t {
  arena,      ///< they lie together from the start
  coalesced,  ///< copied together in every step, as fuse_opt_broadcast_param_ops does
  none,       ///< one collective each
};
/// Where parameters become the type that is computed in.
enum class CastPlacement : std::uint8_t {
  fused,         ///< the update writes it
  after_update,  ///< a cast of its own, once per step (Paddle PR 34965)
  every_use,     ///< a cast in every forward and recompute; backward reads its copy
};
enum class Flatten : std::uint8_t {
  fused,      ///< one norm and one update over the arenas, with a table of segments
  coalesced,  ///< Paddle PR 33461: flat views made by coalesce ops, then one op of each kind
  none,       ///< ops of their own for every tensor
};
enum class GradReduction : std::uint8_t { at_end, per_micro_batch };
/// How the gradients of micro-batches become the step's, which are f32.
enum class GradientMerge : std::uint8_t {
  direct,  ///< backward adds to them (Megatron-LM's gradient accumulation fusion)
  fused,   ///< backward writes buffers of the type computed in: a cast and an add for each group of
           ///< tensors and micro-batch (Paddle's fuse_grad_merge, PR 35070)
  tensor,  ///< a cast and an add for each tensor and micro-batch (Paddle before it)
};
/// The parameters that are gathered at once in sharding stage 3, or broadcast in owner mode.
enum class ParameterGather : std::uint8_t {
  layer,
  module,  ///< a weight with its bias, a norm with its bias
  tensor,
  use,      ///< owner mode: before every op that reads it, without sharing
  segment,  ///< owner mode: once per segment of the step
};

struct Strategy {
  std::int64_t mp = 1, pp = 1, dp = 1;
  std::int64_t sharding_degree = 1;
  std::int64_t sharding_stage = 0;  ///< at least 1 exactly when sharding_degree > 1
  std::int64_t micro_batch = 1;     ///< sequences
  Schedule schedule = Schedule::one_f_one_b;
  Recompute recompute = Recompute::none;
  Bytes grad_bucket_bytes{std::int64_t{4} << 20};
  std::int64_t send_slots = 2;
  /// Layers per stage, e.g. {3, 3, 2}; with virtual stages, per chunk in model order. The first and
  /// the last chunk may have none: they hold the embedding and the loss. Empty = as even as
  /// possible, earlier ones take the rest.
  std::vector<std::int64_t> layer_split;
  /// Where layer_split is empty: how many layers the embedding and the loss count as when layers
  /// are spread evenly. 1 and 1 are Megatron-LM's --account-for-embedding-in-pipeline-split and
  /// --account-for-loss-in-pipeline-split.
  std::int64_t embedding_as_layers = 0, loss_as_layers = 0;

  RankOrder rank_order = RankOrder::sharding_dp_pp;

  // Pipeline.
  std::int64_t virtual_stages = 1;  ///< chunks of layers per stage
  SendLifetime send_lifetime = SendLifetime::event;
  bool split_boundary = false;  ///< mp ranks send 1/mp of the boundary tensor each and gather it

  // Layers.
  bool sequence_parallel = false;
  Fp8 fp8 = Fp8::none;
  /// Parameters that only 8-bit products read are kept and gathered in 8 bits.
  bool fp8_parameters = false;
  std::int64_t cp = 1;  ///< ranks that share the tokens of each sequence
  ContextExchange context_exchange = ContextExchange::ring;
  std::int64_t recompute_layers = 0;         ///< the first ones of each chunk; 0 = all
  std::vector<std::int64_t> recompute_list;  ///< just these, counted over the model

  // Optimizer and its collectives.
  CastPlacement cast_placement = CastPlacement::fused;
  Flatten flatten = Flatten::fused;
  ShardingOwner sharding_owner = ShardingOwner::elements;
  CollectiveFusion collective_fusion = CollectiveFusion::arena;
  Bytes param_bucket_bytes{std::int64_t{4} << 20};
  GradReduction grad_reduction = GradReduction::at_end;
  GradientMerge gradient_merge = GradientMerge::direct;
  /// In which the gradients of a step are added up over its micro-batches and reduced over ranks:
  /// computed is the job's precision, all of them (Megatron-LM in fp16 without
  /// --accumulate-allreduce-grads-in-fp32, in bf16 with --grad-reduce-in-bf16; Paddle's
  /// fp16_allreduce, PR 35004).
  GradientType gradient_type = GradientType::f32;
  /// In which the update reads them: f32 is cast once per step, before it.
  GradientType main_gradient_type = GradientType::f32;
  /// The type of the parameters that the update works on, beside those that are computed with.
  MasterType main_parameter_type = MasterType::f32;
  MomentType moment_type = MomentType::f32;                      ///< of both moments
  bool overlap_grad_reduce = true, overlap_param_gather = true;  ///< where the framework can

  // Sharding stage 3.
  ParameterGather gather = ParameterGather::layer;
  std::int64_t prefetch_depth = 1;         ///< gathers posted this many uses ahead
  Bytes max_live_bytes;                    ///< of gathered parameters; 0 = no limit
  Bytes reuse_distance_bytes;              ///< keep what is used again within this many; 0 = free
  std::int64_t persistence_threshold = 0;  ///< tensors of up to so many elements stay whole
  bool keep_gathered = false;              ///< from forward to backward
  Bytes segment_broadcast_bytes{std::int64_t{32} << 20};  ///< gather = segment
  bool operator==(const Strategy&) const = default;
};

std::string_view to_text(Recompute recompute);

/// Inner to outer.
std::array<Axis, kAxes> axes_of(RankOrder order);
Grid grid_of(const Strategy& strategy);
/// Whether both number the ranks of the strategy's degrees alike: axes of one rank do not count.
bool same_ranks(const Strategy& strategy, RankOrder a, RankOrder b);
/// Ranks of one stage run different Programs: whole tensors are owned.
bool classes_by_owner(const Strategy& strategy);
/// Ranks that each update a part of the same parameters: those of sharding and cp; 1 where nothing
/// is sharded.
std::int64_t optimizer_shards(const Strategy& strategy);
/// Their axes, those of more than one rank; empty where nothing is sharded.
AxisSet shard_axes(const Strategy& strategy);
/// Different Programs of a job, in the order of class_of (graph/program.h).
std::int64_t rank_classes(const Strategy& strategy);
/// micro-batches per step; legal strategies divide exactly.
std::int64_t micro_batches(const Job& job, const Strategy& strategy);
/// Layers of each part of the model, from its front: one part per chunk of each stage, pp x
/// virtual_stages of them (passes/strategy/pipeline_order.h says whose they are). Resolved from
/// layer_split, embedding_as_layers and loss_as_layers.
std::vector<std::int64_t> layers_per_part(const Job& job, const Strategy& strategy);
/// Layers on each stage, resolved.
std::vector<std::int64_t> layers_per_stage(const Job& job, const Strategy& strategy);

/// Whether backward repeats the layer (counted over the model), the index-th of its part: all
/// layers' forward, recompute says how much of it. With per_op: whether it is the layer that
/// repeats the products of which every layer would repeat half.
bool recomputes(const Strategy& strategy, std::int64_t index, std::int64_t layer);

/// The rules a strategy must keep for this job on `devices` ranks, each with its own reason:
/// product of degrees == devices; heads and ffn_hidden divisible by mp (the vocabulary is padded),
/// with sequence_parallel the sequence too, and mp above 1;
/// pp x virtual_stages at most the layers, with what embedding and loss count as; layer_split one
/// count per part, summing to the layers, 0 for the first and the last part only; virtual stages
/// only in 1F1B, with pp above 1 that divides the micro-batches; published send lifetimes only in
/// plain 1F1B with at least pp micro-batches; sharding stages 1 to 3 exactly when its degree is
/// above 1, choices about gathers in stage 3 only; global batch divisible by micro_batch x dp x
/// sharding_degree; with fp8 a 16-bit job whose layers' sizes are multiples of 16; gradient_type
/// computed in 16-bit jobs, where gradients are reduced once per step; send_slots >= 1;
/// grad_bucket_bytes >= 4 KiB.
Verdict legal(const Job& job, const Strategy& strategy, std::int64_t devices);
/// The rules a framework adds (models/framework/capabilities.h), each refused with the limit's
/// source; selective recompute also needs scores that could be dropped.
Verdict legal(const Framework& framework, const Strategy& strategy);
/// Checks these rules, and the rule that depends on the job: every part has as many layers.
Verdict legal(const Framework& framework, const Job& job, const Strategy& strategy);
/// The type in which the framework adds up gradients of such a job where nobody tells it otherwise.
GradientType usual_gradient_type(const Framework& framework, const Job& job);

/// Device memory of a rank that no tensor of its Program shows: the framework's context, and one
/// communicator for each set of ranks that the last stage, which has the most, communicates over:
/// mp; the pipeline's transfers; ranks that read different sequences, and where they are both
/// shards and replicas, each of the two; mp x pp x shards for the gradient norm; the pipeline's two
/// ends for tied embeddings. Charged to every rank.
Bytes memory_outside_program(const Job& job, const Strategy& strategy, const Framework& framework);

/// Sets one field from text, as `--fix KEY=VALUE` and "mp=2,pp=2" do: integers, true or false, the
/// enumerators above by name ("1f1b" for one_f_one_b), bytes as "4 MiB" or 4194304, layer_split
/// "3+3+2" or "even", recompute_list "0+3" or "all". Throws UsageError for an unknown key (naming
/// the nearest) or a bad value.
void set_field(Strategy& strategy, std::string_view key, std::string_view value);
/// "mp=2,pp=2" or the path of a JSON file. Here and in JSON, keys left out keep their defaults, and
/// sharding_stage follows sharding_degree. Throws UsageError (text) or InputError (file).
Strategy parse_strategy(std::string_view text_or_file);
Strategy strategy_from_json_text(std::string_view json, const std::string& file);
std::string strategy_text(const Strategy& strategy);  ///< canonical JSON text
/// Every key, in the order of files.
std::span<const std::string_view> strategy_keys();
/// One field as `--fix` takes it.
std::string field_text(const Strategy& strategy, std::string_view key);
/// Whether summaries show it whatever its value.
bool always_shown(std::string_view key);
/// "mp=2 pp=1 dp=1 ...", one line: the keys down to layer_split, of the others those that differ
/// from their default.
std::string strategy_summary(const Strategy& strategy);

}  // namespace plimsoll
