// Plan files are read and written here.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "models/framework/framework_json.h"
#include "models/kinds/file_kind.h"
#include "passes/strategy/expert_rows.h"
#include "passes/strategy/sharding_rules.h"
#include "plan/json_layout.h"
#include "plan/plan.h"
#include "plan/prediction_json.h"
#include "plan/timeline_json.h"
#include "plan/training/training_json.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 2> kDeviceKinds = {"cpu_core", "gpu"};

Json runners_up_json(const Plan& plan) {
  Json json = Json::array();
  for (const RunnerUp& runner_up : plan.runners_up) json.push_back(runner_up_json(runner_up));
  return json;
}

Json pareto_json(const Plan& plan) {
  Json json = Json::array();
  for (const ParetoPlan& point : plan.pareto) json.push_back(pareto_json(point));
  return json;
}

/// Texts that may be missing are null, never empty.
Json text_json(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

std::string text_from(JsonObject& object, std::string_view key) {
  return object.raw(key).is_null() ? std::string() : object.text(key);
}

Json origin_json(const PlanOrigin& origin) {
  return {{"version", origin.version},
          {"command", text_json(origin.command)},
          {"calibration_name", text_json(origin.calibration_name)},
          {"calibration_provenance", text_json(origin.calibration_provenance)},
          {"interval_basis", text_json(origin.interval_basis)}};
}

PlanOrigin origin_from(JsonObject object) {
  PlanOrigin origin;
  origin.version = object.text("version");
  origin.command = text_from(object, "command");
  origin.calibration_name = text_from(object, "calibration_name");
  origin.calibration_provenance = text_from(object, "calibration_provenance");
  origin.interval_basis = text_from(object, "interval_basis");
  object.finish();
  return origin;
}

/// A curve's share of the points that all have together.
std::size_t points_of_a_curve(const Timeline& timeline) {
  return std::max(kLeastPoints, kMostPoints / std::max<std::size_t>(timeline.memory.size(), 1));
}

/// Returns nothing where no ranks share out experts.
std::optional<RowsRoom> rows_room_of(const Plan& plan) {
  if (!plan.job.experts || plan.strategy.ep == 1) return std::nullopt;
  return rows_room(plan.job, plan.framework, plan.strategy);
}

/// Checks the room that a file states against the one that follows from its plan.
void check_rows_room(JsonObject object, const Plan& plan) {
  const std::int64_t percent = object.integer("percent", 0, kMostJsonInteger);
  const auto basis = RoomBasis(object.choice("basis", kRoomBases));
  object.finish();
  const auto room = rows_room_of(plan);
  if (!room || room->percent != percent || room->basis != basis)
    object.fail("percent", "the plan's job, framework and strategy give another room");
}

Json plan_json(const Plan& plan) {
  Json json = {{"version", kPlanVersion},
               {"origin", origin_json(plan.origin)},
               {"constraints", constraints_json(plan.constraints)},
               {"devices", plan.devices},
               {"devices_per_node", plan.devices_per_node},
               {"device_kind", kDeviceKinds[std::size_t(plan.device_kind)]},
               {"oversubscribed", plan.oversubscribed},
               {"cluster_name", plan.cluster_name},
               {"cluster_digest", plan.cluster_digest},
               {"calibration_digest", text_json(plan.calibration_digest)},
               {"reserve_bytes", plan.reserve.count()},
               {"stated_vocabulary", plan.stated_vocabulary},
               {"job", parse_json(job_text(plan.job), "job")},
               {"framework", framework_json(plan.framework)},
               {"strategy", parse_json(strategy_text(plan.strategy), "strategy")},
               {"prediction", prediction_json(plan.prediction)},
               {"programs", plan.program_digests},
               {"search", search_json(plan.search)},
               {"unusual", unusual_json(plan.unusual)},
               {"fastest", plan.fastest ? fastest_json(*plan.fastest) : Json(nullptr)},
               {"runners_up", runners_up_json(plan)},
               {"pareto", pareto_json(plan)},
               {"timeline_resolution_ps", plan.timeline_resolution.count()},
               {"rank_times", rank_times_json(plan.rank_times)},
               {"timeline", timeline_json(plan.timeline)}};
  if (!plan.calibration_rest_digest.empty())
    json["calibration_rest_digest"] = plan.calibration_rest_digest;
  if (plan.communicator != CommunicatorKind::local) {
    json["communicator"] = to_text(plan.communicator);
  }
  if (plan.mixed_devices) json["mixed_devices"] = true;
  if (const auto room = rows_room_of(plan)) {
    json["expert_rows"] = {{"percent", room->percent},
                           {"basis", kRoomBases[std::size_t(room->basis)]}};
  }
  if (plan.training) json["training"] = training_json(*plan.training);
  return json;
}

}  // namespace

