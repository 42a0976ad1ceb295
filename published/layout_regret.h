// The regret of a plan: how much longer the layout takes that predictions choose than the best that
// the same document measured.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "predict/trials.h"
#include "published/validate.h"

namespace plimsoll {

/// A MeasuredLayout has all runs of one layout. Runs of equal strategies are one layout. Runs of
/// several releases of the program with equal degrees and micro-batches are one layout, too, if no
/// release has two strategies with them: a recipe's other choices change from release to release.
struct MeasuredLayout {
  std::string strategy;             ///< strategy_summary() of the first run
  std::vector<std::string> runs;    ///< their ids
  Seconds predicted;                ///< median over the runs
  std::optional<Seconds> measured;  ///< median over the runs that ran; absent: none did
  bool fits = false;                ///< whether it is predicted to fit
  TrialPlan trial;                  ///< as predicted; the first run's shares of the step
};

/// A Regret is what a user loses who tries layouts in an order. Layouts that are predicted not to
/// fit are only tried if all layouts that ran are.
struct Regret {
  std::size_t chosen = 0;    ///< index of the first layout that ran
  double first = 0;          ///< its measured time over the best of the group, less 1
  double best_of_three = 0;  ///< the same of the best of the first three that ran
  double after_trials = 0;  ///< the same of the best of the first and the trials (predict/trials.h)
  std::size_t trials = 0;   ///< runs that these took, the first one among them
  std::size_t failed_starts = 0;  ///< layouts before the first that ran; each ran out of memory
};

/// A LayoutGroup has the layouts that one document measured of one job on one machine with one
/// program, whatever its release: kLeastLayouts or more that ran, and those that ran out of memory.
struct LayoutGroup {
  std::string source;                   ///< document_of() its runs
  std::string what;                     ///< job, machine and program in words
  std::vector<MeasuredLayout> layouts;  ///< by measured time; those out of memory come last
  Regret recommended;                   ///< in the order of merit()
  Regret fastest;                       ///< in the order of predicted times
  std::optional<double> spearman;       ///< of predicted and measured times
};
inline constexpr std::size_t kLeastLayouts = 3;

/// Returns the groups of the rows of all families, by source and words.
std::vector<LayoutGroup> layout_groups(std::span<const ValidatedFamily> families);

/// Means over groups, the worst group, and the sum of failed starts.
struct MeanRegret {
  double mean = 0, worst = 0, best_of_three = 0, after_trials = 0, trials = 0;
  std::size_t failed_starts = 0;
};
struct SourceRegret {
  std::string source;
  std::size_t groups = 0;
  MeanRegret recommended, fastest;
  std::optional<double> spearman;  ///< mean over the groups that have one
};
/// Returns the regret of each source, by name.
std::vector<SourceRegret> regret_by_source(std::span<const LayoutGroup> groups);
/// Returns means in which each source counts once, and the worst group. Nothing without a source.
std::optional<SourceRegret> regret_of_all(std::span<const SourceRegret> sources);

/// Returns a line for each source, and with `each_group` the chosen and the best layout of each
/// group. It is empty without a group.
std::string regret_text(std::span<const LayoutGroup> groups, bool each_group);
/// Returns {"all", "sources", "groups"}.
Json regret_json(std::span<const LayoutGroup> groups);

}  // namespace plimsoll
