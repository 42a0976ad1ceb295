// Asks the planner's own code, and writes its answers as JSON text.
#include "python/python_answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "fitting/fit.h"
#include "interop/exports/flags_script.h"
#include "interop/flags/flag_table.h"
#include "interop/imports/imported.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework_json.h"
#include "models/job/job_words.h"
#include "models/presets/preset_names.h"
#include "planner/api/questions.h"
#include "planner/api/summary_json.h"
#include "planner/api/target.h"
#include "planner/cli/brief.h"
#include "planner/describe/describe_input.h"
#include "planner/explain/explain_json.h"
#include "planner/sweep/sweep_output.h"
#include "predict/calibration_choice.h"
#include "published/goals.h"
#include "published/validate.h"
#include "reports/sections/html.h"

namespace plimsoll {
namespace {

/// Plans of Python have no file: messages name them so.
constexpr const char* kPlan = "plan";

Plan legal_plan(const std::string& text) {
  Plan plan = parse_plan(text, kPlan);
  check_legal(plan, kPlan);
  return plan;
}

std::vector<std::string> names_of(const std::vector<Preset>& presets) {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

}  // namespace

void check_range(const char* name, std::optional<std::int64_t> value, std::int64_t least,
                 std::int64_t most) {
  if (!value || (*value >= least && *value <= most)) return;
  throw UsageError(
      fmt::format("{}: {}", name, refuse_integer(std::to_string(*value), least, most)));
}

std::string job_answer(const std::string& name, const GivenTexts& texts) {
  TargetOptions options;
  options.job = name;
  options.texts = texts;
  options.note = [](std::string_view) {};  // import_answer() has the notes
  return job_text(read_stated_job(options));
}

std::string cluster_answer(const std::string& name, const GivenTexts& texts) {
  return cluster_text(parse_cluster(given_text(texts, name, cluster_presets()), name));
}

std::string framework_answer(const std::string& name, const GivenTexts& texts) {
  const auto given = texts.find(name);
  const bool is_given = given != texts.end();
  return framework_text(is_given ? framework_of_text(given->second, name) : read_framework(name),
                        name);
}

BriefAnswer plan_answer(PlanQuestion question) {
  const bool listed = question.top > 0;
  const PlanAnswer answer = plan_job(std::move(question));
  return {plan_text(answer.plan),
          brief(answer.loaded, answer.plan, {answer.plan.training, {}, listed})};
}

BriefAnswer simulation_answer(SimulationQuestion question) {
  const SimulationAnswer answer = simulate_job(std::move(question));
  return {evaluation_json(answer), brief(answer.loaded, answer.strategy,
                                         answer.evaluation.prediction, {answer.training, {}})};
}

std::string explanation_answer(const std::string& plan_text, const ExplainQuestion& question,
                               const AskedChoices& asked, const std::function<bool()>& stop) {
  const Plan plan = legal_plan(plan_text);
  ExplainRequest request = explain_base(plan, question).request;
  request.stop = stop;
  if (!asked.from.empty())
    return why_not_json(why_not(request, choices_of_script(plan, asked.from, {})));
  if (!asked.why_not.empty()) return why_not_json(why_not(request, parse_choices(asked.why_not)));
  const ExplainedStep step = explain_step(request.target, plan.strategy);
  return explain_json(plan, step, sensitivity(request, step));
}

std::string sweep_answer(const SweepQuestion& question) { return sweep_json(sweep_job(question)); }

std::string import_answer(const std::string& file, ImportGiven given,
                          const std::string& precision) {
  if (!precision.empty()) {
    const auto word = std::ranges::find(kPrecisions, precision);
    if (word == kPrecisions.end()) {
      throw UsageError(fmt::format("precision: found \"{}\"; {} are allowed", printable(precision),
                                   fmt::join(kPrecisions, ", ")));
    }
    given.precision = kPrecisionTypes[std::size_t(word - kPrecisions.begin())];
  }
  check_range("sequence", given.sequence, 1, kMostSequence);
  check_range("global_batch", given.global_batch, 1, kMostGlobalBatch);
  check_range("devices", given.devices, 1, kMostDevices);
  check_range("vocab", given.vocab, 1, kMostVocabulary);
  if (given.dropout && !(*given.dropout >= 0 && *given.dropout <= kMostDropout)) {
    throw UsageError(fmt::format("dropout: found {}; a number from 0 to {} is required",
                                 *given.dropout, kMostDropout));
  }
  return import_summary_json(import_file(file, given));
}

std::string export_answer(const std::string& plan_text, const std::string& to, bool allow_lossy) {
  const Plan plan = legal_plan(plan_text);
  const FlagTable* table = flag_table_for(to);
  if (table == nullptr || !table->target->exported) {
    std::vector<std::string> known;
    for (const FlagTable& one : flag_tables()) {
      if (one.target && one.target->exported && !one.target->by_version)
        known.push_back(one.target->name);
    }
    throw UsageError(
        fmt::format("to: found \"{}\"; {} are allowed", printable(to), fmt::join(known, ", ")));
  }
  if (std::ranges::find(table->frameworks, plan.framework.name) == table->frameworks.end()) {
    throw InputError(kPlan, "/framework/name",
                     fmt::format("found \"{}\"; {} takes plans for {}", plan.framework.name, to,
                                 fmt::join(table->frameworks, ", ")));
  }
  const PlanFlags flags = flags_of(plan, *table, kPlan);
  if (!flags.lost.empty() && !allow_lossy) {
    std::vector<std::string> lost;
    for (const LostChoice& one : flags.lost)
      lost.push_back(fmt::format("{} is {}; the flags give {}", one.key, one.planned, one.nearest));
    throw InfeasibleError(fmt::format("not expressed: {}", fmt::join(lost, "; ")));
  }
  return table->document ? flags_document(plan, *table, flags) : flags_script(plan, *table, flags);
}

std::string report_answer(const std::string& plan_text, const ReportQuestion& question,
                          const std::function<bool()>& stop) {
  const Plan plan = legal_plan(plan_text);
  std::optional<Measured> measured;
  if (!question.measured.empty()) measured = read_measured(question.measured);
  const Explained explained =
      question.plan_only ? Explained{std::nullopt, "the page was made of the plan file alone"}
                         : explain_for_report(plan, question.explain, {}, stop);
  const ReportFlags flags = report_flags(plan).value_or(ReportFlags{});
  return report_html({plan, measured, question.tolerance,
                      explained.explanation ? &*explained.explanation : nullptr, explained.why_not,
                      flags.target, flags.text, flags.lost});
}

std::string description_answer(const std::string& name, const GivenTexts& texts) {
  const auto given = texts.find(name);
  const Input input = given == texts.end()
                          ? read_input(name)
                          : Input{name, given->second, kind_of(given->second, name)};
  return json_text(description_json(describe_input(input)));
}

std::string validation_answer(const std::vector<std::string>& files,
                              const std::vector<std::string>& calibration, bool leave_out_sources) {
  CalibrationChoice choice = read_calibration_choice(calibration);
  choice.leave_out_source = leave_out_sources;
  std::vector<ValidatedFamily> families;
  for (const std::string& file : files) {
    families.push_back(
        validate(std::filesystem::path(file).stem().string(), read_published_runs(file), choice));
  }
  return validation_json(families, {}, {});
}

std::string fit_answer(const std::vector<std::string>& files, const std::string& cluster,
                       const std::string& framework) {
  std::vector<PublishedRun> runs;
  for (const std::string& file : files) {
    for (PublishedRun& run : read_published_runs(file)) runs.push_back(std::move(run));
  }
  const auto meant = preset_meant(cluster, cluster_presets());
  const FitOptions options{.cluster = std::string(meant.value_or(cluster)),
                           .framework = read_framework(framework).name};
  return fitted_calibration_text(fit(runs, options).fitted);
}

std::string presets_answer() {
  Json names = Json::object();
  for (const PresetKind& kind : preset_kinds())
    names[std::string(kind.name)] = names_of(kind.presets());
  return json_text(names);
}

}  // namespace plimsoll