void fit_timeline(Plan& plan) {
  Timeline& timeline = plan.timeline;
  thin_curves(timeline, points_of_a_curve(timeline));
  if (timeline.intervals.size() <= kMostIntervals || plan.timeline_resolution > Picoseconds()) {
    return;
  }
  if (runs_here(plan.framework)) {
    for (const RankMemory& memory : timeline.memory) {
      plan.rank_times.push_back(times_of(timeline, memory.rank));
    }
  }
  const std::vector<std::int64_t> kept = ranks_spread(timeline, kMostRanksInDetail);
  if (kept.size() < timeline.memory.size()) {
    std::erase_if(timeline.intervals, [&](const Interval& one) {
      return !std::binary_search(kept.begin(), kept.end(), one.rank);
    });
  }
  plan.timeline_resolution =
      std::max(draw_together(timeline, kMostIntervals), Picoseconds(1));  // even if none was left
}

TrainingStep training_step(const Plan& plan) {
  const Prediction& prediction = plan.prediction;
  return {prediction.step_time, prediction.step_time_low, prediction.step_time_high,
          plan.job.global_batch * plan.job.sequence, plan.devices};
}

std::int64_t parameter_count(const Plan& plan) {
  Job job = plan.job;
  if (plan.stated_vocabulary > 0) job.vocab = plan.stated_vocabulary;
  return parameter_count(build_forward(job, 1));
}

std::string plan_text(const Plan& plan) {
  const auto too_long = [&](const RankMemory& memory) {
    return memory.curve.size() > points_of_a_curve(plan.timeline);
  };
  const auto& memory = plan.timeline.memory;
  const bool fits = plan.timeline.intervals.size() <= kMostIntervals &&
                    std::none_of(memory.begin(), memory.end(), too_long);
  if (fits) return line_text(plan_json(plan));
  Plan shorter = plan;
  fit_timeline(shorter);
  return line_text(plan_json(shorter));
}

