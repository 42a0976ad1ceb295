// The JSON of what a plan predicts.
#include "plan/prediction_json.h"

#include "plan/json_forms.h"
#include "plan/timeline_json.h"

namespace plimsoll {
namespace {

constexpr Allowed kRates(0, 1e30);  // tokens, FLOPs per second

constexpr auto kBreakdown = [](auto& fields, auto& breakdown) {
  fields.required("forward_s", breakdown.forward, kTimes);
  fields.required("recompute_s", breakdown.recompute, kTimes);
  fields.required("backward_s", breakdown.backward, kTimes);
  fields.required("optimizer_s", breakdown.optimizer, kTimes);
  fields.required("exposed_communication_s", breakdown.exposed_communication, kTimes);
  fields.required("bubble_s", breakdown.bubble, kTimes);
  // The rest of the step, a difference of the others: rounding may leave it just below zero.
  fields.required("dispatch_s", breakdown.dispatch, {-kMostJsonSeconds, kMostJsonSeconds});
};

constexpr auto kStage = [](auto& fields, auto& stage) {
  fields.required("stage", stage.stage);
  fields.optional("owner", stage.owner);
  fields.required("peak_bytes", stage.peak);
  fields.required("by_class", stage.by_role, kByClass);
  fields.required("arena_bytes", stage.arena);
  fields.required("capacity_bytes", stage.capacity);
  fields.required("allocated_bytes", stage.allocated);
  fields.required("reserved_bytes", stage.reserved);
  fields.optional("host_bytes", stage.host);
};

constexpr auto kLearnedMemory = [](auto& fields, auto& learned) {
  fields.required("factor", learned.factor, kRatios);
  fields.required("half_width", learned.half_width, kRatios);
};

constexpr auto kMemory = [](auto& fields, auto& memory) {
  fields.required("taken_bytes", memory.taken);
  fields.required("low_bytes", memory.low);
  fields.required("high_bytes", memory.high);
  fields.required("overflow_probability", memory.overflow, {0, 1});
  fields.required("verdict", memory.verdict, kMemoryVerdicts);
  fields.optional("learned", memory.learned, kLearnedMemory);
};

constexpr auto kOutside = [](auto& fields, auto& ops) {
  fields.required("what", ops.what);
  fields.required("share", ops.share, kRatios);
};

constexpr auto kShares = [](auto& fields, auto& shares) {
  for (std::size_t i = 0; i < kProvenances; ++i)
    fields.required(to_text(Provenance(i)), shares[i], kRatios);
};

constexpr auto kPrediction = [](auto& fields, auto& prediction) {
  static const auto provenances = texts_of<Provenance>(kProvenances);
  fields.required("step_time_s", prediction.step_time, kTimes);
  fields.required("step_time_low_s", prediction.step_time_low, kTimes);
  fields.required("step_time_high_s", prediction.step_time_high, kTimes);
  fields.required("tokens_per_s", prediction.tokens_per_second, kRates);
  fields.required("mfu", prediction.mfu, kRatios);
  fields.required("hfu", prediction.hfu, kRatios);
  fields.required("peak_flops_per_s", prediction.peak_flops, kRates);
  fields.required("peak_source", prediction.peak_source);
  fields.required("worst_provenance", prediction.worst, provenances);
  fields.required("share_by_provenance", prediction.share_by_provenance, kShares);
  fields.required("extrapolated", prediction.extrapolated, kOutside);
  fields.required("breakdown", prediction.breakdown, kBreakdown);
  fields.required("stages", prediction.stages, kStage);
  fields.required("memory", prediction.memory, kMemory);
};

}  // namespace

Json strategy_json(const Strategy& strategy) {
  return parse_json(strategy_text(strategy), "strategy");
}

Json prediction_json(const Prediction& prediction) { return listed_json(prediction, kPrediction); }
Prediction prediction_from(JsonObject object) {
  return read_listed<Prediction>(std::move(object), kPrediction);
}

std::span<const std::string_view> unusual_keys() {
  static const auto keys = [] {
    std::array<std::string_view, kUnusualChoices> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = rule_of(UnusualChoice(i)).key;
    return all;
  }();
  return keys;
}

Json unusual_json(std::span<const Unusual> choices) {
  Json json = Json::array();
  for (const Unusual& one : choices) json.push_back(listed_json(one, kUnusual));
  return json;
}

}  // namespace plimsoll
