// The table of a strategy's fields, from which strategy_json.cpp makes all their text forms.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/units.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Degrees are bounded so that their product, in 128 bits, cannot overflow.
inline constexpr std::int64_t kMostDegree = std::int64_t{1} << 22;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

/// A Member is where a field lies in a strategy.
template <class Value>
struct Member {
  template <std::invocable<Strategy&> Function>
  constexpr Member(Function)  // NOLINT(google-explicit-constructor)
      : of([](Strategy& s) -> Value& { return Function{}(s); }),
        in([](const Strategy& s) -> const Value& { return Function{}(s); }) {}
  Value& (*of)(Strategy&);
  const Value& (*in)(const Strategy&);
};

struct IntegerField {
  Member<std::int64_t> place;
  std::int64_t least, most;
};
struct BytesField {
  Member<Bytes> place;
};
struct SwitchField {
  Member<bool> place;
};

/// A field with a word for each enumerator, in their order.
struct ChoiceField {
  std::vector<std::string_view> words;
  std::size_t (*get)(const Strategy&);
  void (*set)(Strategy&, std::size_t);
};

template <class Function, std::size_t count>
ChoiceField choice_field(Function, const std::string_view (&words)[count]) {
  using Enum = std::remove_reference_t<std::invoke_result_t<Function, Strategy&>>;
  return {{std::begin(words), std::end(words)},
          [](const Strategy& s) { return std::size_t(Function{}(s)); },
          [](Strategy& s, std::size_t i) { Function{}(s) = Enum(i); }};
}

/// A list of integers joined by +, where 32x3 is a 3 thirty-two times; `none` is the word for an
/// empty one, `example` a legal one.
struct ListField {
  Member<std::vector<std::int64_t>> place;
  std::int64_t least;
  std::string_view none;
  std::string_view example;
};

/// A set of words joined by +; "none" is the empty one.
struct SetField {
  Member<SetOf<RecomputedModule>> place;
  std::span<const std::string_view> words;
};
inline constexpr std::string_view kEmptySet = "none";