Plan parse_plan(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::plan, text, file);
  JsonObject object(json, file);
  if (object.integer("version", 0, kMostJsonInteger) != kPlanVersion) {
    object.fail("version", "this build reads version " + std::to_string(kPlanVersion));
  }
  Plan plan;
  plan.origin = origin_from(object.object("origin"));
  plan.constraints = constraints_from(object.object("constraints"));
  plan.devices = object.integer("devices", 1, kMostJsonInteger);
  plan.devices_per_node = object.integer("devices_per_node", 1, kMostJsonInteger);
  plan.device_kind = static_cast<DeviceKind>(object.choice("device_kind", kDeviceKinds));
  if (object.has("mixed_devices")) plan.mixed_devices = object.boolean("mixed_devices");
  if (object.has("communicator")) {
    const auto kind = communicator_from(object.text("communicator"));
    if (!kind) object.fail("communicator", "local, mpi or nccl is required");
    plan.communicator = *kind;
  }
  plan.oversubscribed = object.boolean("oversubscribed");
  plan.cluster_name = object.text("cluster_name");
  plan.cluster_digest = object.text("cluster_digest");
  plan.calibration_digest = text_from(object, "calibration_digest");
  if (object.has("calibration_rest_digest"))
    plan.calibration_rest_digest = object.text("calibration_rest_digest");
  plan.reserve = byte_count(object, "reserve_bytes");
  plan.job = read_embedded(object, "job", parse_job);
  plan.stated_vocabulary = object.integer("stated_vocabulary", 0, plan.job.vocab);
  plan.framework = framework_from(object.object("framework"));
  plan.strategy = read_embedded(object, "strategy", strategy_from_json_text);
  plan.prediction = prediction_from(object.object("prediction"));
  if (object.has("training"))
    plan.training = training_from(object.object("training"), training_step(plan));
  plan.program_digests = object.texts("programs");
  plan.search = search_from(object.object("search"));
  plan.unusual = unusual_from(object, "unusual");
  if (!object.raw("fastest").is_null()) plan.fastest = fastest_from(object.object("fastest"));
  for (JsonObject& runner_up : object.objects("runners_up")) {
    plan.runners_up.push_back(runner_up_from(std::move(runner_up)));
  }
  for (JsonObject& point : object.objects("pareto")) {
    plan.pareto.push_back(pareto_from(std::move(point)));
  }
  plan.timeline_resolution =
      Picoseconds(object.integer("timeline_resolution_ps", 0, kMostJsonInteger));
  plan.rank_times = rank_times_from(object);
  plan.timeline = timeline_from(object.object("timeline"));
  if (object.has("expert_rows")) check_rows_room(object.object("expert_rows"), plan);
  object.finish();
  return plan;
}

std::string name_of(const StagePrediction& stage) {
  std::string name = fmt::format("stage {}", stage.stage);
  if (stage.owner) name += fmt::format(" owner {}", *stage.owner);
  return name;
}

bool is_class(const StagePrediction& stage, const Strategy& strategy, std::size_t index) {
  const auto owners = owner_classes(strategy);
  return stage.stage == std::int64_t(index / owners.size()) &&
         stage.owner == owners[index % owners.size()];
}

Plan read_plan(const std::filesystem::path& path) {
  return parse_plan(read_file(path), path.string());
}

void check_legal(const Plan& plan, const std::string& file) {
  if (Verdict verdict = legal(plan.job, plan.strategy, plan.devices); !verdict) {
    throw InputError(file, "/strategy", verdict.reason());
  }
  const std::size_t stages = plan.prediction.stages.size(),
                    owners = owner_classes(plan.strategy).size();
  if (std::int64_t(stages) != rank_classes(plan.strategy)) {
    throw InputError(file, "/prediction/stages",
                     fmt::format("found {} stages; pp is {}{}", stages, plan.strategy.pp,
                                 owners > 1 ? fmt::format(", with {} owners each", owners) : ""));
  }
  for (std::size_t i = 0; i < stages; ++i) {
    const StagePrediction& stage = plan.prediction.stages[i];
    if (is_class(stage, plan.strategy, i)) continue;
    throw InputError(file, fmt::format("/prediction/stages/{}/stage", i),
                     fmt::format("found {}; stages stand in order",
                                 stage.owner ? name_of(stage) : std::to_string(stage.stage)));
  }
  const auto check_rank = [&](std::int64_t rank, const char* list, std::size_t index) {
    if (rank < plan.devices) return;
    throw InputError(file, fmt::format("/timeline/{}/{}/rank", list, index),
                     fmt::format("found {}; the plan has {} ranks", rank, plan.devices));
  };
  const Timeline& timeline = plan.timeline;
  for (std::size_t i = 0; i < timeline.intervals.size(); ++i) {
    check_rank(timeline.intervals[i].rank, "intervals", i);
  }
  for (std::size_t i = 0; i < timeline.memory.size(); ++i) {
    check_rank(timeline.memory[i].rank, "memory", i);
  }
}

Plan read_legal_plan(const std::filesystem::path& path) {
  Plan plan = read_plan(path);
  check_legal(plan, path.string());
  return plan;
}

}  // namespace plimsoll
