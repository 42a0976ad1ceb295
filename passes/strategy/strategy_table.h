// The table of a strategy's fields, from which strategy_json.cpp makes all their text forms.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/units.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Degrees are bounded so that their product, in 128 bits, cannot overflow.
inline constexpr std::int64_t kMostDegree = std::int64_t{1} << 22;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

struct IntegerField {
  std::string_view key;
  std::int64_t Strategy::*member;
  std::int64_t least, most;
};

inline constexpr IntegerField kIntegers[] = {
    {"mp", &Strategy::mp, 1, kMostDegree},
    {"pp", &Strategy::pp, 1, kMostDegree},
    {"dp", &Strategy::dp, 1, kMostDegree},
    {"sharding_degree", &Strategy::sharding_degree, 1, kMostDegree},
    {"sharding_stage", &Strategy::sharding_stage, 0, 3},
    {"micro_batch", &Strategy::micro_batch, 1, std::int64_t{1} << 24},
    {"send_slots", &Strategy::send_slots, 1, std::int64_t{1} << 20},
    {"cp", &Strategy::cp, 1, kMostDegree},
    {"ep", &Strategy::ep, 1, kMostDegree},
    {"etp", &Strategy::etp, 0, kMostDegree},
    {"expert_rows_percent", &Strategy::expert_rows_percent, 0, std::int64_t{1} << 30},
    {"offload_optimizer_percent", &Strategy::offload_optimizer_percent, 0, 100},
    {"virtual_stages", &Strategy::virtual_stages, 1, std::int64_t{1} << 16},
    {"embedding_as_layers", &Strategy::embedding_as_layers, 0, std::int64_t{1} << 16},
    {"loss_as_layers", &Strategy::loss_as_layers, 0, std::int64_t{1} << 16},
    {"recompute_layers", &Strategy::recompute_layers, 0, std::int64_t{1} << 16},
    {"prefetch_depth", &Strategy::prefetch_depth, 0, std::int64_t{1} << 16},
    {"persistence_threshold", &Strategy::persistence_threshold, 0, kMostBytes},
};

struct BytesField {
  std::string_view key;
  Bytes Strategy::*member;
};
inline constexpr BytesField kByteCounts[] = {
    {"grad_bucket_bytes", &Strategy::grad_bucket_bytes},
    {"param_bucket_bytes", &Strategy::param_bucket_bytes},
    {"max_live_bytes", &Strategy::max_live_bytes},
    {"reuse_distance_bytes", &Strategy::reuse_distance_bytes},
    {"segment_broadcast_bytes", &Strategy::segment_broadcast_bytes},
};

struct SwitchField {
  std::string_view key;
  bool Strategy::*member;
};
inline constexpr SwitchField kSwitches[] = {
    {"split_boundary", &Strategy::split_boundary},
    {"sequence_parallel", &Strategy::sequence_parallel},
    {"overlap_grad_reduce", &Strategy::overlap_grad_reduce},
    {"overlap_param_gather", &Strategy::overlap_param_gather},
    {"overlap_offload", &Strategy::overlap_offload},
    {"keep_gathered", &Strategy::keep_gathered},
    {"fp8_parameters", &Strategy::fp8_parameters},
    {"overlap_shared_experts", &Strategy::overlap_shared_experts},
    {"overlap_expert_exchange", &Strategy::overlap_expert_exchange},
};

/// A field with a word for each enumerator, in their order.
struct ChoiceField {
  std::string_view key;
  std::vector<std::string_view> words;
  std::size_t (*get)(const Strategy&);
  void (*set)(Strategy&, std::size_t);
};

template <auto Member, std::size_t count>
ChoiceField choice_field(std::string_view key, const std::string_view (&words)[count]) {
  using Enum = std::remove_reference_t<decltype(std::declval<Strategy&>().*Member)>;
  return {key,
          {std::begin(words), std::end(words)},
          [](const Strategy& s) { return std::size_t(s.*Member); },
          [](Strategy& s, std::size_t i) { s.*Member = Enum(i); }};
}

