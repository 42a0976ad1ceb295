// Plan files are read and written here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "models/framework/framework_json.h"
#include "models/kinds/file_kind.h"
#include "passes/strategy/expert_rows.h"
#include "passes/strategy/sharding_rules.h"
#include "plan/json_fields.h"
#include "plan/json_layout.h"
#include "plan/plan.h"
#include "plan/prediction_json.h"
#include "plan/timeline_json.h"
#include "plan/training/training_json.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 2> kDeviceKinds = {"cpu_core", "gpu"};

constexpr double kMostStepRatio = kMostJsonSeconds * 1e12;  // of the shortest step, a picosecond

std::vector<Pruned> cuts_of(const CutCounts& counts) {
  std::vector<Pruned> cuts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) cuts.push_back({std::string(kCuts[i]), counts[i]});
  }
  return cuts;
}

/// Returns what the file says of each bound. They cut so many strategies in all.
CutCounts counts_of(std::span<const Pruned> cuts, std::int64_t all, const JsonObject& search) {
  CutCounts counts{};
  for (const Pruned& one : cuts) {
    const auto cut = std::ranges::find(kCuts, one.reason);
    if (cut == kCuts.end())
      search.fail("bounded_by", fmt::format("\"{}\" is no bound; allowed: {}",
                                            printable(one.reason), fmt::join(kCuts, ", ")));
    std::int64_t& count = counts[std::size_t(cut - kCuts.begin())];
    if (count != 0) search.fail("bounded_by", "each reason at most once is required");
    count = one.count;
  }
  if (all != sum_of(counts))
    search.fail("bounded", fmt::format("the bounds cut {}", sum_of(counts)));
  return counts;
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

}  // namespace

void list_fields(Fields& io, Pruned& pruned) {
  io("reason", pruned.reason);
  io("count", pruned.count);
}

void list_fields(Fields& io, SearchSummary& search) {
  io.choice("method", search.method, kSearchMethods);
  io("space", search.space);
  io("evaluated", search.evaluated);
  io("infeasible", search.infeasible);
  std::int64_t bounded = sum_of(search.bounded);
  std::vector<Pruned> cuts = cuts_of(search.bounded);
  io("bounded", bounded);
  io.list("bounded_by", cuts);
  if (io.reads()) search.bounded = counts_of(cuts, bounded, *io.from);
  io.list("pruned", search.pruned);
  io("unexplored", search.unexplored);
  io("proven", search.proven);
  io.number("gap", search.gap, 0., kMostRatio);
}

/// Lists what all plans that were not chosen have, but for their unusual choices.
void list_shared_fields(Fields& io, OtherPlan& plan) {
  io.as_text("strategy", plan.strategy, strategy_text, strategy_from_json_text);
  io("step_time_s", plan.step_time);
  io.number("ratio_low", plan.ratio.low, 0., kMostStepRatio);
  io.number("ratio_high", plan.ratio.high, 0., kMostStepRatio);
  io("tied", plan.ratio.tied);
  io("peak_bytes", plan.peak);
  io("taken_bytes", plan.taken);
}

void list_fields(Fields& io, OtherPlan& plan) {
  list_shared_fields(io, plan);
  io.list("unusual", plan.unusual);
}

void list_fields(Fields& io, FastestPlan& plan) {
  list_shared_fields(io, plan);
  io.number("gain", plan.gain, 0., 1.);
  io.list("reasons", plan.unusual);
}

void list_fields(Fields& io, RunnerUp& runner_up) {
  list_fields(io, static_cast<OtherPlan&>(runner_up));
  io.choice("term", runner_up.term, kLossTerms);
  io("term_time_s", runner_up.term_time, -kMostJsonSeconds);
  io("term_bytes", runner_up.term_bytes, -kMostJsonInteger);
}

void list_fields(Fields& io, RowsRoom& room) {
  io("percent", room.percent);
  io.choice("basis", room.basis, kRoomBases);
}

