// A framework has rules for a strategy, and takes device memory beside a Program.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/stage_blocks.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {
namespace {

/// Says what is asked for, why the framework does not have it, and where that is stated.
Verdict refuse(const std::string& asked, const Framework& framework, std::string_view limit,
               const std::string& source) {
  return Verdict::no(source.empty()
                         ? fmt::format("{}; {} {}", asked, framework.name, limit)
                         : fmt::format("{}; {} {} ({})", asked, framework.name, limit, source));
}

std::string field_is(const Strategy& strategy, std::string_view key) {
  return fmt::format("{} is {}", key, field_text(strategy, key));
}

Verdict degrees_are_possible(const Framework& framework, const Strategy& strategy) {
  const Capabilities& can = framework.can;
  if (strategy.pp > 1 && !can.pipeline.value) {
    return refuse(field_is(strategy, "pp"), framework, "has no pipeline stages",
                  can.pipeline.source);
  }
  if (strategy.mp > 1 && !can.tensor_parallel.value) {
    return refuse(field_is(strategy, "mp"), framework, "does not split tensors",
                  can.tensor_parallel.source);
  }
  if (strategy.sequence_parallel && !framework.sequence_parallel) {
    return refuse("sequence_parallel", framework, "does not split tokens", "");
  }
  if (strategy.dp == 1 || strategy.sharding_degree > 1) return Verdict::yes();
  if (!can.replicas.value) {
    return refuse(field_is(strategy, "dp"), framework, "has no whole replicas",
                  can.replicas.source);
  }
  if (strategy.mp * strategy.pp * strategy.cp > 1 && !can.replicas_beside_others.value) {
    return refuse(fmt::format("dp is {} without sharding", strategy.dp), framework,
                  "has whole replicas only if nothing is split", can.replicas_beside_others.source);
  }
  return Verdict::yes();
}

/// The default order stands for any order that numbers the ranks alike.
Verdict order_is_possible(const Framework& framework, const Strategy& strategy) {
  const auto& orders = framework.can.rank_orders;
  if (orders.value.has(strategy.rank_order)) return Verdict::yes();
  const RankOrder usual = Strategy().rank_order;
  for (std::size_t i = 0; i < std::size(kRankOrders) && strategy.rank_order == usual; ++i) {
    if (orders.value.has(RankOrder(i)) && same_ranks(strategy, RankOrder(i), usual))
      return Verdict::yes();
  }
  return refuse(field_is(strategy, "rank_order"), framework, "supports other rank orders only",
                orders.source);
}

Verdict context_is_possible(const Framework& framework, const Strategy& strategy) {
  if (strategy.cp == 1) return Verdict::yes();
  const auto& exchanges = framework.can.context_exchange;
  if (exchanges.value.empty()) {
    return refuse(field_is(strategy, "cp"), framework, "has whole sequences on each rank",
                  exchanges.source);
  }
  if (keeps_scores(framework, strategy)) {
    return refuse(field_is(strategy, "cp"), framework, "keeps attention scores, of whole sequences",
                  "");
  }
  if (!exchanges.value.has(strategy.context_exchange)) {
    return refuse(field_is(strategy, "context_exchange"), framework, "shares sequences otherwise",
                  exchanges.source);
  }
  return Verdict::yes();
}

/// Returns the first choice beside which the framework issues no forward and backward in turns.
Verdict pairs_are_possible(const Framework& framework, const Strategy& strategy) {
  if (!strategy.overlap_expert_exchange) return Verdict::yes();
  const auto& can = framework.can.overlap_expert_exchange;
  const bool modules = strategy.recompute == Recompute::modules;
  const std::tuple<ExpertOverlap, bool, std::string_view> needs[] = {
      {ExpertOverlap::plain, true, "computes nothing while tokens travel to experts"},
      {ExpertOverlap::one_chunk, strategy.pp > 1 && strategy.virtual_stages == 1,
       "needs several virtual_stages with it"},
      {ExpertOverlap::full_recompute,
       strategy.recompute == Recompute::full || strategy.recompute == Recompute::per_op,
       "recomputes no whole layers with it"},
      {ExpertOverlap::expert_recompute,
       modules && strategy.recompute_modules.has(RecomputedModule::experts),
       "recomputes no experts with it"},
      {ExpertOverlap::all_gather, strategy.expert_dispatch == ExpertDispatch::all_gather,
       "needs expert_dispatch all_to_all with it"},
      {ExpertOverlap::shared_experts, strategy.overlap_shared_experts,
       "has no overlap_shared_experts with it"},
  };
  for (const auto& [overlap, needed, why] : needs) {
    if (needed && !can.value.has(overlap))
      return refuse("overlap_expert_exchange", framework, std::string(why), can.source);
  }
  return Verdict::yes();
}

Verdict experts_are_possible(const Framework& framework, const Strategy& strategy) {
  const auto& dispatches = framework.can.expert_dispatch;
  const auto& apart = framework.can.expert_tensor_parallel;
  if (strategy.ep > 1 && dispatches.value.empty()) {
    return refuse(field_is(strategy, "ep"), framework, "has all experts on each rank",
                  dispatches.source);
  }
  if (strategy.ep > 1 && !dispatches.value.has(strategy.expert_dispatch)) {
    return refuse(field_is(strategy, "expert_dispatch"), framework, "sends tokens otherwise",
                  dispatches.source);
  }
  const std::int64_t usual = strategy.ep > 1 ? 1 : strategy.mp;
  if (experts_tensor_parallel(strategy) != usual && !apart.value) {
    return refuse(field_is(strategy, "etp"), framework,
                  usual == 1 ? "has whole experts" : "splits experts as it splits other layers",
                  apart.source);
  }
  const auto& stages = framework.can.expert_context_stages;
  if (strategy.ep > 1 && strategy.cp > 1 && strategy.sharding_stage > 0 &&
      !stages.value.has(strategy.sharding_stage)) {
    return refuse(fmt::format("ep is {} with cp {}", strategy.ep, strategy.cp), framework,
                  fmt::format("splits no sequences if experts have sharding_stage {}",
                              strategy.sharding_stage),
                  stages.source);
  }
  if (Verdict verdict = pairs_are_possible(framework, strategy); !verdict) return verdict;
  if (!strategy.overlap_shared_experts) return Verdict::yes();
  const auto& beside = framework.can.overlap_shared_experts;
  // Kernels that send a token once to each node take the place of the exchange.
  if (!beside.value.has(strategy.expert_dispatch) || framework.sends_tokens_once_per_node) {
    return refuse("overlap_shared_experts", framework,
                  "does not overlap shared experts with this dispatch", beside.source);
  }
  return Verdict::yes();
}

Verdict sharding_is_possible(const Framework& framework, const Strategy& strategy) {
  if (strategy.sharding_stage == 0) return Verdict::yes();
  const Capabilities& can = framework.can;
  if (can.sharding_stages.value.empty()) {
    return refuse(field_is(strategy, "sharding_degree"), framework, "has no distributed optimizer",
                  can.sharding_stages.source);
  }
  const auto& stages = strategy.pp > 1 ? can.pipeline_sharding_stages : can.sharding_stages;
  if (!stages.value.has(strategy.sharding_stage)) {
    return refuse(field_is(strategy, "sharding_stage"), framework,
                  strategy.pp > 1 ? "has no such stage with a pipeline" : "has no such stage",
                  stages.source);
  }
  if (strategy.dp > 1 && !can.replicated_shards.value) {
    return refuse(
        fmt::format("dp is {} with sharding_degree {}", strategy.dp, strategy.sharding_degree),
        framework, "has no replicas of shards", can.replicated_shards.source);
  }
  if (strategy.sharding_owner != ShardingOwner::elements && !can.whole_owners.value) {
    return refuse(field_is(strategy, "sharding_owner"), framework, "has no owners of tensors",
                  can.whole_owners.source);
  }
  return Verdict::yes();
}

Verdict gathers_are_possible(const Framework& framework, const Strategy& strategy) {
  if (strategy.sharding_stage < 3) return Verdict::yes();
  const Capabilities& can = framework.can;
  if (strategy.prefetch_depth > can.most_prefetch_depth.value) {
    return refuse(field_is(strategy, "prefetch_depth"), framework, "gathers fewer ahead",
                  can.most_prefetch_depth.source);
  }
  if (strategy.keep_gathered && !can.keeps_gathered.value) {
    return refuse("keep_gathered", framework, "gathers again in backward",
                  can.keeps_gathered.source);
  }
  const std::string_view limit = strategy.max_live_bytes > Bytes()         ? "max_live_bytes"
                                 : strategy.reuse_distance_bytes > Bytes() ? "reuse_distance_bytes"
                                 : strategy.persistence_threshold > 0      ? "persistence_threshold"
                                                                           : "";
  if (limit.empty() || can.live_limits.value) return Verdict::yes();
  return refuse(field_is(strategy, limit), framework, "has no such limit", can.live_limits.source);
}

Verdict split_is_possible(const Framework& framework, const Strategy& strategy) {
  const auto& split = strategy.layer_split;
  if (strategy.embedding_as_layers + strategy.loss_as_layers > 0 &&
      !framework.can.uneven_split.value) {
    return refuse("embedding_as_layers or loss_as_layers is above 0", framework,
                  "has as many layers in each part", framework.can.uneven_split.source);
  }
  if (split.empty()) return Verdict::yes();
  const auto &uneven = framework.can.uneven_split, &empty = framework.can.empty_parts;
  const bool even = std::all_of(split.begin(), split.end(),
                                [&](std::int64_t layers) { return layers == split[0]; });
  if (!even && !uneven.value) {
    return refuse(field_is(strategy, "layer_split"), framework, "has as many layers in each part",
                  uneven.source);
  }
  if (!empty.value && std::find(split.begin(), split.end(), 0) != split.end()) {
    return refuse(field_is(strategy, "layer_split"), framework, "has layers in each part",
                  empty.source);
  }
  return Verdict::yes();
}

/// One stage has an order of its micro-batches, too.
Verdict schedule_is_possible(const Framework& framework, const Strategy& strategy) {
  if (strategy.schedule == Schedule::one_f_one_b) return Verdict::yes();
  const Capabilities& can = framework.can;
  if (!can.pipeline.value) {
    return refuse(field_is(strategy, "schedule"), framework, "has no pipelines that it would order",
                  can.pipeline.source);
  }
  if (!can.schedules.value.has(strategy.schedule)) {
    return refuse(field_is(strategy, "schedule"), framework, "has other schedules",
                  can.schedules.source);
  }
  // A stage that waits until its tensor is received would wait for one that waits for it, too.
  const bool deep = strategy.schedule == Schedule::zb_h2 || is_placed_as_v(strategy.schedule);
  if (deep && (framework.launches_wait || framework.transfers_hold != TransfersHold::nothing))
    return refuse(field_is(strategy, "schedule"), framework, "waits for each transfer", "");
  return Verdict::yes();
}

Verdict pipeline_is_possible(const Framework& framework, const Strategy& strategy) {
  if (Verdict verdict = schedule_is_possible(framework, strategy); !verdict) return verdict;
  if (strategy.pp == 1) return Verdict::yes();
  const Capabilities& can = framework.can;
  if (strategy.virtual_stages > 1 && !can.virtual_stages.value) {
    return refuse(field_is(strategy, "virtual_stages"), framework, "has one part on each stage",
                  can.virtual_stages.source);
  }
  // The simulator has no order of these transfers in which nobody waits forever.
  if (strategy.virtual_stages > 1 && framework.launches_wait) {
    return refuse(field_is(strategy, "virtual_stages"), framework,
                  "waits for each launch (CUDA_LAUNCH_BLOCKING=1)", "");
  }
  if (strategy.split_boundary && !can.split_boundary.value) {
    return refuse("split_boundary", framework, "sends whole tensors between stages",
                  can.split_boundary.source);
  }
  return split_is_possible(framework, strategy);
}

/// Frameworks count from different layers, so the list may begin with any of the first n.
bool is_every_nth(const std::vector<std::int64_t>& list) {
  const std::int64_t step = list.size() > 1 ? list[1] - list[0] : list[0] + 1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != list[0] + std::int64_t(i) * step) return false;
  }
  return list[0] < step;
}