inline const std::vector<ChoiceField> kChoices = {
    choice_field<&Strategy::schedule>("schedule", kSchedules),
    choice_field<&Strategy::recompute>("recompute", kRecomputes),
    choice_field<&Strategy::rank_order>("rank_order", kRankOrders),
    choice_field<&Strategy::send_lifetime>("send_lifetime", {"event", "held", "published"}),
    choice_field<&Strategy::cast_placement>("cast_placement",
                                            {"fused", "after_update", "every_use"}),
    choice_field<&Strategy::flatten>("flatten", {"fused", "coalesced", "none"}),
    choice_field<&Strategy::sharding_owner>("sharding_owner",
                                            {"elements", "prefix", "greedy", "sorted_greedy"}),
    choice_field<&Strategy::collective_fusion>("collective_fusion", {"arena", "coalesced", "none"}),
    choice_field<&Strategy::grad_reduction>("grad_reduction", {"at_end", "per_micro_batch"}),
    choice_field<&Strategy::gradient_merge>("gradient_merge", {"direct", "fused", "tensor"}),
    choice_field<&Strategy::gradient_type>("gradient_type", kGradientTypes),
    choice_field<&Strategy::main_gradient_type>("main_gradient_type", kGradientTypes),
    choice_field<&Strategy::main_parameter_type>("main_parameter_type", kMasterTypes),
    choice_field<&Strategy::moment_type>("moment_type", kMomentTypes),
    choice_field<&Strategy::fp8>("fp8", kFp8s),
    choice_field<&Strategy::context_exchange>("context_exchange", kContextExchanges),
    choice_field<&Strategy::expert_dispatch>("expert_dispatch", kExpertDispatches),
    choice_field<&Strategy::gather>("gather", {"layer", "module", "tensor", "use", "segment"}),
};

/// A list of integers joined by +, where 32x3 is a 3 thirty-two times; `none` is the word for an
/// empty one, `example` a legal one.
struct ListField {
  std::string_view key;
  std::vector<std::int64_t> Strategy::*member;
  std::int64_t least;
  std::string_view none;
  std::string_view example;
};
inline constexpr ListField kLists[] = {
    {"layer_split", &Strategy::layer_split, 0, "even", "3+3+2"},
    {"recompute_list", &Strategy::recompute_list, 0, "all", "0+3"}};

/// A set of words joined by +; "none" is the empty one.
struct SetField {
  std::string_view key;
  std::span<const std::string_view> words;
  bool (*has)(const Strategy&, std::size_t);
  void (*clear)(Strategy&);
  void (*add)(Strategy&, std::size_t);
};
inline constexpr SetField kSets[] = {
    {"recompute_modules", kRecomputedModules,
     [](const Strategy& s, std::size_t i) { return s.recompute_modules.has(RecomputedModule(i)); },
     [](Strategy& s) { s.recompute_modules = {}; },
     [](Strategy& s, std::size_t i) { s.recompute_modules.add(RecomputedModule(i)); }}};
inline constexpr std::string_view kEmptySet = "none";

/// In the order of summaries and files.
inline constexpr std::string_view kKeys[] = {"mp",
                                             "pp",
                                             "dp",
                                             "sharding_degree",
                                             "sharding_stage",
                                             "micro_batch",
                                             "schedule",
                                             "recompute",
                                             "grad_bucket_bytes",
                                             "send_slots",
                                             "layer_split",
                                             "rank_order",
                                             "virtual_stages",
                                             "embedding_as_layers",
                                             "loss_as_layers",
                                             "send_lifetime",
                                             "split_boundary",
                                             "sequence_parallel",
                                             "fp8",
                                             "fp8_parameters",
                                             "cp",
                                             "context_exchange",
                                             "ep",
                                             "etp",
                                             "expert_dispatch",
                                             "expert_rows_percent",
                                             "overlap_shared_experts",
                                             "overlap_expert_exchange",
                                             "recompute_layers",
                                             "recompute_list",
                                             "recompute_modules",
                                             "cast_placement",
                                             "flatten",
                                             "sharding_owner",
                                             "collective_fusion",
                                             "param_bucket_bytes",
                                             "grad_reduction",
                                             "gradient_merge",
                                             "gradient_type",
                                             "main_gradient_type",
                                             "main_parameter_type",
                                             "moment_type",
                                             "overlap_grad_reduce",
                                             "overlap_param_gather",
                                             "offload_optimizer_percent",
                                             "overlap_offload",
                                             "gather",
                                             "prefetch_depth",
                                             "max_live_bytes",
                                             "reuse_distance_bytes",
                                             "persistence_threshold",
                                             "keep_gathered",
                                             "segment_broadcast_bytes"};
/// A summary names these always, the others where they are not the default.
inline constexpr std::size_t kAlwaysInSummary = 11;

}  // namespace plimsoll