struct Field {
  std::string_view key;
  std::variant<IntegerField, BytesField, SwitchField, ChoiceField, ListField, SetField> form;
};
/// In the order of summaries and files.
inline const std::vector<Field> kFields = {
    {"mp", IntegerField{FIELD(mp), 1, kMostDegree}},
    {"pp", IntegerField{FIELD(pp), 1, kMostDegree}},
    {"dp", IntegerField{FIELD(dp), 1, kMostDegree}},
    {"sharding_degree", IntegerField{FIELD(sharding_degree), 1, kMostDegree}},
    {"sharding_stage", IntegerField{FIELD(sharding_stage), 0, 3}},
    {"micro_batch", IntegerField{FIELD(micro_batch), 1, std::int64_t{1} << 24}},
    {"schedule", choice_field(FIELD(schedule), kSchedules)},
    {"recompute", choice_field(FIELD(recompute), kRecomputes)},
    {"grad_bucket_bytes", BytesField{FIELD(gradients.bucket_bytes)}},
    {"send_slots", IntegerField{FIELD(pipeline.send_slots), 1, std::int64_t{1} << 20}},
    {"layer_split", ListField{FIELD(pipeline.layer_split), 0, "even", "3+3+2"}},
    {"rank_order", choice_field(FIELD(rank_order), kRankOrders)},
    {"virtual_stages", IntegerField{FIELD(pipeline.virtual_stages), 1, std::int64_t{1} << 16}},
    {"embedding_as_layers",
     IntegerField{FIELD(pipeline.embedding_as_layers), 0, std::int64_t{1} << 16}},
    {"loss_as_layers", IntegerField{FIELD(pipeline.loss_as_layers), 0, std::int64_t{1} << 16}},
    {"send_lifetime", choice_field(FIELD(pipeline.send_lifetime), {"event", "held", "published"})},
    {"split_boundary", SwitchField{FIELD(pipeline.split_boundary)}},
    {"sequence_parallel", SwitchField{FIELD(tokens.sequence_parallel)}},
    {"fp8", choice_field(FIELD(precision.fp8), kFp8s)},
    {"fp8_parameters", SwitchField{FIELD(precision.fp8_parameters)}},
    {"cp", IntegerField{FIELD(cp), 1, kMostDegree}},
    {"context_exchange", choice_field(FIELD(tokens.context_exchange), kContextExchanges)},
    {"ep", IntegerField{FIELD(ep), 1, kMostDegree}},
    {"etp", IntegerField{FIELD(experts.etp), 0, kMostDegree}},
    {"expert_dispatch", choice_field(FIELD(experts.dispatch), kExpertDispatches)},
    {"expert_rows_percent", IntegerField{FIELD(experts.rows_percent), 0, std::int64_t{1} << 30}},
    {"overlap_shared_experts", SwitchField{FIELD(experts.overlap_shared)}},
    {"overlap_expert_exchange", SwitchField{FIELD(experts.overlap_exchange)}},
    {"recompute_layers", IntegerField{FIELD(recomputed.layers), 0, std::int64_t{1} << 16}},
    {"recompute_list", ListField{FIELD(recomputed.list), 0, "all", "0+3"}},
    {"recompute_modules", SetField{FIELD(recomputed.modules), kRecomputedModules}},
    {"loss_chunks", IntegerField{FIELD(loss_chunks), 1, std::int64_t{1} << 16}},
    {"cast_placement",
     choice_field(FIELD(optimizer.cast_placement), {"fused", "after_update", "every_use"})},
    {"flatten", choice_field(FIELD(optimizer.flatten), {"fused", "coalesced", "none"})},
    {"sharding_owner",
     choice_field(FIELD(owners.sharding_owner), {"elements", "prefix", "greedy", "sorted_greedy"})},
    {"collective_fusion",
     choice_field(FIELD(owners.collective_fusion), {"arena", "coalesced", "none"})},
    {"param_bucket_bytes", BytesField{FIELD(gathers.bucket_bytes)}},
    {"grad_reduction", choice_field(FIELD(gradients.reduction), {"at_end", "per_micro_batch"})},
    {"gradient_merge", choice_field(FIELD(gradients.merge), {"direct", "fused", "tensor"})},
    {"release_gradients", SwitchField{FIELD(gradients.release)}},
    {"gradient_type", choice_field(FIELD(precision.gradients), kGradientTypes)},
    {"main_gradient_type", choice_field(FIELD(precision.main_gradients), kGradientTypes)},
    {"main_parameter_type", choice_field(FIELD(precision.main_parameters), kMasterTypes)},
    {"moment_type", choice_field(FIELD(precision.moments), kMomentTypes)},
    {"stochastic_rounding", SwitchField{FIELD(precision.stochastic_rounding)}},
    {"overlap_grad_reduce", SwitchField{FIELD(gradients.overlap)}},
    {"overlap_param_gather", SwitchField{FIELD(gathers.overlap)}},
    {"offload_optimizer_percent", IntegerField{FIELD(optimizer.offload_percent), 0, 100}},
    {"overlap_offload", SwitchField{FIELD(optimizer.overlap_offload)}},
    {"paged_states", SwitchField{FIELD(optimizer.paged)}},
    {"offload_parameters", SwitchField{FIELD(gathers.offload)}},
    {"offload_activations_percent", IntegerField{FIELD(offloaded.percent), 0, 100}},
    {"offload_activations_layers", IntegerField{FIELD(offloaded.layers), 0, std::int64_t{1} << 16}},
    {"gather", choice_field(FIELD(gathers.unit), {"layer", "module", "tensor", "use", "segment"})},
    {"prefetch_depth", IntegerField{FIELD(gathers.prefetch_depth), 0, std::int64_t{1} << 16}},
    {"max_live_bytes", BytesField{FIELD(gathers.max_live_bytes)}},
    {"reuse_distance_bytes", BytesField{FIELD(gathers.reuse_distance_bytes)}},
    {"persistence_threshold", IntegerField{FIELD(gathers.persistence_threshold), 0, kMostBytes}},
    {"keep_gathered", SwitchField{FIELD(gathers.keep)}},
    {"segment_broadcast_bytes", BytesField{FIELD(gathers.segment_broadcast_bytes)}},
};
/// A summary names these always, the others where they are not the default.
inline constexpr std::size_t kAlwaysInSummary = 11;

}  // namespace plimsoll