RecomputedLayers recomputed_layers(const Strategy& strategy) {
  if (strategy.recompute_layers > 0) return RecomputedLayers::first;
  if (strategy.recompute_list.empty()) return RecomputedLayers::all;
  return is_every_nth(strategy.recompute_list) ? RecomputedLayers::every_nth
                                               : RecomputedLayers::listed;
}

Verdict modules_are_possible(const Framework& framework, const Strategy& strategy) {
  const auto& modules = strategy.recompute_modules;
  for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
    if (!modules.has(RecomputedModule(i)) ||
        framework.can.recomputed_modules.value.has(RecomputedModule(i)))
      continue;
    return refuse(fmt::format("recompute_modules names {}", kRecomputedModules[i]), framework,
                  "does not repeat it by itself", framework.can.recomputed_modules.source);
  }
  if (modules.has(RecomputedModule::core_attention) && !keeps_scores(framework, strategy)) {
    return refuse("recompute_modules names core_attention", framework,
                  "has flash attention, which keeps no scores to drop", "");
  }
  return Verdict::yes();
}

Verdict recompute_is_possible(const Framework& framework, const Strategy& strategy) {
  if (strategy.recompute == Recompute::none) return Verdict::yes();
  const Capabilities& can = framework.can;
  if (strategy.recompute == Recompute::selective && !keeps_scores(framework, strategy)) {
    return refuse(field_is(strategy, "recompute"), framework,
                  "has flash attention, which keeps no scores to drop", "");
  }
  if (!can.recompute.value.has(strategy.recompute)) {
    const std::string_view limit = strategy.recompute == Recompute::per_op ? "does not choose by op"
                                   : strategy.recompute == Recompute::modules
                                       ? "does not choose by module"
                                       : "recomputes whole layers only";
    return refuse(field_is(strategy, "recompute"), framework, limit, can.recompute.source);
  }
  if (Verdict verdict = modules_are_possible(framework, strategy); !verdict) return verdict;
  const RecomputedLayers layers = recomputed_layers(strategy);
  if (layers == RecomputedLayers::all) return Verdict::yes();
  // A framework that can list layers can also list those whose attention cores are repeated.
  const auto& choices = can.recomputed_layers;
  const bool whole = strategy.recompute == Recompute::full;
  if (choices.value.has(RecomputedLayers::listed) || (whole && choices.value.has(layers)))
    return Verdict::yes();
  const auto* key = layers == RecomputedLayers::first ? "recompute_layers" : "recompute_list";
  return refuse(
      fmt::format("{} with recompute {}", field_is(strategy, key), to_text(strategy.recompute)),
      framework, "does not choose layers so", choices.source);
}

