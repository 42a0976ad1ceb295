// The table of a strategy's fields, from which strategy_json.cpp makes all their text forms.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/units.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Degrees are bounded so that their product, in 128 bits, cannot overflow.
inline constexpr std::int64_t kMostDegree = std::int64_t{1} << 22;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

struct IntegerField {
  std::int64_t Strategy::*member;
  std::int64_t least, most;
};
using BytesField = Bytes Strategy::*;
using SwitchField = bool Strategy::*;

/// A field with a word for each enumerator, in their order.
struct ChoiceField {
  std::vector<std::string_view> words;
  std::size_t (*get)(const Strategy&);
  void (*set)(Strategy&, std::size_t);
};

template <auto Member, std::size_t count>
ChoiceField choice_field(const std::string_view (&words)[count]) {
  using Enum = std::remove_reference_t<decltype(std::declval<Strategy&>().*Member)>;
  return {{std::begin(words), std::end(words)},
          [](const Strategy& s) { return std::size_t(s.*Member); },
          [](Strategy& s, std::size_t i) { s.*Member = Enum(i); }};
}

/// A list of integers joined by +, where 32x3 is a 3 thirty-two times; `none` is the word for an
/// empty one, `example` a legal one.
struct ListField {
  std::vector<std::int64_t> Strategy::*member;
  std::int64_t least;
  std::string_view none;
  std::string_view example;
};

/// A set of words joined by +; "none" is the empty one.
struct SetField {
  std::span<const std::string_view> words;
  bool (*has)(const Strategy&, std::size_t);
  void (*clear)(Strategy&);
  void (*add)(Strategy&, std::size_t);
};
inline constexpr SetField kModulesField = {
    kRecomputedModules,
    [](const Strategy& s, std::size_t i) { return s.recompute_modules.has(RecomputedModule(i)); },
    [](Strategy& s) { s.recompute_modules = {}; },
    [](Strategy& s, std::size_t i) { s.recompute_modules.add(RecomputedModule(i)); }};
inline constexpr std::string_view kEmptySet = "none";

struct Field {
  std::string_view key;
  std::variant<IntegerField, BytesField, SwitchField, ChoiceField, ListField, SetField> form;
};
/// In the order of summaries and files.
inline const std::vector<Field> kFields = {
    {"mp", IntegerField{&Strategy::mp, 1, kMostDegree}},
    {"pp", IntegerField{&Strategy::pp, 1, kMostDegree}},
    {"dp", IntegerField{&Strategy::dp, 1, kMostDegree}},
    {"sharding_degree", IntegerField{&Strategy::sharding_degree, 1, kMostDegree}},
    {"sharding_stage", IntegerField{&Strategy::sharding_stage, 0, 3}},
    {"micro_batch", IntegerField{&Strategy::micro_batch, 1, std::int64_t{1} << 24}},
    {"schedule", choice_field<&Strategy::schedule>(kSchedules)},
    {"recompute", choice_field<&Strategy::recompute>(kRecomputes)},
    {"grad_bucket_bytes", &Strategy::grad_bucket_bytes},
    {"send_slots", IntegerField{&Strategy::send_slots, 1, std::int64_t{1} << 20}},
    {"layer_split", ListField{&Strategy::layer_split, 0, "even", "3+3+2"}},
    {"rank_order", choice_field<&Strategy::rank_order>(kRankOrders)},
    {"virtual_stages", IntegerField{&Strategy::virtual_stages, 1, std::int64_t{1} << 16}},
    {"embedding_as_layers", IntegerField{&Strategy::embedding_as_layers, 0, std::int64_t{1} << 16}},
    {"loss_as_layers", IntegerField{&Strategy::loss_as_layers, 0, std::int64_t{1} << 16}},
    {"send_lifetime", choice_field<&Strategy::send_lifetime>({"event", "held", "published"})},
    {"split_boundary", &Strategy::split_boundary},
    {"sequence_parallel", &Strategy::sequence_parallel},
    {"fp8", choice_field<&Strategy::fp8>(kFp8s)},
    {"fp8_parameters", &Strategy::fp8_parameters},
    {"cp", IntegerField{&Strategy::cp, 1, kMostDegree}},
    {"context_exchange", choice_field<&Strategy::context_exchange>(kContextExchanges)},
    {"ep", IntegerField{&Strategy::ep, 1, kMostDegree}},
    {"etp", IntegerField{&Strategy::etp, 0, kMostDegree}},
    {"expert_dispatch", choice_field<&Strategy::expert_dispatch>(kExpertDispatches)},
    {"expert_rows_percent", IntegerField{&Strategy::expert_rows_percent, 0, std::int64_t{1} << 30}},
    {"overlap_shared_experts", &Strategy::overlap_shared_experts},
    {"overlap_expert_exchange", &Strategy::overlap_expert_exchange},
    {"recompute_layers", IntegerField{&Strategy::recompute_layers, 0, std::int64_t{1} << 16}},
    {"recompute_list", ListField{&Strategy::recompute_list, 0, "all", "0+3"}},
    {"recompute_modules", kModulesField},
    {"cast_placement",
     choice_field<&Strategy::cast_placement>({"fused", "after_update", "every_use"})},
    {"flatten", choice_field<&Strategy::flatten>({"fused", "coalesced", "none"})},
    {"sharding_owner",
     choice_field<&Strategy::sharding_owner>({"elements", "prefix", "greedy", "sorted_greedy"})},
    {"collective_fusion",
     choice_field<&Strategy::collective_fusion>({"arena", "coalesced", "none"})},
    {"param_bucket_bytes", &Strategy::param_bucket_bytes},
    {"grad_reduction", choice_field<&Strategy::grad_reduction>({"at_end", "per_micro_batch"})},
    {"gradient_merge", choice_field<&Strategy::gradient_merge>({"direct", "fused", "tensor"})},
    {"gradient_type", choice_field<&Strategy::gradient_type>(kGradientTypes)},
    {"main_gradient_type", choice_field<&Strategy::main_gradient_type>(kGradientTypes)},
    {"main_parameter_type", choice_field<&Strategy::main_parameter_type>(kMasterTypes)},
    {"moment_type", choice_field<&Strategy::moment_type>(kMomentTypes)},
    {"overlap_grad_reduce", &Strategy::overlap_grad_reduce},
    {"overlap_param_gather", &Strategy::overlap_param_gather},
    {"offload_optimizer_percent", IntegerField{&Strategy::offload_optimizer_percent, 0, 100}},
    {"overlap_offload", &Strategy::overlap_offload},
    {"gather", choice_field<&Strategy::gather>({"layer", "module", "tensor", "use", "segment"})},
    {"prefetch_depth", IntegerField{&Strategy::prefetch_depth, 0, std::int64_t{1} << 16}},
    {"max_live_bytes", &Strategy::max_live_bytes},
    {"reuse_distance_bytes", &Strategy::reuse_distance_bytes},
    {"persistence_threshold", IntegerField{&Strategy::persistence_threshold, 0, kMostBytes}},
    {"keep_gathered", &Strategy::keep_gathered},
    {"segment_broadcast_bytes", &Strategy::segment_broadcast_bytes},
};
/// A summary names these always, the others where they are not the default.
inline constexpr std::size_t kAlwaysInSummary = 11;

}  // namespace plimsoll
