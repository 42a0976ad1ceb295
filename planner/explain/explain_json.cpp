// Writes steps, rates, changes and answers as JSON.
#include "planner/explain/explain_json.h"

#include "base/json.h"
#include "plan/json_layout.h"
#include "plan/prediction_json.h"

namespace plimsoll {
namespace {

Json ratio_json(const StepRatio& ratio) {
  return {{"low", ratio.low}, {"high", ratio.high}, {"cannot_be_told_apart", ratio.tied}};
}

Json choices_json(const Fixed& choices) {
  Json json = Json::object();
  for (const auto& [key, value] : choices) json[key] = value;
  return json;
}

Json terms_json(const ExplainedStep& step) {
  const StepParts& parts = step.parts;
  Json communication = Json::array();
  for (std::size_t c = 0; c < step.links.size(); ++c) {
    const GroupTime& time = parts.communication[c];
    communication.push_back({{"collective", time.group},
                             {"link", step.links[c]},
                             {"wait_ps", time.wait.count()},
                             {"transfer_ps", time.transfer.count()},
                             {"hidden_ps", time.hidden.count()}});
  }
  return {{"step_time_ps", parts.step.count()},
          {"forward_ps", parts.forward.count()},
          {"recompute_ps", parts.recompute.count()},
          {"backward_ps", parts.backward.count()},
          {"optimizer_ps", parts.optimizer.count()},
          {"memory_traffic_ps", step.memory_traffic.count()},
          {"bubble_ps", parts.bubble.count()},
          {"dispatch_ps", parts.dispatch.count()},
          {"communication", std::move(communication)}};
}

Json memory_json(const ExplainedStep& step) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < step.fillings.size(); ++i) {
    const Filling& filling = step.fillings[i];
    stages.push_back({{"stage", name_of(step.prediction.stages[i])},
                      {"reserved_bytes", filling.reserved.count()},
                      {"outside_program_bytes", filling.outside.count()},
                      {"reserve_bytes", filling.reserve.count()},
                      {"capacity_bytes", filling.capacity.count()},
                      {"fits", filling.fits()}});
  }
  return {{"stages", std::move(stages)},
          {"fullest", name_of(step.fullest.stage)},
          {"alive_at_peak", alive_json(step.fullest)}};
}

Json asked_json(const std::optional<AskedStep>& asked) {
  if (!asked) return nullptr;
  Json json = step_json(asked->step);
  json["ratio"] = ratio_json(asked->ratio);
  return json;
}

Json changes_json(std::span<const AssessedChange> changes) {
  Json json = Json::array();
  for (const AssessedChange& change : changes) json.push_back(change_json(change));
  return json;
}

Json rates_json(std::span<const RateEffect> rates) {
  Json json = Json::array();
  for (const RateEffect& effect : rates) {
    if (!effect.is_there) continue;
    json.push_back({{"rate", to_text(effect.rate)},
                    {"with_10_percent_less_s", effect.slower.value()},
                    {"with_10_percent_more_s", effect.faster.value()},
                    {"doubled_s", effect.doubled.value()}});
  }
  return json;
}

Json more_memory_json(const MemoryEffect& memory) {
  return {
      {"strategy", strategy_json(memory.strategy)},
      {"step_time_s", memory.step_time.value()},
      {"ratio", ratio_json(memory.ratio)},
      {"proven", memory.proven},
      {"least_step_time_s", memory.least_step ? Json(memory.least_step->value()) : Json(nullptr)}};
}

}  // namespace

Json alive_json(const StageMemory& memory) {
  Json alive = Json::array();
  for (const AliveTensors& one : memory.alive) {
    alive.push_back({{"name", one.name},
                     {"class", to_text(one.role)},
                     {"count", one.count},
                     {"bytes", one.bytes.count()}});
  }
  return alive;
}

Json step_json(const ExplainedStep& step) {
  return {{"strategy", strategy_json(step.strategy)},
          {"step_time_s", step.prediction.step_time.value()},
          {"step_time_low_s", step.prediction.step_time_low.value()},
          {"step_time_high_s", step.prediction.step_time_high.value()},
          {"mfu", step.prediction.mfu},
          {"slowest_attention",
           {{"over_mean", step.slowest.mean}, {"deviation", step.slowest.deviation}}},
          {"fits", step.fits},
          {"critical_stage", step.critical_stage},
          {"terms", terms_json(step)},
          {"memory", memory_json(step)}};
}

Json change_json(const AssessedChange& change) {
  Json json = {{"choices", choices_json(change.change)},
               {"strategy", strategy_json(change.strategy)},
               {"outcome", to_text(change.outcome)}};
  if (change.outcome == ChangeOutcome::illegal) {
    json["rule"] = change.rule;
    return json;
  }
  json["need_bytes"] = change.need.count();
  if (change.outcome != ChangeOutcome::runs) return json;
  json["step_time_s"] = change.step_time.value();
  json["ratio"] = ratio_json(change.ratio);
  return json;
}

std::string explain_json(const Plan& plan, const ExplainedStep& step, const Sensitivity& found) {
  return line_text({{"job", plan.job.name},
                    {"devices", plan.devices},
                    {"plan", step_json(step)},
                    {"rates", rates_json(found.rates)},
                    {"twice_the_memory", more_memory_json(found.memory)},
                    {"one_choice_changed", changes_json(found.changes)}});
}

std::string why_not_json(const WhyNot& answer) {
  Json json = {{"asked", choices_json(answer.asked)},
               {"plan", step_json(answer.plan)},
               {"is_plan", answer.is_plan}};
  if (answer.is_plan) return line_text(json);
  json["changed"] = {{"strategy", strategy_json(answer.changed)},
                     {"rule", answer.rule.empty() ? Json(nullptr) : Json(answer.rule)},
                     {"step", asked_json(answer.as_asked)}};
  json["best"] = asked_json(answer.best);
  json["best_is_proven"] = answer.best_is_proven;
  json["none"] = answer.none.empty() ? Json(nullptr) : Json(answer.none);
  json["least_changes"] = {{"keeps_asked", answer.least.keeps_asked},
                           {"proven", answer.least.proven},
                           {"changes", changes_json(answer.least.found)}};
  return line_text(json);
}

}  // namespace plimsoll