Verdict types_are_possible(const Framework& framework, const Strategy& strategy) {
  const Capabilities& can = framework.can;
  if (!can.fp8.value.has(strategy.fp8)) {
    const bool any = !(can.fp8.value == SetOf<Fp8>{Fp8::none});
    return refuse(any ? field_is(strategy, "fp8") : "fp8", framework,
                  any ? "scales otherwise" : "has no products of 8-bit operands", can.fp8.source);
  }
  const auto has_not = [&](std::string_view key, const std::string& source) {
    return refuse(field_is(strategy, key), framework, "has no such type", source);
  };
  if (!can.gradient_types.value.has(strategy.gradient_type))
    return has_not("gradient_type", can.gradient_types.source);
  if (!can.main_gradient_types.value.has(strategy.main_gradient_type))
    return has_not("main_gradient_type", can.main_gradient_types.source);
  if (!can.master_types.value.has(strategy.main_parameter_type))
    return has_not("main_parameter_type", can.master_types.source);
  if (!can.moment_types.value.has(strategy.moment_type))
    return has_not("moment_type", can.moment_types.source);
  if (strategy.fp8_parameters && !can.fp8_parameters.value) {
    return refuse("fp8_parameters", framework, "keeps them in the job's type",
                  can.fp8_parameters.source);
  }
  if (strategy.offload_optimizer_percent > 0 && !can.offload_optimizer.value) {
    return refuse(field_is(strategy, "offload_optimizer_percent"), framework,
                  "updates all parameters on the device", can.offload_optimizer.source);
  }
  if (strategy.overlap_offload && !can.overlap_offload.value) {
    return refuse("overlap_offload", framework, "copies all of them before and after the update",
                  can.overlap_offload.source);
  }
  const bool narrow = strategy.main_gradient_type != GradientType::f32 ||
                      strategy.main_parameter_type != MasterType::f32 ||
                      strategy.moment_type != MomentType::f32 || strategy.fp8_parameters;
  if (!narrow || strategy.sharding_stage > 0 || can.narrow_states_unsharded.value)
    return Verdict::yes();
  return refuse("narrow states or fp8_parameters without sharding", framework,
                "has them with a distributed optimizer alone", can.narrow_states_unsharded.source);
}

}  // namespace

