// `planner explain`: why a plan is best, and what another choice would cost.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "command_line/interrupt.h"
#include "interop/flags/flag_table.h"
#include "plan/json_layout.h"
#include "planner/api/question_command.h"
#include "planner/api/questions.h"
#include "planner/api/run_findings.h"
#include "planner/cli/brief.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/commands/next_commands.h"
#include "planner/explain/explain_json.h"
#include "planner/explain/explain_text.h"
#include "planner/explain/few_changes.h"
#include "planner/explore/search_request.h"
#include "planner/search/search.h"
#include "planner/terminal/progress.h"
#include "reports/text_lines.h"

namespace plimsoll {
namespace {

struct ExplainOptions {
  ExplainQuestion question;
  std::string time_limit;  ///< empty: none
  std::string why_not;     ///< "mp=4,pp=8"; empty: the plan alone
  /// Script whose choices are asked for or, without a plan, that is explained itself; empty: none.
  std::string from;
  std::int64_t devices = 0;  ///< of a script alone; 0: the script states them
  TargetOptions reading;     ///< how the script is read
  std::string log;           ///< of the script's run; empty: none
  bool json = false, verbose = false;
};

/// Lets Ctrl-C end an explanation, and shows how far it is.
class Watch {
 public:
  explicit Watch(ExplainRequest& request) {
    request.stop = [this] { return interrupt_.asked(); };
    request.progress = [this](std::int64_t done, std::int64_t of) { line_.update(done, of); };
  }
  void end() { line_.clear(); }

