// Goals are read and compared with the errors of families.
#include "published/goals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "published/layout_regret.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 5> kQuantities = {
    "time", "memory_allocated", "memory_reserved", "memory_device", "regret"};
constexpr std::size_t kRegret = 4;

/// Goals are held against these.
struct Found {
  std::optional<ErrorStatistics> errors;
  std::optional<double> skipped_pct;  ///< absent: no row should be predicted
  double missed_oom = 0, false_oom = 0;
  std::optional<MeanRegret> regret;  ///< over sources
};

/// A value that a goal bounds.
struct Bound {
  std::string_view key, what;
  std::optional<double> (*value)(const Found&);
  double least = -1, most = 1e6;  ///< of the bound
  bool counts = false;            ///< the bound is an integer
  bool of_regret = false;
  bool from_below = false;
};

template <class Read>
std::optional<double> of_errors(const Found& found, Read read) {
  return found.errors ? std::optional<double>(read(*found.errors)) : std::nullopt;
}

std::optional<double> percent(const Found& found, double MeanRegret::*part) {
  return found.regret ? std::optional(100 * (*found.regret).*part) : std::nullopt;
}

/// Relative to the mean absolute error.
std::optional<double> width_of_interval(const Found& found) {
  if (!found.errors || !found.errors->interval90_half_width || found.errors->mean_abs == 0)
    return std::nullopt;
  return *found.errors->interval90_half_width / found.errors->mean_abs;
}

constexpr Bound kBounds[] = {
    {"most_mean_abs_pct", "mean |error| %",
     [](auto& found) { return of_errors(found, [](auto& e) { return 100 * e.mean_abs; }); }},
    {"most_median_abs_pct", "median |error| %",
     [](auto& found) { return of_errors(found, [](auto& e) { return 100 * e.median_abs; }); }},
    {"least_spearman", "Spearman",
     [](auto& found) { return found.errors ? found.errors->spearman : std::nullopt; }, -1, 1, false,
     false, true},
    {"least_interval90_coverage", "share within the 90 % interval",
     [](auto& found) { return found.errors ? found.errors->interval90_coverage : std::nullopt; },
     -1, 1, false, false, true},
    {"most_interval90_to_error", "interval half width / mean |error|", width_of_interval},
    {"most_skipped_pct", "rows skipped %", [](auto& found) { return found.skipped_pct; }, -1, 100},
    {"most_missed_oom", "rows that ran out of memory, not predicted to",
     [](auto& found) { return std::optional(found.missed_oom); }, 0, 0x1p40, true},
    {"most_false_oom", "rows that ran, predicted out of memory",
     [](auto& found) { return std::optional(found.false_oom); }, 0, 0x1p40, true},
    {"most_mean_pct", "mean % over sources",
     [](auto& found) { return percent(found, &MeanRegret::mean); }, 0, 1e6, false, true},
    {"most_worst_pct", "worst group %",
     [](auto& found) { return percent(found, &MeanRegret::worst); }, 0, 1e6, false, true},
    {"most_best_of_three_pct", "best of three, mean % over sources",
     [](auto& found) { return percent(found, &MeanRegret::best_of_three); }, 0, 1e6, false, true},
};

Goal goal_from(JsonObject& object) {
  Goal goal;
  const std::size_t of = object.choice("of", kQuantities);
  goal.of_regret = of == kRegret;
  if (!goal.of_regret) goal.family = object.text("family");
  if (of > 0 && !goal.of_regret) goal.kind = MemoryKind(of - 1);
  for (std::size_t i = 0; i < std::size(kBounds); ++i) {
    const Bound& bound = kBounds[i];
    if (bound.of_regret != goal.of_regret || !object.has(bound.key)) continue;
    goal.bounds.emplace_back(i, bound.counts
                                    ? double(object.integer(bound.key, std::int64_t(bound.least),
                                                            std::int64_t(bound.most)))
                                    : object.number(bound.key, bound.least, bound.most));
  }
  object.finish();
  return goal;
}

/// Whether a row states all that a predictor of this kind needs.
bool should_be_predicted(const PublishedRun& run) {
  return std::all_of(run.needs.begin(), run.needs.end(),
                     [](const std::string& need) { return need == "fp8" || need == "cp"; });
}

Found found_in(const ValidatedFamily& family, const std::optional<MemoryKind>& kind) {
  Found found;
  found.errors = kind ? memory_statistics(family, *kind) : time_statistics(family);
  double asked = 0, skipped = 0;
  for (const ValidatedRun& row : family.runs) {
    if (should_be_predicted(row.run)) asked += 1, skipped += row.predicted ? 0 : 1;
    const bool fits = !row.predicted || row.predicted->fits != Fits::no;  // silence warns nobody
    if (row.run.out_of_memory == fits) ++(fits ? found.missed_oom : found.false_oom);
  }
  if (asked > 0) found.skipped_pct = 100 * skipped / asked;
  return found;
}

Found found_in(std::span<const ValidatedFamily> families) {
  const std::vector<LayoutGroup> groups = layout_groups(families);
  const std::optional<SourceRegret> all = regret_of_all(regret_by_source(groups));
  Found found;
  if (all) found.regret = all->recommended;
  return found;
}

/// Returns what the goals are held against, of the family that the goal at `place` is about.
Found found_for(const Goal& goal, std::span<const ValidatedFamily> families,
                const std::string& file, std::size_t place) {
  if (goal.of_regret) return found_in(families);
  const auto family = std::ranges::find(families, goal.family, &ValidatedFamily::name);
  if (family != families.end()) return found_in(*family, goal.kind);
  throw InputError(
      file, fmt::format("/goals/{}/family", place),
      fmt::format("found \"{}\"; no file of that name is validated", printable(goal.family)));
}

}  // namespace

std::vector<Goal> parse_goals(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonObject whole(json, file);
  std::vector<Goal> goals;
  for (JsonObject& goal : whole.objects("goals")) goals.push_back(goal_from(goal));
  whole.finish();
  return goals;
}

std::vector<GoalResult> check_goals(std::span<const Goal> goals,
                                    std::span<const ValidatedFamily> families,
                                    const std::string& file) {
  std::vector<GoalResult> results;
  for (std::size_t i = 0; i < goals.size(); ++i) {
    const Goal& goal = goals[i];
    const Found found = found_for(goal, families, file, i);
    const std::string of =
        goal.of_regret ? "regret"
                       : fmt::format("{} {}", goal.family,
                                     kQuantities[goal.kind ? 1 + std::size_t(*goal.kind) : 0]);
    for (const auto& [place, limit] : goal.bounds) {
      const Bound& bound = kBounds[place];
      const std::optional<double> value = bound.value(found);
      const bool met = value && (bound.from_below ? *value >= limit : *value <= limit);
      results.push_back({fmt::format("{} {}", of, bound.what),
                         value.value_or(std::numeric_limits<double>::quiet_NaN()), limit, met});
    }
  }
  return results;
}

std::string goals_text(std::span<const GoalResult> results) {
  std::string text;
  std::size_t missed = 0;
  for (const GoalResult& result : results) {
    missed += result.met ? 0 : 1;
    text += fmt::format("  {:6} {}: {:.3g}, goal {:.3g}\n", result.met ? "met" : "missed",
                        result.what, result.found, result.bound);
  }
  return fmt::format("goals: {} of {} met\n{}", results.size() - missed, results.size(), text);
}

}  // namespace plimsoll
