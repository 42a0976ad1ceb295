// A framework has rules for a strategy, and takes device memory beside a Program.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <vector>

#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/stage_layout.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {
namespace {

/// A rule refuses a strategy that asks for what the framework does not have.
struct Rule {
  std::string_view key;  ///< of the field that asks
  bool (*is_broken)(const Framework&, const Strategy&);
  std::string_view limit;  ///< stands behind the framework's name
  /// Null: the limit follows from how the framework runs ops.
  const std::string& (*source)(const Capabilities&) = nullptr;
  bool (*applies)(const Strategy&) = nullptr;   ///< null: to every strategy
  std::array<std::string_view, 2> beside = {};  ///< other fields that the reason names
};

const Strategy kUsual;

using SourceOf = const std::string& (*)(const Capabilities&);
using Question = bool (*)(const Strategy&);

template <class Capability>
constexpr SourceOf source_of(Capability) {
  return [](const Capabilities& can) -> const std::string& { return Capability{}(can).source; };
}

/// Returns whether a field has another value than the default.
template <class Field>
constexpr Question asks(Field) {
  return [](const Strategy& strategy) { return Field{}(strategy) != Field{}(kUsual); };
}

/// A field other than the default requires a switch, or a set of choices that is not empty.
template <class Capability, class Field>
constexpr Rule has(Capability, Field, std::string_view key, std::string_view limit,
                   Question applies = nullptr, std::array<std::string_view, 2> beside = {}) {
  const auto is_broken = [](const Framework& framework, const Strategy& strategy) {
    const auto& value = Capability{}(framework.can).value;
    if constexpr (std::is_same_v<decltype(value), const bool&>) {
      return !value && asks(Field{})(strategy);
    } else {
      return value.empty() && asks(Field{})(strategy);
    }
  };
  return {key, is_broken, limit, source_of(Capability{}), applies, beside};
}

/// The value of a field has to be one of a set of choices.
template <class Capability, class Field>
constexpr Rule has_own(Capability, Field, std::string_view key, std::string_view limit,
                       Question applies = nullptr, std::array<std::string_view, 2> beside = {}) {
  const auto is_broken = [](const Framework& framework, const Strategy& strategy) {
    return !Capability{}(framework.can).value.has(Field{}(strategy));
  };
  return {key, is_broken, limit, source_of(Capability{}), applies, beside};
}

/// A forward and a backward in turns go with some choices alone.
template <ExpertOverlap Choice>
constexpr Rule overlaps(std::string_view limit, Question applies = nullptr) {
  const auto is_broken = [](const Framework& framework, const Strategy& strategy) {
    return strategy.experts.overlap_exchange &&
           !framework.can.experts.overlap_exchange.value.has(Choice);
  };
  return {"overlap_expert_exchange", is_broken, limit, source_of(FIELD(experts.overlap_exchange)),
          applies};
}

/// Offloaded activations of which `applies` holds need a form or a companion of offload.
template <ActivationOffload Choice>
constexpr Rule offloads(std::string_view key, std::string_view limit, Question applies) {
  const auto is_broken = [](const Framework& framework, const Strategy& strategy) {
    return strategy.offloaded.percent > 0 && !framework.can.offload.activations.value.has(Choice);
  };
  return {key, is_broken, limit, source_of(FIELD(offload.activations)), applies};
}

bool shards(const Strategy& strategy) { return strategy.sharding_stage > 0; }
bool shards_matrices(const Strategy& s) {
  return shards(s) && s.optimizer.flatten == Flatten::none;
}
bool has_whole_states(const Strategy& strategy) { return !shards(strategy); }
bool shares_sequences(const Strategy& strategy) { return strategy.cp > 1; }
bool has_whole_replicas(const Strategy& strategy) { return strategy.sharding_degree == 1; }
bool shares_experts(const Strategy& strategy) { return strategy.ep > 1; }
bool is_reordered(const Strategy& strategy) { return asks(FIELD(schedule))(strategy); }
bool recomputes_some(const Strategy& strategy) { return strategy.recompute != Recompute::none; }

/// Experts are split otherwise than without a choice of etp.
bool has_own_etp(const Strategy& strategy) {
  return experts_tensor_parallel(strategy) != (strategy.ep > 1 ? 1 : strategy.mp);
}

/// The default order stands for any order that numbers the ranks alike.
bool lacks_order(const Framework& framework, const Strategy& strategy) {
  const SetOf<RankOrder>& orders = framework.can.ranks.orders.value;
  if (orders.has(strategy.rank_order)) return false;
  const RankOrder usual = kUsual.rank_order;
  for (std::size_t i = 0; i < std::size(kRankOrders) && strategy.rank_order == usual; ++i) {
    if (orders.has(RankOrder(i)) && same_ranks(strategy, RankOrder(i), usual)) return false;
  }
  return true;
}

/// Kernels that send a token once to each node take the place of the exchange.
bool lacks_shared_overlap(const Framework& framework, const Strategy& strategy) {
  return strategy.experts.overlap_shared &&
         (framework.parallelism.sends_tokens_once_per_node ||
          !framework.can.experts.overlap_shared.value.has(strategy.experts.dispatch));
}

/// A stage that waits until its tensor is received would wait for one that waits for it, too.
bool waits_for_transfers(const Framework& framework, const Strategy& strategy) {
  const bool deep = strategy.schedule == Schedule::zb_h2 || is_placed_as_v(strategy.schedule);
  return deep && (framework.host.waits.for_launches ||
                  framework.host.waits.transfers_hold != TransfersHold::nothing);
}

/// Frameworks count from different layers, so the list may begin with any of the first n.
bool is_every_nth(const std::vector<std::int64_t>& list) {
  const std::int64_t step = list.size() > 1 ? list[1] - list[0] : list[0] + 1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != list[0] + std::int64_t(i) * step) return false;
  }
  return list[0] < step;
}