 private:
  InterruptNoticeOnceAsked interrupt_;
  Progress line_{"steps done:"};
};

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

ExitCode explain_asked(const ExplainRequest& request, Watch& watch, const std::string& headline,
                       const Fixed& asked, const ExplainOptions& options) {
  const WhyNot answer = why_not(request, asked);
  watch.end();
  const auto text = options.verbose ? why_not_text : why_not_brief;
  print_result(options.json ? why_not_json(answer) : headline + text(request.target, answer));
  return verdict_of(answer, request);
}

/// Returns the command as it was typed.
std::string explain_command(const ExplainOptions& options) {
  const PlanFiles& files = options.question.files;
  std::string text = "planner explain " + shell_word(files.plan);
  if (!files.cluster.empty()) text += " --cluster " + shell_word(files.cluster);
  for (const std::string& file : files.calibration) text += " --calibration " + shell_word(file);
  return text;
}

ExitCode explain_plan(const ExplainRequest& request, Watch& watch, const Plan& plan,
                      const std::string& headline, const ExplainOptions& options) {
  const ExplainedStep step = explain_step(request.target, plan.strategy);
  const Sensitivity found = sensitivity(request, step);
  const char* other = plan.strategy.recompute == Recompute::full ? "none" : "full";
  watch.end();
  if (options.json) {
    print_result(explain_json(plan, step, found));
  } else if (options.verbose) {
    print_result(headline + explain_text(plan, step, found));
  } else {
    print_result(
        headline + explain_brief(plan, step, found) +
        command_line("next",
                     fmt::format("{} --why-not recompute={}  # --verbose prints everything",
                                 explain_command(options), other),
                     kExplainLabel));
  }
  if (found.memory.proven || !(request.time_limit || request.stop())) return ExitCode::ok;
  print_note(
      fmt::format("planner: {} ended the search with twice the memory\n", what_ended(request)));
  return ExitCode::stopped_early;
}

/// Returns the target of a script that is explained without a plan. If its run is learned from, the
/// prior is what is built in, as for `planner learn`.
TargetOptions target_of_script(const ExplainOptions& options) {
  const PlanFiles& named = options.question.files;
  if (options.from.empty()) throw UsageError("PLAN or --from is required");
  if (named.cluster.empty()) throw UsageError("--cluster is required if no PLAN is given");
  TargetOptions files = options.reading;
  files.from = options.from;
  files.cluster = named.cluster;
  files.calibration = named.calibration;
  files.devices = options.devices;
  if (!options.log.empty() && files.calibration.empty())
    files.calibration = {std::string(kBuiltInCalibration)};
  return files;
}

/// Returns the command that goes on from a script: to what was learned of its run, else to a plan.
std::string command_after(const ExplainOptions& options, const TargetOptions& files) {
  PlanQuestion searched;
  searched.target = files;
  if (options.log.empty()) return with_output(command_of(searched), "better.json");
  std::string learn =
      fmt::format("planner learn --from {} --log {} --cluster {}", shell_word(options.from),
                  shell_word(options.log), shell_word(files.cluster));
  if (options.devices > 0) learn += fmt::format(" --devices {}", options.devices);
  return with_output(learn, ".plimsoll/mine.json");
}

/// Explains a job that runs, without a plan: what limits it, and what to change first. With a log,
/// the numbers are those learned of the run.
ExitCode explain_script(const ExplainOptions& options) {
  TargetOptions files = target_of_script(options);
  read_from(files);
  LoadedTarget loaded = load_target(files, kDefaultReserve);
  std::vector<LearnedFrom> runs;
  std::optional<ExplainedStep> before;
  const Strategy strategy = legal_strategy(loaded.target.job, loaded.target.framework(),
                                           *files.imported->strategy, loaded.target.devices);
  if (!options.log.empty()) {
    runs = learn_one_by_one({{options.from}, {options.log}, {}, files});
    before = explain_step(loaded.target, strategy);
    loaded.target = with_learned(loaded.target, runs[0].learned.fitted);
  }
  const Target& target = loaded.target;
  ExplainRequest request{target, strategy};
  request.threads = options.question.threads;
  Watch watch(request);
  const ExplainedStep step = explain_step(target, strategy);
  request.overflow = step.prediction.memory.overflow;
  const FewChanges found = few_changes(request, time_of(target, step));
  watch.end();
  const std::string measured = runs.empty() ? "" : run_lines(runs[0].own, runs[0].run());
  if (options.json) {
    Json json = few_changes_json(target, step, found);
    if (before) json["run"] = run_json(runs[0].own, runs[0].run());
    if (before) json["step_before"] = step_json(*before);
    print_result(line_text(json));
  } else if (options.verbose) {
    print_result(headline(loaded, is_oversubscribed(target)) + "\n" + measured +
                 few_changes_text(target, step, found) +
                 (before ? terms_text({{"before", &*before}, {"learned", &step}}) : ""));
  } else {
    print_result(brief_headline(loaded) + measured + few_changes_brief(target, step, found) +
                 command_line("next", command_after(options, files), kExplainLabel));
  }
  if (!request.stop()) return ExitCode::ok;
  print_note("planner: an interrupt ended the search for changes\n");
  return ExitCode::stopped_early;
}

ExitCode explain(ExplainOptions options) {
  options.question.time_limit = optional_time_limit(options.time_limit);
  if (options.question.files.plan.empty()) return explain_script(options);
  if (options.devices > 0) throw UsageError("--devices is of a script alone; the plan states them");
  const Plan plan = read_legal_plan(options.question.files.plan);
  auto [loaded, request] = explain_base(plan, options.question);
  Watch watch(request);
  const std::string line =
      options.verbose ? headline(loaded, plan.oversubscribed) + "\n" : brief_headline(loaded);
  if (!options.from.empty())
    return explain_asked(request, watch, line,
                         choices_of_script(plan, options.from, options.reading), options);
  if (!options.why_not.empty())
    return explain_asked(request, watch, line, parse_choices(options.why_not), options);
  return explain_plan(request, watch, plan, line, options);
}

ExitCode run_explain(const ExplainOptions& options) {
  try {
    return explain(options);
  } catch (const NothingFoundYet& stopped) {
    print_note(fmt::format("planner: {}\n", stopped.what()));
    return ExitCode::stopped_early;
  }
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App& command = *app.add_subcommand(
      "explain", "why a plan is best, what limits it, what would help, what another choice costs");
  ExplainQuestion& question = options->question;
  CLI::Option* plan = command.add_option("PLAN", question.files.plan,
                                         "plan file; without it, --from and --cluster");
  CLI::Option* why_not =
      command.add_option("--why-not", options->why_not,
                         "\"mp=4,pp=8\": what these choices cost against the plan, term by term");
  CLI::Option* from =
      command
          .add_option("--from", options->from,
                      "script of a framework: what its choices cost against the plan or, without "
                      "PLAN, what limits it and which one or two choices to change first")
          ->excludes(why_not);
  command
      .add_option(
          "--log", options->log,
          "without PLAN: log of the script's run; shows where its step goes, what is slower "
          "than predicted, and what to change")
      ->needs(from)
      ->excludes(plan);
  add_reading(command, options->reading);
  command.add_option("--cluster", question.files.cluster,
                     "the plan's cluster file, if it is not built in");
  command
      .add_option("--calibration", question.files.calibration,
                  "the plan's calibration, given as to plan, if it is not built in")
      ->allow_extra_args(false);
  command.add_option("--devices", options->devices,
                     "without PLAN: how many, if the script does not state it");
  command.add_option("--time-limit", options->time_limit,
                     "end each search after this time (\"30 s\") with the best so far, exit 5");
  add_threads(command, question.threads, "the result");
  add_verbose(command, options->verbose);
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_explain(*options); }; });
}

}  // namespace plimsoll