void list_fields(Fields& io, PlanOrigin& origin) {
  io("version", origin.version);
  io.or_null("command", origin.command);
  io.or_null("calibration_name", origin.calibration_name);
  io.or_null("calibration_provenance", origin.calibration_provenance);
  io.or_null("interval_basis", origin.interval_basis);
}

void list_fields(Fields& io, RankTimes& times) {
  static const auto kinds = texts_of<OpKind>(kOpKinds);
  io("rank", times.rank);
  io("exposed_wait_ps", times.exposed.wait);
  io("exposed_transfer_ps", times.exposed.transfer);
  if (io.reads()) times.by_kind.resize(kOpKinds);
  io.by_name("by_kind_ps", times.by_kind, kinds, true);
}

void list_fields(Fields& io, Plan& plan) {
  static const auto communicators = texts_of<CommunicatorKind>(3);
  io.object("origin", plan.origin);
  io.as("constraints", plan.constraints, constraints_json, constraints_from);
  io("devices", plan.devices, 1);
  io("devices_per_node", plan.devices_per_node, 1);
  io.choice("device_kind", plan.device_kind, kDeviceKinds);
  io("oversubscribed", plan.oversubscribed);
  io("cluster_name", plan.cluster_name);
  io("cluster_digest", plan.cluster_digest);
  io.or_null("calibration_digest", plan.calibration_digest);
  io("reserve_bytes", plan.reserve);
  io("stated_vocabulary", plan.stated_vocabulary);
  io.as_text("job", plan.job, job_text, parse_job);
  if (io.reads()) io("stated_vocabulary", plan.stated_vocabulary, 0, plan.job.vocab);
  io.as("framework", plan.framework, framework_json, framework_from);
  io.as_text("strategy", plan.strategy, strategy_text, strategy_from_json_text);
  io.as("prediction", plan.prediction, prediction_json, prediction_from);
  io("programs", plan.program_digests);
  io.object("search", plan.search);
  io.list("unusual", plan.unusual);
  io.object("fastest", plan.fastest);
  io.list("runners_up", plan.runners_up);
  io.list("pareto", plan.pareto);
  io("timeline_resolution_ps", plan.timeline_resolution);
  io.list("rank_times", plan.rank_times);
  io.as("timeline", plan.timeline, timeline_json, timeline_from);
  io.unless(std::string(), "calibration_rest_digest", plan.calibration_rest_digest);
  if (io.shows("communicator", plan.communicator != CommunicatorKind::local))
    io.choice("communicator", plan.communicator, communicators);
  io.unless(false, "mixed_devices", plan.mixed_devices);
  std::optional<RowsRoom> room;
  if (!io.reads()) room = rows_room_of(plan);
  if (io.shows("expert_rows", room.has_value())) {
    if (io.reads()) room.emplace();
    io.object("expert_rows", *room);
    const auto right = rows_room_of(plan);
    if (!right || room->percent != right->percent || room->basis != right->basis)
      io.from->fail("expert_rows", "the plan's job, framework and strategy give another room");
  }
  if (io.shows("training", plan.training.has_value())) {
    io.as(
        "training", plan.training, [](const auto& known) { return training_json(*known); },
        [&](JsonObject object) { return training_from(std::move(object), training_step(plan)); });
  }
}

std::vector<Pruned> left_out_by(const SearchSummary& search) {
  std::vector<Pruned> counts = cuts_of(search.bounded);
  counts.insert(counts.end(), search.pruned.begin(), search.pruned.end());
  return counts;
}

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
  if (fits) return line_text(fields_json(plan, {{"version", kPlanVersion}}));
  Plan shorter = plan;
  fit_timeline(shorter);
  return line_text(fields_json(shorter, {{"version", kPlanVersion}}));
}

Plan parse_plan(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::plan, text, file);
  JsonObject object(json, file);
  if (object.integer("version", 0, kMostJsonInteger) != kPlanVersion) {
    object.fail("version", "this build reads version " + std::to_string(kPlanVersion));
  }
  Plan plan;
  Fields io(std::move(object));
  list_fields(io, plan);
  io.from->finish();
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
