// Python answers: results of the planning commands as the JSON text that the command line prints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "interop/imports/imported.h"
#include "planner/api/questions.h"
#include "planner/api/sweep_question.h"

namespace plimsoll {

/// Throws UsageError for an argument outside its range, which command lines refuse as well.
void check_range(const char* name, std::optional<std::int64_t> value, std::int64_t least,
                 std::int64_t most);

/// Each returns a file of the user's as this project writes it, with every key. Throws InputError
/// and UsageError.
std::string job_answer(const std::string& name, const GivenTexts& texts);
std::string cluster_answer(const std::string& name, const GivenTexts& texts);
std::string framework_answer(const std::string& name, const GivenTexts& texts);

/// A BriefAnswer is a result as --json prints it, and as the command prints it without its
/// commands.
struct BriefAnswer {
  std::string json, lines;
};
/// Answers as `planner plan` does.
BriefAnswer plan_answer(PlanQuestion question);
/// Answers as `planner simulate` does.
BriefAnswer simulation_answer(SimulationQuestion question);

/// AskedChoices are set beside the plan. Both are empty where the plan alone is explained.
struct AskedChoices {
  std::string why_not;  ///< "mp=4,pp=8"; empty: none
  std::string from;     ///< a script whose choices are asked for; empty: none
};
/// Returns what `planner explain --json` prints of the plan with this text. `stop` is that of
/// ExplainRequest.
std::string explanation_answer(const std::string& plan, const ExplainQuestion& question,
                               const AskedChoices& asked, const std::function<bool()>& stop);

/// Returns what `planner sweep --json` prints.
std::string sweep_answer(const SweepQuestion& question);

/// Returns what `planner import --json` prints. The precision is "fp32", "bf16", "fp16" or empty.
/// Throws UsageError for another precision, and for numbers outside their ranges.
std::string import_answer(const std::string& file, ImportGiven given, const std::string& precision);

/// Returns the script that `planner export` writes for a framework's command line. Throws
/// InfeasibleError where its flags do not state all of the plan, unless `allow_lossy` is set.
std::string export_answer(const std::string& plan, const std::string& to, bool allow_lossy);

/// Returns the page that `planner report` writes. `measured` is a file, or empty.
struct ReportQuestion {
  ExplainQuestion explain;
  std::string measured;
  double tolerance = 0.30;
  bool plan_only = false;
};
std::string report_answer(const std::string& plan, const ReportQuestion& question,
                          const std::function<bool()>& stop);

/// Returns what `planner describe --json` prints of a file, a preset or a strategy.
std::string description_answer(const std::string& name, const GivenTexts& texts);

/// Returns what `planner validate --json` prints for files of published runs.
std::string validation_answer(const std::vector<std::string>& files,
                              const std::vector<std::string>& calibration, bool leave_out_sources);
/// Returns the calibration that `planner fit` writes for files of published runs.
std::string fit_answer(const std::vector<std::string>& files, const std::string& cluster,
                       const std::string& framework);

/// Returns the names of built-in jobs, clusters, frameworks and calibrations as a JSON object.
std::string presets_answer();

}  // namespace plimsoll
