// The JSON of what a plan predicts.
#include "plan/prediction_json.h"

#include "plan/json_fields.h"
#include "plan/timeline_json.h"

namespace plimsoll {
namespace {

constexpr double kMostRate = 1e30;  // tokens, FLOPs per second
/// A plan that is as likely to fit as not has odds of 1.
constexpr double kMostGain = 1;

}  // namespace

void list_fields(Fields& io, Breakdown& breakdown) {
  io("forward_s", breakdown.forward);
  io("recompute_s", breakdown.recompute);
  io("backward_s", breakdown.backward);
  io("optimizer_s", breakdown.optimizer);
  io("exposed_communication_s", breakdown.exposed_communication);
  io("bubble_s", breakdown.bubble);
  // The rest of the step, a difference of the others: rounding may leave it just below zero.
  io("dispatch_s", breakdown.dispatch, -kMostJsonSeconds);
}

void list_fields(Fields& io, StagePrediction& stage) {
  io("stage", stage.stage);
  io.optional("owner", stage.owner);
  io("peak_bytes", stage.peak);
  io.by_name("by_class", stage.by_role, role_texts());
  io("arena_bytes", stage.arena);
  io("capacity_bytes", stage.capacity);
  io("allocated_bytes", stage.allocated);
  io("reserved_bytes", stage.reserved);
  io.unless(Bytes(), "host_bytes", stage.host);
}

void list_fields(Fields& io, MemoryInterval& memory) {
  io("taken_bytes", memory.taken);
  io("low_bytes", memory.low);
  io("high_bytes", memory.high);
  io.number("overflow_probability", memory.overflow, 0., 1.);
  io.choice("verdict", memory.verdict, kMemoryVerdicts);
}

void list_fields(Fields& io, OutsideRange& ops) {
  io("what", ops.what);
  io.number("share", ops.share, 0., kMostRatio);
}

void list_fields(Fields& io, Prediction& prediction) {
  static const auto provenances = texts_of<Provenance>(kProvenances);
  io("step_time_s", prediction.step_time);
  io("step_time_low_s", prediction.step_time_low);
  io("step_time_high_s", prediction.step_time_high);
  io.number("tokens_per_s", prediction.tokens_per_second, 0., kMostRate);
  io.number("mfu", prediction.mfu, 0., kMostRatio);
  io.number("hfu", prediction.hfu, 0., kMostRatio);
  io.number("peak_flops_per_s", prediction.peak_flops, 0., kMostRate);
  io("peak_source", prediction.peak_source);
  io.choice("worst_provenance", prediction.worst, provenances);
  io.by_name("share_by_provenance", prediction.share_by_provenance, provenances);
  io.list("extrapolated", prediction.extrapolated);
  io.object("breakdown", prediction.breakdown);
  io.list("stages", prediction.stages);
  io.object("memory", prediction.memory);
}

Json strategy_json(const Strategy& strategy) {
  return parse_json(strategy_text(strategy), "strategy");
}

Json prediction_json(const Prediction& prediction) { return fields_json(prediction); }
Prediction prediction_from(JsonObject object) { return read_fields<Prediction>(std::move(object)); }

void list_fields(Fields& io, Unusual& unusual) {
  std::vector<std::string_view> keys;
  for (std::size_t i = 0; i < kUnusualChoices; ++i) keys.push_back(rule_of(UnusualChoice(i)).key);
  io.choice("choice", unusual.choice, keys);
  io.number("gain", unusual.gain, 0, kMostGain);
}

Json unusual_json(std::span<const Unusual> choices) {
  Json json = Json::array();
  for (const Unusual& one : choices) json.push_back(fields_json(one));
  return json;
}

}  // namespace plimsoll
