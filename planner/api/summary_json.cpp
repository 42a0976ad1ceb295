// JSON of `planner space`, `simulate`, `check` and `report`.
#include "planner/api/summary_json.h"

#include "base/field_list.h"
#include "base/json.h"
#include "plan/json_layout.h"
#include "plan/prediction_json.h"
#include "plan/timeline_json.h"
#include "plan/training/training_json.h"
#include "planner/explain/explain_json.h"
#include "predict/expert_memory.h"

namespace plimsoll {
namespace {

/// The critical rank's step in whole picoseconds.
Json step_json(const Evaluation& evaluation) {
  const StepParts& parts = evaluation.parts;
  Json communication = Json::array();
  for (const GroupTime& time : parts.communication) {
    communication.push_back({{"group", time.group},
                             {"wait_ps", time.wait.count()},
                             {"transfer_ps", time.transfer.count()},
                             {"hidden_ps", time.hidden.count()}});
  }
  return {{"rank", evaluation.critical_rank},         {"step_time_ps", parts.step.count()},
          {"forward_ps", parts.forward.count()},      {"recompute_ps", parts.recompute.count()},
          {"backward_ps", parts.backward.count()},    {"optimizer_ps", parts.optimizer.count()},
          {"bubble_ps", parts.bubble.count()},        {"dispatch_ps", parts.dispatch.count()},
          {"communication", std::move(communication)}};
}

Json memory_json(const StageMemory& memory) {
  const StagePrediction& stage = memory.stage;
  Json json = {{"stage", stage.stage}};
  if (stage.owner) json["owner"] = *stage.owner;
  json["live_peak_bytes"] = stage.peak.count();
  json["allocated_bytes"] = stage.allocated.count();
  json["reserved_bytes"] = stage.reserved.count();
  if (stage.host > Bytes()) json["host_bytes"] = stage.host.count();
  json["outside_program_bytes"] = memory.filling.outside.count();
  json["device_bytes"] = memory.filling.taken().count();
  json["capacity_bytes"] = stage.capacity.count();
  json["filled"] = memory.filling.share();
  json["allocated_by_class"] = listed_json(memory.by_role, kByClass);
  json["alive_at_peak"] = alive_json(memory);
  return json;
}

}  // namespace

std::string space_json(const Job& job, std::int64_t devices, const Space& space, bool list) {
  Json rejected = Json::array(), all = Json::array();
  for (const Pruned& pruned : space.rejected) {
    rejected.push_back({{"reason", pruned.reason}, {"count", pruned.count}});
  }
  for (const Dimension& dimension : dimensions(space)) {
    Json values = Json::array();
    for (const auto& [value, count] : dimension.values) {
      values.push_back({{"value", value}, {"count", count}});
    }
    all.push_back({{"key", dimension.key}, {"values", std::move(values)}});
  }
  Json json = {{"job", job.name},
               {"parameters", parameter_count(build_forward(job, 1))},
               {"devices", devices},
               {"enumerated", space.enumerated},
               {"legal_count", std::int64_t(space.legal.size())},
               {"rejected", std::move(rejected)},
               {"dimensions", std::move(all)}};
  if (list) {
    Json legal = Json::array();
    for (const Strategy& strategy : space.legal) legal.push_back(strategy_json(strategy));
    json["legal"] = std::move(legal);
  }
  return line_text(json);
}

namespace {

Json expert_memory_json(const std::optional<ExpertMemory>& memory, const FitsAnswer& fits) {
  if (!memory) return nullptr;
  const auto taken = [](const Filling& filling) { return filling.taken().count(); };
  return {{"device_bytes", taken(fits.fullest)},
          {"even_device_bytes", fits.even ? Json(taken(*fits.even)) : Json(nullptr)},
          {"rows_percent", memory->room.percent},
          {"basis", kRoomBases[std::size_t(memory->room.basis)]},
          {"most_percent", memory->most_percent},
          {"balanced_peak_bytes", memory->balanced.count()},
          {"peak_bytes", memory->roomy.count()},
          {"most_peak_bytes", memory->most.count()},
          {"drops", memory->drops}};
}

}  // namespace

std::string evaluation_json(const SimulationAnswer& answer) {
  const auto& [loaded, strategy, evaluation, memory, training] = answer;
  const Target& target = loaded.target;
  const FitsAnswer fits = fits_answer(target, strategy, evaluation.prediction.stages);
  Json ranks = Json::array(), stages = Json::array();
  for (const StageMemory& stage : memory) stages.push_back(memory_json(stage));
  for (const RankMemory& rank : evaluation.timeline.memory) {
    ranks.push_back({{"rank", rank.rank}, {"peak_bytes", rank.peak.count()}});
  }
  Json json = {{"job", target.job.name},
               {"parameters", parameter_count(build_forward(stated_job(loaded), 1))},
               {"devices", target.devices},
               {"strategy", strategy_json(strategy)},
               {"fits", fits.fits == Fits::yes},
               {"verdict", kFits[std::size_t(fits.fits)]},
               {"prediction", prediction_json(evaluation.prediction)},
               {"step", step_json(evaluation)},
               {"memory", std::move(stages)},
               {"expert_memory", expert_memory_json(expert_memory(target, strategy), fits)},
               {"outside_program_bytes", outside_program(target, strategy).count()},
               {"reserve_bytes", target.reserve.count()},
               {"simulated_ranks", ranks},
               {"program_digests", evaluation.program_digests}};
  if (training) json["training"] = training_json(*training);
  return line_text(json);
}

std::string check_json(std::span<const Rule> rules, std::span<const Violation> violations) {
  Json all = Json::array(), broken = Json::array();
  for (const Rule& rule : rules) {
    all.push_back({{"rule", std::string(rule.name)}, {"sentence", std::string(rule.sentence)}});
  }
  for (const Violation& violation : violations) {
    broken.push_back({{"rule", violation.rule}, {"message", violation.message}});
  }
  return json_text({{"rules", all}, {"violations", broken}});
}

std::string report_json(const std::string& output, const std::optional<std::string>& verdict) {
  return json_text({{"output", output}, {"verdict", verdict ? Json(*verdict) : Json(nullptr)}});
}

}  // namespace plimsoll
