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
  visit("pipeline", can.pipeline);
  visit("tensor_parallel", can.tensor_parallel);
  visit("replicas", can.replicas);
  visit("replicas_beside_others", can.replicas_beside_others);
  visit("sharding_stages", can.sharding_stages);
  visit("pipeline_sharding_stages", can.pipeline_sharding_stages);
  visit("replicated_shards", can.replicated_shards);
  visit("whole_owners", can.whole_owners);
  visit("rank_orders", can.rank_orders);
  visit("schedules", can.schedules);
  visit("virtual_stages", can.virtual_stages);
  visit("uneven_split", can.uneven_split);
  visit("empty_parts", can.empty_parts);
  visit("split_boundary", can.split_boundary);
  visit("recompute", can.recompute);
  visit("recomputed_layers", can.recomputed_layers);
  visit("recomputed_modules", can.recomputed_modules);
  visit("context_exchange", can.context_exchange);
  visit("latent_exchange", can.latent_exchange);
  visit("sink_exchange", can.sink_exchange);
  visit("alibi_exchange", can.alibi_exchange);
  visit("expert_dispatch", can.expert_dispatch);
  visit("expert_tensor_parallel", can.expert_tensor_parallel);
  visit("expert_context_stages", can.expert_context_stages);
  visit("overlap_expert_exchange", can.overlap_expert_exchange);
  visit("overlap_shared_experts", can.overlap_shared_experts);
  visit("fp8", can.fp8);
  visit("gradient_types", can.gradient_types);
  visit("computed_by_default", can.computed_by_default);
  visit("main_gradient_types", can.main_gradient_types);
  visit("main_parameter_types", can.master_types);
  visit("moment_types", can.moment_types);
  visit("narrow_states_unsharded", can.narrow_states_unsharded);
  visit("fp8_parameters", can.fp8_parameters);
  visit("offload_optimizer", can.offload_optimizer);
  visit("overlap_offload", can.overlap_offload);
  visit("most_prefetch_depth", can.most_prefetch_depth);
  visit("keeps_gathered", can.keeps_gathered);
  visit("live_limits", can.live_limits);
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
