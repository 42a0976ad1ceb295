// Validations as text and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/json.h"
#include "plan/prediction_json.h"
#include "published/goals.h"
#include "published/layout_regret.h"
#include "published/memory_verdicts.h"
#include "published/validate.h"

namespace plimsoll {
namespace {

constexpr std::array kKinds = {MemoryKind::allocated, MemoryKind::reserved, MemoryKind::device};

Json statistics_json(const std::optional<ErrorStatistics>& statistics) {
  if (!statistics) return nullptr;
  Json json;
  json["count"] = statistics->count;
  json["mean_signed_pct"] = 100 * statistics->mean_signed;
  json["mean_abs_pct"] = 100 * statistics->mean_abs;
  json["median_abs_pct"] = 100 * statistics->median_abs;
  json["p90_abs_pct"] = 100 * statistics->p90_abs;
  json["max_abs_pct"] = 100 * statistics->max_abs;
  json["spearman"] = statistics->spearman ? Json(*statistics->spearman) : Json(nullptr);
  const auto percent = [](const std::optional<double>& share) {
    return share ? Json(100 * *share) : Json(nullptr);
  };
  json["interval90_coverage"] =
      statistics->interval90_coverage ? Json(*statistics->interval90_coverage) : Json(nullptr);
  json["interval90_half_width_pct"] = percent(statistics->interval90_half_width);
  return json;
}

Json breakdown_json(const Breakdown& breakdown) {
  Json json;
  json["forward_s"] = breakdown.forward.value();
  json["recompute_s"] = breakdown.recompute.value();
  json["backward_s"] = breakdown.backward.value();
  json["optimizer_s"] = breakdown.optimizer.value();
  json["exposed_communication_s"] = breakdown.exposed_communication.value();
  json["bubble_s"] = breakdown.bubble.value();
  json["dispatch_s"] = breakdown.dispatch.value();
  return json;
}

Json open_json(const StepOpen& open) {
  Json json = {{"own", open.own}};
  for (std::size_t i = 0; i < kTimeCauses; ++i) json[to_text(TimeCause(i))] = open.causes[i];
  return json;
}

Json row_json(const ValidatedRun& row) {
  Json json;
  json["id"] = row.run.id;
  if (!row.predicted) {
    json["missing"] = row.missing;
    return json;
  }
  Json predicted, measured;
  predicted["step_time_s"] = row.predicted->step_time.value();
  for (const MemoryKind kind : kKinds) {
    predicted[fmt::format("memory_{}_bytes", to_text(kind))] =
        row.predicted->memory[std::size_t(kind)].count();
    predicted[fmt::format("memory_{}_half_width", to_text(kind))] =
        row.predicted->memory_half_width[std::size_t(kind)];
  }
  predicted["step_time_low_s"] = (row.predicted->step_time * row.predicted->interval.low).value();
  predicted["step_time_high_s"] = (row.predicted->step_time * row.predicted->interval.high).value();
  predicted["open"] = open_json(row.predicted->open);
  predicted["fits"] = row.predicted->fits != Fits::no;
  predicted["verdict"] = kFits[std::size_t(row.predicted->fits)];
  predicted["strategy"] = strategy_summary(row.predicted->strategy);
  predicted["breakdown"] = breakdown_json(row.predicted->breakdown);
  measured["step_time_s"] = row.run.step_time ? Json(row.run.step_time->value()) : Json(nullptr);
  const auto bytes = [](const std::optional<Bytes>& value) {
    return value ? Json(value->count()) : Json(nullptr);
  };
  measured["memory_allocated_bytes"] = bytes(row.run.memory_allocated);
  measured["memory_reserved_bytes"] = bytes(row.run.memory_reserved);
  measured["memory_device_bytes"] = bytes(row.run.memory_device);
  measured["oom"] = row.run.out_of_memory;
  json["cluster"] = row.predicted->cluster;
  json["framework"] = row.predicted->framework;
  json["calibration"] =
      row.predicted->calibration.empty() ? Json(nullptr) : Json(row.predicted->calibration);
  json["basis"] = to_text(row.predicted->open.basis);
  json["source"] = document_of(row.run.source);
  json["source_known"] = row.predicted->source_known;
  json["unusual"] = unusual_json(row.predicted->unusual);
  json["predicted"] = predicted;
  json["measured"] = measured;
  if (row.run.has_step_time()) {
    json["time_error_pct"] = 100 * (row.predicted->step_time / *row.run.step_time - 1);
  }
  return json;
}

constexpr std::size_t kFewRows = 8;
constexpr std::size_t kMostReasons = 6;

/// Returns texts with how often each occurs, the most frequent first.
std::vector<std::pair<std::size_t, std::string>> counted(const std::vector<std::string>& texts) {
  std::map<std::string, std::size_t> seen;
  for (const std::string& text : texts) ++seen[text];
  std::vector<std::pair<std::size_t, std::string>> result;
  for (const auto& [text, count] : seen) result.emplace_back(count, text);
  std::ranges::stable_sort(result, std::greater(), &std::pair<std::size_t, std::string>::first);
  return result;
}

std::string taken_for(const RunPrediction& predicted) {
  return fmt::format(
      "{}, {}, {}", predicted.cluster, predicted.framework,
      predicted.calibration.empty() ? "own numbers" : "calibration " + predicted.calibration);
}

/// Returns what the rows were taken for, and what those that were skipped lack, with their numbers.
std::string rows_summary(const ValidatedFamily& family) {
  std::vector<std::string> taken, missing;
  for (const ValidatedRun& row : family.runs) {
    if (row.predicted) taken.push_back(taken_for(*row.predicted));
    if (!row.predicted) missing.push_back(row.missing);
  }
  std::string text;
  const auto add = [&](std::string_view kind, std::size_t count, std::string_view what) {
    text += fmt::format("  {:17} {:4} {}  {}\n", kind, count, count == 1 ? "row " : "rows", what);
  };
  for (const auto& [count, what] : counted(taken)) add("taken for", count, what);
  std::size_t shown = 0, rest = missing.size();
  for (const auto& [count, what] : counted(missing)) {
    if (shown++ == kMostReasons) break;
    rest -= count;
    add("skipped", count, what);
  }
  if (rest > 0) add("skipped", rest, "for other reasons");
  return text;
}

/// Returns what one row was taken for, with its strategy and its time.
std::string row_text(const ValidatedRun& row) {
  if (!row.predicted) return fmt::format("  {}: skipped: {}\n", row.run.id, row.missing);
  std::string text = fmt::format("  {}: {}", row.run.id, taken_for(*row.predicted));
  if (row.run.has_step_time()) {
    text += fmt::format(", {:.4g} s for {:.4g} s ({:+.1f} %)", row.predicted->step_time.value(),
                        row.run.step_time->value(),
                        100 * (row.predicted->step_time / *row.run.step_time - 1));
  }
  return text + fmt::format("\n    {}\n", strategy_summary(row.predicted->strategy));
}

std::string line(const std::string& what, const std::optional<ErrorStatistics>& statistics) {
  if (!statistics) return "";
  return fmt::format("  {:17} {:4} rows  {}\n", what, statistics->count, errors_text(*statistics));
}

}  // namespace

std::string errors_text(const ErrorStatistics& statistics) {
  std::string text = fmt::format(
      "mean |error| {:5.1f} %  median {:5.1f} %  p90 {:5.1f} %  max {:5.1f} %  bias {:+5.1f} %",
      100 * statistics.mean_abs, 100 * statistics.median_abs, 100 * statistics.p90_abs,
      100 * statistics.max_abs, 100 * statistics.mean_signed);
  if (statistics.spearman) text += fmt::format("  Spearman {:.3f}", *statistics.spearman);
  if (statistics.interval90_coverage) {
    text +=
        fmt::format("  90 % interval +-{:.1f} % holds {:.0f} %",
                    100 * *statistics.interval90_half_width, 100 * *statistics.interval90_coverage);
  }
  return text;
}

std::string validation_text(std::span<const ValidatedFamily> families, bool each_row) {
  std::string text;
  for (const ValidatedFamily& family : families) {
    std::size_t skipped = 0;
    for (const ValidatedRun& run : family.runs) skipped += run.predicted ? 0 : 1;
    text += fmt::format("{}: {} rows, {} skipped\n", family.name, family.runs.size(), skipped);
    text += line("step time", time_statistics(family));
    for (const MemoryKind kind : kKinds) {
      text += line(fmt::format("memory {}", to_text(kind)), memory_statistics(family, kind));
    }
    text += verdicts_text(memory_verdicts(family));
    text += rows_summary(family);
    if (!each_row && family.runs.size() > kFewRows) continue;
    for (const ValidatedRun& row : family.runs) text += row_text(row);
  }
  return text + regret_text(layout_groups(families), each_row);
}

std::string validation_json(std::span<const ValidatedFamily> families,
                            std::span<const GoalResult> goals,
                            std::span<const ValidatedTraces> traces) {
  Json json;
  json["families"] = Json::array();
  json["rows"] = Json::array();
  std::size_t oom = 0, predicted_oom = 0, false_oom = 0;
  for (const ValidatedFamily& family : families) {
    std::size_t skipped = 0;
    for (const ValidatedRun& run : family.runs) {
      skipped += run.predicted ? 0 : 1;
      json["rows"].push_back(row_json(run));
      if (!run.predicted) continue;
      const std::size_t too_large = run.predicted->fits == Fits::no ? 1 : 0;
      if (run.run.out_of_memory) ++oom, predicted_oom += too_large;
      if (!run.run.out_of_memory) false_oom += too_large;
    }
    Json entry;
    entry["name"] = family.name;
    entry["rows"] = family.runs.size();
    entry["skipped"] = skipped;
    entry["time"] = statistics_json(time_statistics(family));
    for (const MemoryKind kind : kKinds) {
      entry[fmt::format("memory_{}", to_text(kind))] =
          statistics_json(memory_statistics(family, kind));
    }
    entry["memory_verdicts"] = verdicts_json(memory_verdicts(family));
    json["families"].push_back(entry);
  }
  for (std::size_t i = 0; i < kUnusualChoices; ++i) {
    const UnusualRule& rule = rule_of(UnusualChoice(i));
    json["unusual_choices"].push_back({{"choice", rule.key}, {"gain", rule.gain}});
  }
  json["oom"] = {{"rows", oom}, {"predicted_oom", predicted_oom}, {"false_oom", false_oom}};
  json["regret"] = regret_json(layout_groups(families));
  for (const GoalResult& goal : goals) {
    json["goals"].push_back({{"goal", goal.what},
                             {"found", std::isnan(goal.found) ? Json(nullptr) : Json(goal.found)},
                             {"bound", goal.bound},
                             {"met", goal.met}});
  }
  if (!traces.empty()) json["allocator_traces"] = traces_json(traces);
  return json_text(json);
}

}  // namespace plimsoll