/// A framework that can list layers can also list those whose attention cores are repeated.
template <class Field>
bool lacks_layers(const Framework& framework, const Strategy& strategy) {
  if (!asks(Field{})(strategy)) return false;
  const SetOf<RecomputedLayers>& choices = framework.can.repeats.layers.value;
  const RecomputedLayers layers = strategy.recomputed.layers > 0 ? RecomputedLayers::first
                                  : is_every_nth(strategy.recomputed.list)
                                      ? RecomputedLayers::every_nth
                                      : RecomputedLayers::listed;
  const bool whole = strategy.recompute == Recompute::full;
  return !choices.has(RecomputedLayers::listed) && !(whole && choices.has(layers));
}

template <class Field>
constexpr Rule lists_layers(Field, std::string_view key) {
  return {key,
          lacks_layers<Field>,
          "does not choose layers so",
          source_of(FIELD(repeats.layers)),
          recomputes_some,
          {"recompute"}};
}

bool lacks_scores(const Framework& framework, const Strategy& strategy) {
  return !keeps_scores(framework, strategy);
}

constexpr std::string_view kNoType = "has no such type", kNoLimit = "has no such limit",
                           kEvenParts = "has as many layers in each part",
                           kNoScores = "has flash attention, which keeps no scores to drop",
                           kNarrow = "has narrow states with a distributed optimizer alone";

constexpr std::array<std::string_view, 2> kStage = {"sharding_stage"};

