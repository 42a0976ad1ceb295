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

std::string what_of(const Goal& goal) {
  if (goal.regret) return "regret";
  return fmt::format("{} {}", goal.family,
                     kQuantities[goal.kind ? 1 + std::size_t(*goal.kind) : 0]);
}

RegretGoal regret_goal_from(JsonObject& object) {
  const auto bound = [&](std::string_view key) -> std::optional<double> {
    if (!object.has(key)) return std::nullopt;
    return object.number(key, 0, 1e6);
  };
  return {bound("most_mean_pct"), bound("most_worst_pct"), bound("most_best_of_three_pct")};
}

Goal goal_from(JsonObject object) {
  Goal goal;
  const std::size_t of = object.choice("of", kQuantities);
  if (of == kRegret) {
    goal.regret = regret_goal_from(object);
    object.finish();
    return goal;
  }
  goal.family = object.text("family");
  if (of > 0) goal.kind = MemoryKind(of - 1);
  const auto bound = [&](std::string_view key, double most) -> std::optional<double> {
    if (!object.has(key)) return std::nullopt;
    return object.number(key, -1, most);
  };
  const auto count = [&](std::string_view key) -> std::optional<std::int64_t> {
    if (!object.has(key)) return std::nullopt;
    return object.integer(key, 0, std::int64_t{1} << 40);
  };
  goal.most_mean_abs_pct = bound("most_mean_abs_pct", 1e6);
  goal.most_median_abs_pct = bound("most_median_abs_pct", 1e6);
  goal.least_spearman = bound("least_spearman", 1);
  goal.least_interval90_coverage = bound("least_interval90_coverage", 1);
  goal.most_interval90_to_error = bound("most_interval90_to_error", 1e6);
  goal.most_skipped_pct = bound("most_skipped_pct", 100);
  goal.most_missed_oom = count("most_missed_oom");
  goal.most_false_oom = count("most_false_oom");
  object.finish();
  return goal;
}

/// Whether a row states all that a predictor of this kind needs.
bool should_be_predicted(const PublishedRun& run) {
  return std::all_of(run.needs.begin(), run.needs.end(),
                     [](const std::string& need) { return need == "fp8" || need == "cp"; });
}

struct Counts {
  std::optional<double> skipped_pct;  ///< absent: no row should be predicted
  std::int64_t missed_oom = 0, false_oom = 0;
};

Counts counts_of(const ValidatedFamily& family) {
  Counts counts;
  double asked = 0, skipped = 0;
  for (const ValidatedRun& row : family.runs) {
    if (should_be_predicted(row.run)) asked += 1, skipped += row.predicted ? 0 : 1;
    const bool fits = !row.predicted || row.predicted->fits != Fits::no;  // silence warns nobody
    if (row.run.out_of_memory == !fits) continue;
    ++(row.run.out_of_memory ? counts.missed_oom : counts.false_oom);
  }
  if (asked > 0) counts.skipped_pct = 100 * skipped / asked;
  return counts;
}

class Results {
 public:
  explicit Results(const Goal& goal) : goal_(goal) {}

  void at_most(std::string_view what, std::optional<double> found, std::optional<double> bound) {
    add(what, found, bound, [](double value, double limit) { return value <= limit; });
  }
  void at_least(std::string_view what, std::optional<double> found, std::optional<double> bound) {
    add(what, found, bound, [](double value, double limit) { return value >= limit; });
  }
  std::vector<GoalResult> take() { return std::move(results_); }

 private:
  template <class Holds>
  void add(std::string_view what, std::optional<double> found, std::optional<double> bound,
           Holds holds) {
    if (!bound) return;
    GoalResult result{fmt::format("{} {}", what_of(goal_), what),
                      found.value_or(std::numeric_limits<double>::quiet_NaN()), *bound, false};
    result.met = found && holds(*found, *bound);
    results_.push_back(std::move(result));
  }

  const Goal& goal_;
  std::vector<GoalResult> results_;
};

std::vector<GoalResult> check(const Goal& goal, const ValidatedFamily& family) {
  const std::optional<ErrorStatistics> found =
      goal.kind ? memory_statistics(family, *goal.kind) : time_statistics(family);
  const auto of = [&](auto read) -> std::optional<double> {
    return found ? read(*found) : std::optional<double>();
  };
  using S = const ErrorStatistics&;
  using Found = std::optional<double>;
  Results results(goal);
  results.at_most("mean |error| %", of([](S s) -> Found { return 100 * s.mean_abs; }),
                  goal.most_mean_abs_pct);
  results.at_most("median |error| %", of([](S s) -> Found { return 100 * s.median_abs; }),
                  goal.most_median_abs_pct);
  results.at_least("Spearman", of([](S s) { return s.spearman; }), goal.least_spearman);
  results.at_least("share within the 90 % interval", of([](S s) { return s.interval90_coverage; }),
                   goal.least_interval90_coverage);
  results.at_most("interval half width / mean |error|", of([](S s) -> Found {
                    if (!s.interval90_half_width || s.mean_abs == 0) return std::nullopt;
                    return *s.interval90_half_width / s.mean_abs;
                  }),
                  goal.most_interval90_to_error);
  const Counts counts = counts_of(family);
  results.at_most("rows skipped %", counts.skipped_pct, goal.most_skipped_pct);
  results.at_most("rows that ran out of memory, not predicted to", double(counts.missed_oom),
                  goal.most_missed_oom);
  results.at_most("rows that ran, predicted out of memory", double(counts.false_oom),
                  goal.most_false_oom);
  return results.take();
}

std::vector<GoalResult> check(const Goal& goal, const std::optional<SourceRegret>& all) {
  const auto percent = [&](double MeanRegret::*part) -> std::optional<double> {
    if (!all) return std::nullopt;
    return 100 * all->recommended.*part;
  };
  Results results(goal);
  results.at_most("mean % over sources", percent(&MeanRegret::mean), goal.regret->most_mean_pct);
  results.at_most("worst group %", percent(&MeanRegret::worst), goal.regret->most_worst_pct);
  results.at_most("best of three, mean % over sources", percent(&MeanRegret::best_of_three),
                  goal.regret->most_best_of_three_pct);
  return results.take();
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
    if (goals[i].regret) {
      const std::vector<LayoutGroup> groups = layout_groups(families);
      for (GoalResult& result : check(goals[i], regret_of_all(regret_by_source(groups))))
        results.push_back(std::move(result));
      continue;
    }
    const auto family =
        std::find_if(families.begin(), families.end(),
                     [&](const ValidatedFamily& known) { return known.name == goals[i].family; });
    if (family == families.end()) {
      throw InputError(file, fmt::format("/goals/{}/family", i),
                       fmt::format("found \"{}\"; no file of that name is validated",
                                   printable(goals[i].family)));
    }
    for (GoalResult& result : check(goals[i], *family)) results.push_back(std::move(result));
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
