// One list of capabilities serves reading, writing and replacing them.
#include "models/framework/capabilities_json.h"

#include <span>
#include <string_view>

#include "base/field_list.h"

namespace plimsoll {
namespace {

using Words = std::span<const std::string_view>;
Words words_of(RankOrder) { return kRankOrders; }
Words words_of(Schedule) { return kSchedules; }
Words words_of(Recompute) { return kRecomputes; }
Words words_of(RecomputedLayers) { return kRecomputedLayers; }
Words words_of(RecomputedModule) { return kRecomputedModules; }
Words words_of(Fp8) { return kFp8s; }
Words words_of(ContextExchange) { return kContextExchanges; }
Words words_of(ExpertDispatch) { return kExpertDispatches; }
Words words_of(ExpertOverlap) { return kExpertOverlaps; }
Words words_of(ActivationOffload) { return kActivationOffloads; }
Words words_of(GradientType) { return kGradientTypes; }
Words words_of(MasterType) { return kMasterTypes; }
Words words_of(MomentType) { return kMomentTypes; }

constexpr std::string_view kPrecisions[] = {"f32", "bf16", "f16"};
Words words_of(DType) { return kPrecisions; }

constexpr double kMostStage = 3, kMostDepth = 1 << 16;

/// Calls visit with the key of each capability and with it.
template <class Can, class Visit>
void for_each_capability(Can& can, Visit visit) {
  visit("pipeline", can.ranks.pipeline);
  visit("tensor_parallel", can.ranks.tensor_parallel);
  visit("replicas", can.ranks.replicas);
  visit("replicas_beside_others", can.ranks.replicas_beside_others);
  visit("sharding_stages", can.ranks.sharding_stages);
  visit("pipeline_sharding_stages", can.ranks.pipeline_sharding_stages);
  visit("replicated_shards", can.ranks.replicated_shards);
  visit("whole_owners", can.ranks.whole_owners);
  visit("matrix_owners", can.ranks.matrix_owners);
  visit("rank_orders", can.ranks.orders);
  visit("schedules", can.pipelines.schedules);
  visit("virtual_stages", can.pipelines.virtual_stages);
  visit("uneven_split", can.pipelines.uneven_split);
  visit("empty_parts", can.pipelines.empty_parts);
  visit("split_boundary", can.pipelines.split_boundary);
  visit("recompute", can.repeats.recompute);
  visit("recomputed_layers", can.repeats.layers);
  visit("recomputed_modules", can.repeats.modules);
  visit("loss_chunks", can.repeats.loss_chunks);
  visit("context_exchange", can.exchanges.context);
  visit("latent_exchange", can.exchanges.latent);
  visit("sink_exchange", can.exchanges.sinks);
  visit("alibi_exchange", can.exchanges.alibi);
  visit("expert_dispatch", can.experts.dispatch);
  visit("expert_tensor_parallel", can.experts.tensor_parallel);
  visit("expert_context_stages", can.experts.context_stages);
  visit("overlap_expert_exchange", can.experts.overlap_exchange);
  visit("overlap_shared_experts", can.experts.overlap_shared);
  visit("fp8", can.precision.fp8);
  visit("gradient_types", can.precision.gradient_types);
  visit("computed_by_default", can.precision.computed_by_default);
  visit("main_gradient_types", can.precision.main_gradient_types);
  visit("main_parameter_types", can.precision.master_types);
  visit("moment_types", can.precision.moment_types);
  visit("narrow_states_unsharded", can.precision.narrow_states_unsharded);
  visit("release_gradients", can.precision.release_gradients);
  visit("fp8_parameters", can.precision.fp8_parameters);
  visit("offload_optimizer", can.offload.optimizer);
  visit("overlap_offload", can.offload.overlap);
  visit("offload_activations", can.offload.activations);
  visit("paged_states", can.offload.paged_states);
  visit("offload_parameters", can.offload.parameters);
  visit("most_prefetch_depth", can.gathers.most_prefetch_depth);
  visit("keeps_gathered", can.gathers.keeps);
  visit("live_limits", can.gathers.live_limits);
}

Allowed allowed_in(bool) { return {}; }
Allowed allowed_in(std::int64_t) { return {0, kMostDepth}; }
Allowed allowed_in(SetOf<std::int64_t>) { return {0, kMostStage}; }
template <class Enum>
Allowed allowed_in(SetOf<Enum>) {
  return words_of(Enum());
}

constexpr auto kSourced = [](auto& fields, auto& capability) {
  fields.required("value", capability.value, allowed_in(capability.value));
  fields.required("source", capability.source);
};

}  // namespace

Json capabilities_json(const Capabilities& capabilities) {
  Json json = Json::object();
  for_each_capability(capabilities, [&](const char* key, const auto& capability) {
    json[key] = listed_json(capability, kSourced);
  });
  return json;
}

void read_capabilities(JsonObject object, Stated stated, Capabilities& capabilities) {
  for_each_capability(capabilities, [&]<class Capability>(const char* key, Capability& capability) {
    if (stated == Stated::all || object.has(key))
      capability = read_listed<Capability>(object.object(key), kSourced);
  });
  object.finish();
}

}  // namespace plimsoll