/// The rules that follow from a strategy and a framework alone. Of several that a strategy breaks,
/// the first is the reason. Modules that are recomputed, each by its name, and what a job adds are
/// judged after these.
constexpr Rule kRules[] = {
    has(FIELD(ranks.pipeline), FIELD(pp), "pp", "has no pipeline stages"),
    has(FIELD(ranks.tensor_parallel), FIELD(mp), "mp", "does not split tensors"),
    {"sequence_parallel",
     [](auto& framework, auto& s) {
       return s.tokens.sequence_parallel && !framework.parallelism.sequence_parallel;
     },
     "does not split tokens"},
    has(FIELD(ranks.replicas), FIELD(dp), "dp", "has no whole replicas", has_whole_replicas),
    has(FIELD(ranks.replicas_beside_others), FIELD(dp), "dp",
        "has whole replicas without shards only if nothing is split",
        [](auto& s) { return s.sharding_degree == 1 && s.mp * s.pp * s.cp > 1; }),
    {"rank_order", lacks_order, "supports other rank orders only", source_of(FIELD(ranks.orders))},

    has(FIELD(exchanges.context), FIELD(cp), "cp", "has whole sequences on each rank"),
    {.key = "cp",
     .is_broken = keeps_scores,
     .limit = "keeps attention scores, of whole sequences",
     .applies = shares_sequences},
    has_own(FIELD(exchanges.context), FIELD(tokens.context_exchange), "context_exchange",
            "shares sequences otherwise", shares_sequences),

    has(FIELD(experts.dispatch), FIELD(ep), "ep", "has all experts on each rank"),
    has_own(FIELD(experts.dispatch), FIELD(experts.dispatch), "expert_dispatch",
            "sends tokens otherwise", shares_experts),
    has(FIELD(experts.tensor_parallel), FIELD(experts.etp), "etp", "has whole experts",
        [](auto& s) { return has_own_etp(s) && (s.ep > 1 || s.mp == 1); }),
    has(FIELD(experts.tensor_parallel), FIELD(experts.etp), "etp",
        "splits experts as it splits other layers", has_own_etp),
    has_own(FIELD(experts.context_stages), FIELD(sharding_stage), "ep",
            "splits no sequences if experts have this stage",
            [](auto& s) { return s.ep > 1 && s.cp > 1 && shards(s); }, {"cp", "sharding_stage"}),
    overlaps<ExpertOverlap::plain>("computes nothing while tokens travel to experts"),
    overlaps<ExpertOverlap::one_chunk>(
        "needs several virtual_stages with it",
        [](auto& s) { return s.pp > 1 && s.pipeline.virtual_stages == 1; }),
    overlaps<ExpertOverlap::full_recompute>(
        "recomputes no whole layers with it",
        [](auto& s) { return s.recompute == Recompute::full || s.recompute == Recompute::per_op; }),
    overlaps<ExpertOverlap::expert_recompute>(
        "recomputes no experts with it",
        [](auto& s) { return s.recomputed.modules.has(RecomputedModule::experts); }),
    overlaps<ExpertOverlap::all_gather>(
        "needs expert_dispatch all_to_all with it",
        [](auto& s) { return s.experts.dispatch == ExpertDispatch::all_gather; }),
    overlaps<ExpertOverlap::shared_experts>("has no overlap_shared_experts with it",
                                            asks(FIELD(experts.overlap_shared))),
    {"overlap_shared_experts", lacks_shared_overlap,
     "does not overlap shared experts with this dispatch",
     source_of(FIELD(experts.overlap_shared))},

    has(FIELD(ranks.sharding_stages), FIELD(sharding_degree), "sharding_degree",
        "has no distributed optimizer"),
    has_own(FIELD(ranks.pipeline_sharding_stages), FIELD(sharding_stage), "sharding_stage",
            "has no such stage with a pipeline", [](auto& s) { return shards(s) && s.pp > 1; }),
    has_own(FIELD(ranks.sharding_stages), FIELD(sharding_stage), "sharding_stage",
            "has no such stage", [](auto& s) { return shards(s) && s.pp == 1; }),
    has(FIELD(ranks.replicated_shards), FIELD(dp), "dp", "has no replicas of shards", shards,
        {"sharding_degree"}),
    has(FIELD(ranks.whole_owners), FIELD(owners.sharding_owner), "sharding_owner",
        "has no owners of tensors", [](auto& s) { return shards(s) && !shards_matrices(s); }),
    has(FIELD(ranks.matrix_owners), FIELD(owners.sharding_owner), "sharding_owner",
        "has no owners of matrices", shards_matrices),
    {.key = "prefetch_depth",
     .is_broken =
         [](auto& framework, auto& s) {
           return s.gathers.prefetch_depth > framework.can.gathers.most_prefetch_depth.value;
         },
     .limit = "gathers fewer ahead",
     .source = source_of(FIELD(gathers.most_prefetch_depth)),
     .applies = [](auto& s) { return s.sharding_stage == 3; }},
    has(FIELD(gathers.keeps), FIELD(gathers.keep), "keep_gathered", "gathers again in backward"),
    has(FIELD(gathers.live_limits), FIELD(gathers.max_live_bytes), "max_live_bytes", kNoLimit),
    has(FIELD(gathers.live_limits), FIELD(gathers.reuse_distance_bytes), "reuse_distance_bytes",
        kNoLimit),
    has(FIELD(gathers.live_limits), FIELD(gathers.persistence_threshold), "persistence_threshold",
        kNoLimit),

    // One stage has an order of its micro-batches, too.
    has(FIELD(ranks.pipeline), FIELD(schedule), "schedule", "has no pipelines that it would order"),
    has_own(FIELD(pipelines.schedules), FIELD(schedule), "schedule", "has other schedules",
            is_reordered),
    {"schedule", waits_for_transfers, "waits for each transfer"},
    has(FIELD(pipelines.virtual_stages), FIELD(pipeline.virtual_stages), "virtual_stages",
        "has one part on each stage"),
    // The simulator has no order of these transfers in which nobody waits forever.
    {"virtual_stages",
     [](auto& framework, auto& s) {
       return framework.host.waits.for_launches && s.pipeline.virtual_stages > 1;
     },
     "waits for each launch (CUDA_LAUNCH_BLOCKING=1)"},
    has(FIELD(pipelines.split_boundary), FIELD(pipeline.split_boundary), "split_boundary",
        "sends whole tensors between stages"),
    has(FIELD(pipelines.uneven_split), FIELD(pipeline.embedding_as_layers), "embedding_as_layers",
        kEvenParts),
    has(FIELD(pipelines.uneven_split), FIELD(pipeline.loss_as_layers), "loss_as_layers",
        kEvenParts),
    has(FIELD(pipelines.uneven_split), FIELD(pipeline.layer_split), "layer_split", kEvenParts,
        [](auto& s) {
          return std::ranges::adjacent_find(s.pipeline.layer_split, std::not_equal_to()) !=
                 s.pipeline.layer_split.end();
        }),
    has(FIELD(pipelines.empty_parts), FIELD(pipeline.layer_split), "layer_split",
        "has layers in each part",
        [](auto& s) {
          return std::ranges::find(s.pipeline.layer_split, 0) != s.pipeline.layer_split.end();
        }),

    {.key = "recompute",
     .is_broken = lacks_scores,
     .limit = kNoScores,
     .applies = [](auto& s) { return s.recompute == Recompute::selective; }},
    has_own(FIELD(repeats.recompute), FIELD(recompute), "recompute", "does not choose by op",
            [](auto& s) { return s.recompute == Recompute::per_op; }),
    has_own(FIELD(repeats.recompute), FIELD(recompute), "recompute", "does not choose by module",
            [](auto& s) { return s.recompute == Recompute::modules; }),
    has_own(FIELD(repeats.recompute), FIELD(recompute), "recompute", "recomputes whole layers only",
            recomputes_some),
    lists_layers(FIELD(recomputed.layers), "recompute_layers"),
    lists_layers(FIELD(recomputed.list), "recompute_list"),
    has(FIELD(repeats.loss_chunks), FIELD(loss_chunks), "loss_chunks",
        "computes the loss of all tokens at once"),

    {"fp8",
     [](auto& framework,
        auto&) { return framework.can.precision.fp8.value == SetOf<Fp8>{Fp8::none}; },
     "has no products of 8-bit operands", source_of(FIELD(precision.fp8)),
     asks(FIELD(precision.fp8))},
    has_own(FIELD(precision.fp8), FIELD(precision.fp8), "fp8", "scales otherwise"),
    has_own(FIELD(precision.gradient_types), FIELD(precision.gradients), "gradient_type", kNoType),
    has(FIELD(precision.release_gradients), FIELD(gradients.release), "release_gradients",
        "updates parameters behind backward"),
    has_own(FIELD(precision.main_gradient_types), FIELD(precision.main_gradients),
            "main_gradient_type", kNoType),
    has_own(FIELD(precision.master_types), FIELD(precision.main_parameters), "main_parameter_type",
            kNoType),
    has_own(FIELD(precision.moment_types), FIELD(precision.moments), "moment_type", kNoType),
    has(FIELD(precision.fp8_parameters), FIELD(precision.fp8_parameters), "fp8_parameters",
        "keeps them in the job's type"),
    // The host updates parameters that its memory holds.
    has(FIELD(offload.optimizer), FIELD(optimizer.offload_percent), "offload_optimizer_percent",
        "updates all parameters on the device", [](auto& s) { return !s.gathers.offload; }),
    has(FIELD(offload.parameters), FIELD(gathers.offload), "offload_parameters",
        "keeps parameters on the device"),
    has(FIELD(offload.optimizer), FIELD(gathers.offload), "offload_parameters",
        "updates on the host if parameters are there",
        [](auto& s) { return s.optimizer.offload_percent < 100; }),
    has(FIELD(offload.overlap), FIELD(optimizer.overlap_offload), "overlap_offload",
        "copies all of them before and after the update"),
    has(FIELD(offload.paged_states), FIELD(optimizer.paged), "paged_states",
        "keeps moments on the device"),
    has(FIELD(offload.activations), FIELD(offloaded.percent), "offload_activations_percent",
        "keeps activations on the device"),
    offloads<ActivationOffload::all_layers>("offload_activations_layers",
                                            "leaves some layers on the device",
                                            [](auto& s) { return s.offloaded.layers == 0; }),
    offloads<ActivationOffload::first_layers>("offload_activations_layers", "chooses no layers",
                                              [](auto& s) { return s.offloaded.layers > 0; }),
    offloads<ActivationOffload::share>("offload_activations_percent", "offloads whole layers",
                                       [](auto& s) { return s.offloaded.percent < 100; }),
    offloads<ActivationOffload::recompute>("offload_activations_percent",
                                           "recomputes no layers with it", recomputes_some),
    offloads<ActivationOffload::pipeline>("offload_activations_percent", "has no pipeline with it",
                                          [](auto& s) { return s.pp > 1; }),
    has(FIELD(precision.narrow_states_unsharded), FIELD(precision.main_gradients),
        "main_gradient_type", kNarrow, has_whole_states, kStage),
    has(FIELD(precision.narrow_states_unsharded), FIELD(precision.main_parameters),
        "main_parameter_type", kNarrow, has_whole_states, kStage),
    has(FIELD(precision.narrow_states_unsharded), FIELD(precision.moments), "moment_type", kNarrow,
        has_whole_states, kStage),
    has(FIELD(precision.narrow_states_unsharded), FIELD(precision.fp8_parameters), "fp8_parameters",
        kNarrow, has_whole_states, kStage),
};

