// One list of capabilities serves reading, writing and replacing them.
#include "models/framework/capabilities_json.h"

#include <algorithm>
#include <span>
#include <string_view>

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
Words words_of(GradientType) { return kGradientTypes; }
Words words_of(MasterType) { return kMasterTypes; }
Words words_of(MomentType) { return kMomentTypes; }

constexpr std::string_view kPrecisions[] = {"f32", "bf16", "f16"};
Words words_of(DType) { return kPrecisions; }

/// Older plan files leave these capabilities out.
constexpr std::string_view kLater[] = {
    "recomputed_modules",    "latent_exchange",        "sink_exchange",          "alibi_exchange",
    "expert_context_stages", "overlap_shared_experts", "overlap_expert_exchange"};

constexpr std::int64_t kStages = 4;  // 0 to 3
constexpr std::int64_t kMostDepth = std::int64_t{1} << 16;

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
  visit("rank_orders", can.ranks.orders);
  visit("schedules", can.pipelines.schedules);
  visit("virtual_stages", can.pipelines.virtual_stages);
  visit("uneven_split", can.pipelines.uneven_split);
  visit("empty_parts", can.pipelines.empty_parts);
  visit("split_boundary", can.pipelines.split_boundary);
  visit("recompute", can.repeats.recompute);
  visit("recomputed_layers", can.repeats.layers);
  visit("recomputed_modules", can.repeats.modules);
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
  visit("fp8_parameters", can.precision.fp8_parameters);
  visit("offload_optimizer", can.offload.optimizer);
  visit("overlap_offload", can.offload.overlap);
  visit("most_prefetch_depth", can.gathers.most_prefetch_depth);
  visit("keeps_gathered", can.gathers.keeps);
  visit("live_limits", can.gathers.live_limits);
}

Json value_json(bool value) { return value; }
Json value_json(std::int64_t value) { return value; }
Json value_json(SetOf<std::int64_t> stages) {
  Json list = Json::array();
  for (std::int64_t stage = 0; stage < kStages; ++stage) {
    if (stages.has(stage)) list.push_back(stage);
  }
  return list;
}
template <class Enum>
Json value_json(SetOf<Enum> set) {
  const Words words = words_of(Enum());
  Json list = Json::array();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (set.has(Enum(i))) list.push_back(words[i]);
  }
  return list;
}

void read(JsonObject& object, bool& value) { value = object.boolean("value"); }
void read(JsonObject& object, std::int64_t& value) {
  value = object.integer("value", 0, kMostDepth);
}
void read(JsonObject& object, SetOf<std::int64_t>& stages) {
  stages = {};
  for (std::int64_t stage : object.integers("value", 0, kStages - 1)) stages.add(stage);
}
template <class Enum>
void read(JsonObject& object, SetOf<Enum>& set) {
  const Words words = words_of(Enum());
  set = {};
  for (const std::string& text : object.texts("value")) {
    const auto word = std::find(words.begin(), words.end(), text);
    if (word == words.end()) object.fail("value", "not a choice of the strategy");
    set.add(Enum(word - words.begin()));
  }
}

template <class Capability>
void read_sourced(JsonObject object, Capability& capability) {
  read(object, capability.value);
  capability.source = object.text("source");
  object.finish();
}

}  // namespace

Json capabilities_json(const Capabilities& capabilities) {
  Json json = Json::object();
  for_each_capability(capabilities, [&](const char* key, const auto& capability) {
    json[key] = {{"value", value_json(capability.value)}, {"source", capability.source}};
  });
  return json;
}

Capabilities capabilities_from(JsonObject object) {
  Capabilities capabilities;
  for_each_capability(capabilities, [&](std::string_view key, auto& capability) {
    const bool later = std::ranges::find(kLater, key) != std::end(kLater);
    if (!later || object.has(key)) read_sourced(object.object(key), capability);
  });
  object.finish();
  return capabilities;
}

void read_stated(JsonObject object, Capabilities& capabilities) {
  for_each_capability(capabilities, [&](const char* key, auto& capability) {
    if (object.has(key)) read_sourced(object.object(key), capability);
  });
  object.finish();
}

}  // namespace plimsoll