bool keeps_scores(const Framework& framework, const Strategy& strategy) {
  const bool by_parts = strategy.cp > 1 && framework.attention_by_parts;
  return !framework.flash_attention && !by_parts;
}

Verdict legal(const Framework& framework, const Strategy& strategy) {
  if (Verdict verdict = degrees_are_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = order_is_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = context_is_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = experts_are_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = sharding_is_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = gathers_are_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = pipeline_is_possible(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = recompute_is_possible(framework, strategy); !verdict) return verdict;
  return types_are_possible(framework, strategy);
}

/// A part of attention that goes with some exchanges alone.
struct AttentionExchange {
  std::string_view has;  // of the job, in words
  const Sourced<SetOf<ContextExchange>>* with;
};

std::vector<AttentionExchange> attention_exchanges(const Capabilities& can, const Job& job) {
  std::vector<AttentionExchange> limits;
  if (job.latent) limits.push_back({"latent attention", &can.latent_exchange});
  if (job.sinks) limits.push_back({"sinks", &can.sink_exchange});
  if (job.alibi) limits.push_back({"alibi", &can.alibi_exchange});
  return limits;
}

SetOf<ContextExchange> context_exchanges(const Framework& framework, const Job& job) {
  SetOf<ContextExchange> all;
  const auto limits = attention_exchanges(framework.can, job);
  for (std::size_t i = 0; i < std::size(kContextExchanges); ++i) {
    const auto exchange = ContextExchange(i);
    if (!framework.can.context_exchange.value.has(exchange)) continue;
    if (std::all_of(limits.begin(), limits.end(), [&](const AttentionExchange& limit) {
          return limit.with->value.has(exchange);
        }))
      all.add(exchange);
  }
  return all;
}

Verdict exchange_is_possible(const Framework& framework, const Job& job, const Strategy& strategy) {
  if (strategy.cp == 1) return Verdict::yes();
  for (const auto& [has, with] : attention_exchanges(framework.can, job)) {
    if (with->value.has(strategy.context_exchange)) continue;
    if (with->value.empty())
      return refuse(field_is(strategy, "cp"), framework,
                    fmt::format("has whole sequences of {} on each rank", has), with->source);
    return refuse(field_is(strategy, "context_exchange"), framework,
                  fmt::format("shares sequences of {} otherwise", has), with->source);
  }
  return Verdict::yes();
}

Verdict legal(const Framework& framework, const Job& job, const Strategy& strategy) {
  if (Verdict verdict = legal(framework, strategy); !verdict) return verdict;
  if (Verdict verdict = exchange_is_possible(framework, job, strategy); !verdict) return verdict;
  const auto &uneven = framework.can.uneven_split, &empty = framework.can.empty_parts;
  const std::int64_t parts = strategy.pp * strategy.virtual_stages;
  if (!empty.value && dealt_layers(job) < parts) {
    return refuse(fmt::format("pp {} x virtual_stages {} is more than the {} layers", strategy.pp,
                              strategy.virtual_stages, dealt_layers(job)),
                  framework, "has layers in each part", empty.source);
  }
  if (uneven.value || dealt_layers(job) % parts == 0) return Verdict::yes();
  return refuse(fmt::format("pp {} x virtual_stages {} do not divide the {} layers", strategy.pp,
                            strategy.virtual_stages, dealt_layers(job)),
                framework, "has as many layers in each part", uneven.source);
}

GradientType usual_gradient_type(const Framework& framework, const Job& job) {
  return framework.can.computed_by_default.value.has(job.precision) ? GradientType::computed
                                                                    : GradientType::f32;
}

Bytes memory_outside_program(const Job& job, const Strategy& strategy, const Framework& framework) {
  Bytes total = framework.context_memory;
  const auto add = [&](std::int64_t ranks) {
    if (ranks < 2) return;
    total += ranks == 2 ? framework.pair_communicator_memory : framework.communicator_memory;
  };
  add(strategy.mp);
  // Ranks that share a key and value head, where they are not all of mp.
  if (job.kv_heads > 1 && strategy.mp > job.kv_heads) add(strategy.mp / job.kv_heads);
  add(strategy.pp);
  add(strategy.cp);
  if (strategy.dp * strategy.sharding_degree > 1)
    add(strategy.cp * strategy.dp * strategy.sharding_degree);
  if (strategy.dp > 1 && strategy.sharding_degree > 1) {
    add(strategy.sharding_degree);
    add(strategy.dp);
  }
  // Over one axis alone the norm is summed by that axis' communicator.
  const int split_over =
      int(strategy.mp > 1) + int(strategy.pp > 1) + int(strategy.sharding_degree > 1);
  if (split_over > 1) add(strategy.mp * strategy.pp * strategy.sharding_degree);
  const bool shares = job.tied_embeddings || job.mtp;  // the embedding, with the head or modules
  if (shares && strategy.pp > 2 && stage_of_tied_table(job, strategy) > 0) add(2);
  return total;
}

}  // namespace plimsoll