/// Says what is asked for, why the framework does not have it, and where that is stated.
Verdict refuse(const std::string& asked, const Framework& framework, std::string_view limit,
               const std::string& source) {
  return Verdict::no(source.empty()
                         ? fmt::format("{}; {} {}", asked, framework.name, limit)
                         : fmt::format("{}; {} {} ({})", asked, framework.name, limit, source));
}

/// Returns "pp is 2", and the key alone of a switch that is on.
std::string asked_text(const Strategy& strategy, std::string_view key,
                       const std::array<std::string_view, 2>& beside) {
  std::string text(key);
  if (const std::string value = field_text(strategy, key); value != "true") text += " is " + value;
  std::string_view joint = "with";
  for (const std::string_view other : beside) {
    if (other.empty()) break;
    text += fmt::format(" {} {} {}", joint, other, field_text(strategy, other));
    joint = "and";
  }
  return text;
}

Verdict modules_are_possible(const Framework& framework, const Strategy& strategy) {
  const auto& modules = strategy.recomputed.modules;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    const auto& known = framework.can.repeats.modules;
    if (modules.has(RecomputedModule(i)) && !known.value.has(RecomputedModule(i)))
      return refuse(fmt::format("recompute_modules names {}", kRecomputedModules[i]), framework,
                    "does not repeat it by itself", known.source);
  }
  if (modules.has(RecomputedModule::core_attention) && lacks_scores(framework, strategy))
    return refuse("recompute_modules names core_attention", framework, kNoScores, "");
  return Verdict::yes();
}

