// `planner explain`: why a plan is best, and what another choice would cost.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "base/command_line.h"
#include "base/file.h"
#include "base/json.h"
#include "imports/imported.h"
#include "planner/cli/flags.h"
#include "planner/cli/plan_origin.h"
#include "planner/cli/plan_target.h"
#include "planner/commands/commands.h"
#include "planner/explain/explain_json.h"
#include "planner/explain/explain_text.h"
#include "planner/explain/few_changes.h"
#include "planner/explore/search_request.h"
#include "planner/terminal/interrupt.h"
#include "planner/terminal/progress.h"

namespace plimsoll {
namespace {

struct ExplainOptions {
  PlanFiles files;
  std::string why_not;  ///< "mp=4,pp=8"; empty: the plan alone
  /// Script whose choices are asked for or, without a plan, that is explained itself; empty: none.
  std::string from;
  std::int64_t devices = 0;  ///< of a script alone; 0: the script states them
  std::string time_limit;    ///< empty: none
  std::int64_t threads = 0;
  bool json = false;
};

/// Refuses a script of another job than the plan's. Name, seed and the optimizer's numbers may
/// differ. So may the vocabulary, which is padded for each strategy.
void check_same_job(const Job& plan, const Job& script, const std::string& file) {
  const Json planned = Json::parse(job_text(plan)), stated = Json::parse(job_text(script));
  std::vector<std::string> differences;
  for (const auto& [key, value] : planned.items()) {
    if (key == "name" || key == "seed" || key == "vocab" || key == "optimizer") continue;
    if (stated.contains(key) && stated[key] != value)
      differences.push_back(fmt::format("{} {}, not {}", key, stated[key].dump(), value.dump()));
  }
  if (plan.optimizer.kind != script.optimizer.kind) differences.push_back("another optimizer");
  if (!differences.empty()) {
    throw InputError(file, "",
                     fmt::format("another job than the plan's: {}", fmt::join(differences, "; ")));
  }
}

/// Returns the choices in which a script's strategy differs from the plan's.
Fixed choices_of_script(const Plan& plan, const std::string& file) {
  ImportGiven given;
  given.devices = plan.devices;
  const std::string text = read_file(file);
  if (takes_job(text)) {
    given.job = plan.job;
    given.job->vocab = plan.stated_vocabulary;
  }
  const Imported imported = import_text(text, file, given);
  if (!imported.strategy) {
    throw InputError(file, "", fmt::format("a {} has no strategy to explain", imported.kind));
  }
  if (imported.devices && *imported.devices != plan.devices) {
    throw InputError(file, "",
                     fmt::format("{} devices; the plan has {}", *imported.devices, plan.devices));
  }
  check_same_job(plan.job, *imported.job, file);
  Fixed choices;
  for (const std::string_view key : strategy_keys()) {
    const std::string asked = field_text(*imported.strategy, key);
    if (asked != field_text(plan.strategy, key)) choices.emplace_back(key, asked);
  }
  return choices;
}

/// Says why a search is not proven.
const char* what_ended(const ExplainRequest& request) {
  return request.stop() ? "an interrupt" : "the time limit";
}

/// Says which asked choices do not run, or whether a search was not proven.
ExitCode verdict_of(const WhyNot& answer, const ExplainRequest& request) {
  if (answer.is_plan || (answer.best && answer.best_is_proven)) return ExitCode::ok;
  if (answer.best_is_proven) {
    print_note("planner: no plan with these choices runs\n");
    return ExitCode::infeasible;
  }
  print_note(fmt::format("planner: {} ended the search for the best plan with these choices\n",
                         what_ended(request)));
  return ExitCode::stopped_early;
}

ExitCode explain_asked(const ExplainRequest& request, Progress& progress,
                       const std::string& headline, const Fixed& asked,
                       const ExplainOptions& options) {
  const WhyNot answer = why_not(request, asked);
  progress.clear();
  print_result(options.json ? why_not_json(answer)
                            : headline + why_not_text(request.target, answer));
  return verdict_of(answer, request);
}

ExitCode explain_plan(const ExplainRequest& request, Progress& progress, const Plan& plan,
                      const std::string& headline, const ExplainOptions& options) {
  const ExplainedStep step = explain_step(request.target, plan.strategy);
  const Sensitivity found = sensitivity(request, step);
  progress.clear();
  print_result(options.json ? explain_json(plan, step, found)
                            : headline + explain_text(plan, step, found));
  if (found.memory.proven || !(request.time_limit || request.stop())) return ExitCode::ok;
  print_note(
      fmt::format("planner: {} ended the search with twice the memory\n", what_ended(request)));
  return ExitCode::stopped_early;
}

/// Explains a job that runs, without a plan: what limits it, and what to change first.
ExitCode explain_script(const ExplainOptions& options) {
  if (options.from.empty()) throw UsageError("PLAN or --from is required");
  if (options.files.cluster.empty())
    throw UsageError("--cluster is required where no PLAN is given");
  TargetOptions files;
  files.from = options.from;
  files.cluster = options.files.cluster;
  files.calibration = options.files.calibration;
  files.devices = options.devices;
  read_from(files);
  const LoadedTarget loaded = load_target(files, parse_reserve(kDefaultReserve));
  const Target& target = loaded.target;
  ExplainRequest request{target, legal_strategy(target.job, target.framework(),
                                                *files.imported->strategy, target.devices)};
  request.threads = options.threads;
  const ExplainedStep step = explain_step(target, request.strategy);
  const FewChanges found = few_changes(request, time_of(target, step));
  print_result(options.json ? few_changes_json(target, step, found)
                            : headline(loaded, is_oversubscribed(target)) + "\n" +
                                  few_changes_text(target, step, found));
  return ExitCode::ok;
}

ExitCode run_explain(const ExplainOptions& options) {
  if (options.files.plan.empty()) return explain_script(options);
  if (options.devices > 0) throw UsageError("--devices is of a script alone; the plan states them");
  const Plan plan = read_legal_plan(options.files.plan);
  const LoadedTarget loaded = target_of_plan(plan, options.files);
  Held held = parse_held(held_choices(plan.origin));
  ExplainRequest request{loaded.target, plan.strategy, std::move(held.fixed),
                         std::move(held.limits)};
  request.threads = options.threads;
  if (!options.time_limit.empty()) request.time_limit = parse_time_limit(options.time_limit);
  const InterruptNotice interrupt;
  request.stop = [&] { return interrupt.asked(); };
  Progress progress("strategies done with:");
  request.progress = [&](std::int64_t done, std::int64_t of) { progress.update(done, of); };
  const std::string line = headline(loaded, plan.oversubscribed) + "\n";
  if (!options.from.empty())
    return explain_asked(request, progress, line, choices_of_script(plan, options.from), options);
  if (!options.why_not.empty())
    return explain_asked(request, progress, line, parse_choices(options.why_not), options);
  return explain_plan(request, progress, plan, line, options);
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App& command = *app.add_subcommand(
      "explain", "why a plan is best, what limits it, what would help, what another choice costs");
  command.add_option("PLAN", options->files.plan, "plan file; without it, --from and --cluster");
  CLI::Option* why_not =
      command.add_option("--why-not", options->why_not,
                         "\"mp=4,pp=8\": what these choices cost against the plan, term by term");
  command
      .add_option("--from", options->from,
                  "script of a framework: what its choices cost against the plan or, without "
                  "PLAN, what limits it and which one or two choices to change first")
      ->excludes(why_not);
  command.add_option("--cluster", options->files.cluster,
                     "the plan's cluster file, where it is not built in");
  command
      .add_option("--calibration", options->files.calibration,
                  "the plan's calibration, given as to plan, where it is not built in")
      ->allow_extra_args(false);
  command.add_option("--devices", options->devices,
                     "without PLAN: how many, where the script does not state it");
  command.add_option("--time-limit", options->time_limit,
                     "end each search after this time (\"30 s\") with the best so far, exit 5");
  add_threads(command, options->threads, "the result");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_explain(*options); }; });
}

}  // namespace plimsoll
