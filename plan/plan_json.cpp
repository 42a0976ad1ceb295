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
#include "plan/json_forms.h"
#include "plan/json_layout.h"
#include "plan/plan.h"
#include "plan/prediction_json.h"
#include "plan/timeline_json.h"
#include "plan/training/training_json.h"

namespace plimsoll {
namespace {

/// Relative to the shortest step, a picosecond.
constexpr Allowed kStepRatios(0, kMostJsonSeconds * 1e12);

std::vector<Pruned> cuts_of(const CutCounts& counts) {
  std::vector<Pruned> cuts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) cuts.push_back({std::string(kCuts[i]), counts[i]});
  }
  return cuts;
}

/// Returns the count of each bound that a file lists; their sum has to be `all`.
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

constexpr auto kPruned = [](auto& fields, auto& pruned) {
  fields.required("reason", pruned.reason);
  fields.required("count", pruned.count);
};

constexpr auto kSearch = [](auto& fields, auto& search) {
  fields.required("space", search.space);
  fields.required("evaluated", search.evaluated);
  fields.required("infeasible", search.infeasible);
  std::int64_t bounded = sum_of(search.bounded);
  std::vector<Pruned> cuts = cuts_of(search.bounded);
  fields.required("bounded", bounded);
  fields.required("bounded_by", cuts, kPruned);
  if constexpr (kReading<decltype(fields)>)
    search.bounded = counts_of(cuts, bounded, fields.object());
  fields.required("pruned", search.pruned, kPruned);
  fields.required("unexplored", search.unexplored);
  fields.required("proven", search.proven);
  fields.required("gap", search.gap, kRatios);
};

void list_strategy(auto& fields, auto& strategy) {
  fields.required("strategy", strategy, embedded(strategy_text, strategy_from_json_text));
}

/// Lists what all plans that were not chosen have, but for their unusual choices.
void list_shared(auto& fields, auto& plan) {
  list_strategy(fields, plan.strategy);
  fields.required("step_time_s", plan.step_time, kTimes);
  fields.required("ratio_low", plan.ratio.low, kStepRatios);
  fields.required("ratio_high", plan.ratio.high, kStepRatios);
  fields.required("tied", plan.ratio.tied);
  fields.required("peak_bytes", plan.peak);
  fields.required("taken_bytes", plan.taken);
}

constexpr auto kOther = [](auto& fields, auto& plan) {
  list_shared(fields, plan);
  fields.required("unusual", plan.unusual, kUnusual);
};

constexpr auto kFastest = [](auto& fields, auto& plan) {
  list_shared(fields, plan);
  fields.required("gain", plan.gain, {0, 1});
  fields.required("reasons", plan.unusual, kUnusual);
};

constexpr auto kTrial = [](auto& fields, auto& plan) {
  kOther(fields, plan);
  fields.required("gain", plan.gain, {0, 1});
};

constexpr auto kRunnerUp = [](auto& fields, auto& plan) {
  kOther(fields, plan);
  fields.required("term", plan.term, kLossTerms);
  fields.required("term_time_s", plan.term_time, {-kMostJsonSeconds, kMostJsonSeconds});
  fields.required("term_bytes", plan.term_bytes, {-double(kMostJsonInteger), kMostJsonInteger});
};

constexpr auto kRoom = [](auto& fields, auto& room) {
  fields.required("percent", room.percent);
  fields.required("basis", room.basis, kRoomBases);
};

constexpr auto kOrigin = [](auto& fields, auto& origin) {
  fields.required("version", origin.version);
  fields.or_null("command", origin.command);
  fields.or_null("calibration_name", origin.calibration_name);
  fields.or_null("calibration_provenance", origin.calibration_provenance);
  fields.or_null("interval_basis", origin.interval_basis);
};

constexpr auto kByKind = [](auto& fields, auto& times) {
  if constexpr (kReading<decltype(fields)>) times.by_kind.resize(kOpKinds);
  for (std::size_t i = 0; i < kOpKinds; ++i) fields.optional(kOpNames[i], times.by_kind[i]);
};

constexpr auto kRankTimes = [](auto& fields, auto& times) {
  fields.required("rank", times.rank);
  fields.required("exposed_wait_ps", times.exposed.wait);
  fields.required("exposed_transfer_ps", times.exposed.transfer);
  fields.required("by_kind_ps", times, kByKind);
};

/// Lists the room for the experts' rows, which follows from the plan.
void list_rows_room(auto& fields, const Plan& plan) {
  std::optional<RowsRoom> room;
  if (!fields.kReads) room = rows_room_of(plan);
  fields.optional("expert_rows", room, kRoom);
  if (!fields.kReads || !room) return;
  const auto right = rows_room_of(plan);
  fields.check(right && room->percent == right->percent && room->basis == right->basis,
               "expert_rows", "the plan's job, framework and strategy give another room");
}

constexpr auto kPlan = [](auto& fields, auto& plan) {
  static const auto communicators = texts_of<CommunicatorKind>(3);
  fields.version(kPlanVersion);
  fields.required("origin", plan.origin, kOrigin);
  fields.required("constraints", plan.constraints, Form{constraints_json, constraints_from});
  fields.required("devices", plan.devices, {1, kMostJsonInteger});
  fields.required("devices_per_node", plan.devices_per_node, {1, kMostJsonInteger});
  fields.required("device_kind", plan.device_kind, kDeviceKinds);
  fields.required("oversubscribed", plan.oversubscribed);
  fields.required("cluster_name", plan.cluster_name);
  fields.required("cluster_digest", plan.cluster_digest);
  fields.or_null("calibration_digest", plan.calibration_digest);
  fields.required("reserve_bytes", plan.reserve);
  fields.required("stated_vocabulary", plan.stated_vocabulary);
  fields.required("job", plan.job, embedded(job_text, parse_job));
  if (fields.kReads)
    fields.required("stated_vocabulary", plan.stated_vocabulary, {0, double(plan.job.vocab)});
  fields.required("framework", plan.framework, Form{framework_json, framework_from});
  list_strategy(fields, plan.strategy);
  fields.required("prediction", plan.prediction, Form{prediction_json, prediction_from});
  fields.required("programs", plan.program_digests);
  fields.required("search", plan.search, kSearch);
  fields.required("unusual", plan.unusual, kUnusual);
  fields.or_null("fastest", plan.fastest, kFastest);
  fields.required("runners_up", plan.runners_up, kRunnerUp);
  fields.required("pareto", plan.pareto, kOther);
  fields.required("trials", plan.trials, kTrial);
  fields.required("timeline_resolution_ps", plan.timeline_resolution);
  fields.required("rank_times", plan.rank_times, kRankTimes);
  fields.required("timeline", plan.timeline, Form{timeline_json, timeline_from});
  fields.optional("calibration_rest_digest", plan.calibration_rest_digest);
  fields.unless(CommunicatorKind::local, "communicator", plan.communicator, communicators);
  fields.optional("mixed_devices", plan.mixed_devices);
  list_rows_room(fields, plan);
  const auto training_of_plan = [&](JsonObject object) {
    return training_from(std::move(object), training_step(plan));
  };
  fields.optional("training", plan.training, Form{training_json, training_of_plan});
};

}  // namespace

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
          tokens_per_step(plan.job), plan.devices};
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
  if (fits) return line_text(listed_json(plan, kPlan));
  Plan shorter = plan;
  fit_timeline(shorter);
  return line_text(listed_json(shorter, kPlan));
}

Plan parse_plan(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::plan, text, file);
  return read_listed<Plan>(JsonObject(json, file), kPlan);
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