using Exchanges = const Sourced<SetOf<ContextExchange>>&;
template <class Capability>
constexpr auto exchanges_of(Capability) {
  return [](const Capabilities& can) -> Exchanges { return Capability{}(can); };
}

/// A part of attention that goes with some exchanges alone.
struct AttentionPart {
  std::string_view name;
  bool (*is_in)(const Job&);
  Exchanges (*exchanges)(const Capabilities&);
};
constexpr AttentionPart kAttentionParts[] = {
    {"latent attention", [](auto& job) { return job.latent.has_value(); },
     exchanges_of(FIELD(exchanges.latent))},
    {"sinks", [](auto& job) { return job.sinks; }, exchanges_of(FIELD(exchanges.sinks))},
    {"alibi", [](auto& job) { return job.alibi; }, exchanges_of(FIELD(exchanges.alibi))}};

Verdict exchange_is_possible(const Framework& framework, const Job& job, const Strategy& strategy) {
  for (const AttentionPart& part : kAttentionParts) {
    const auto& [exchanges, source] = part.exchanges(framework.can);
    if (strategy.cp == 1 || !part.is_in(job) || exchanges.has(strategy.tokens.context_exchange))
      continue;
    return exchanges.empty()
               ? refuse(asked_text(strategy, "cp", {}), framework,
                        fmt::format("has whole sequences of {} on each rank", part.name), source)
               : refuse(asked_text(strategy, "context_exchange", {}), framework,
                        fmt::format("shares sequences of {} otherwise", part.name), source);
  }
  return Verdict::yes();
}

Verdict owners_are_possible(const Framework& framework, const Job& job, const Strategy& strategy) {
  const RankCapabilities& can = framework.can.ranks;
  const bool asks_for_owners = shards(strategy) && asks(FIELD(owners.sharding_owner))(strategy);
  if (!asks_for_owners || can.whole_owners.value || job.optimizer.kind == OptimizerKind::muon)
    return Verdict::yes();
  return refuse(asked_text(strategy, "sharding_owner", {}), framework,
                "has owners of Muon's matrices alone", can.matrix_owners.source);
}

/// A framework that offloads the first layers alone keeps at least one on the device.
Verdict offload_is_possible(const Framework& framework, const Job& job, const Strategy& strategy) {
  const auto& [forms, source] = framework.can.offload.activations;
  if (strategy.offloaded.percent == 0 || forms.has(ActivationOffload::all_layers) ||
      strategy.offloaded.layers < total_layers(job))
    return Verdict::yes();
  return refuse(asked_text(strategy, "offload_activations_layers", {}), framework,
                "leaves some layers on the device", source);
}

Verdict parts_are_possible(const Framework& framework, const Job& job, const Strategy& strategy) {
  const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages,
                     layers = dealt_layers(job);
  const auto no = [&](std::string_view relation, std::string_view limit, const auto& capability) {
    return refuse(fmt::format("pp {} x virtual_stages {} {} the {} layers", strategy.pp,
                              strategy.pipeline.virtual_stages, relation, layers),
                  framework, limit, capability.source);
  };
  const Capabilities& can = framework.can;
  if (layers < parts && !can.pipelines.empty_parts.value)
    return no("is more than", "has layers in each part", can.pipelines.empty_parts);
  if (layers % parts != 0 && !can.pipelines.uneven_split.value)
    return no("do not divide", kEvenParts, can.pipelines.uneven_split);
  return Verdict::yes();
}

}  // namespace

bool keeps_scores(const Framework& framework, const Strategy& strategy) {
  const bool by_parts = strategy.cp > 1 && framework.kernels.attention.by_parts;
  return !framework.kernels.attention.flash && !by_parts;
}

Verdict legal(const Framework& framework, const Strategy& strategy) {
  for (const auto& [key, is_broken, limit, source, applies, beside] : kRules) {
    if ((applies != nullptr && !applies(strategy)) || !is_broken(framework, strategy)) continue;
    return refuse(asked_text(strategy, key, beside), framework, limit,
                  source == nullptr ? "" : source(framework.can));
  }
  return modules_are_possible(framework, strategy);
}

SetOf<ContextExchange> context_exchanges(const Framework& framework, const Job& job) {
  SetOf<ContextExchange> all;
  for (std::size_t i = 0; i < std::size(kContextExchanges); ++i) {
    const auto goes_with = [&](const AttentionPart& part) {
      return !part.is_in(job) || part.exchanges(framework.can).value.has(ContextExchange(i));
    };
    if (framework.can.exchanges.context.value.has(ContextExchange(i)) &&
        std::ranges::all_of(kAttentionParts, goes_with))
      all.add(ContextExchange(i));
  }
  return all;
}

Verdict legal(const Framework& framework, const Job& job, const Strategy& strategy) {
  if (Verdict verdict = legal(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = exchange_is_possible(framework, job, strategy); !verdict) return verdict;
  if (Verdict verdict = offload_is_possible(framework, job, strategy); !verdict) return verdict;
  if (Verdict verdict = owners_are_possible(framework, job, strategy); !verdict) return verdict;
  return parts_are_possible(framework, job, strategy);
}

GradientType usual_gradient_type(const Framework& framework, const Job& job) {
  return framework.can.precision.computed_by_default.value.has(job.precision)
             ? GradientType::computed
             : GradientType::f32;
}

}  // namespace plimsoll
