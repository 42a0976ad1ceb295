// `planner plan`: the best strategy for a job.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "base/command_line.h"
#include "base/file.h"
#include "command_line/interrupt.h"
#include "planner/api/question_command.h"
#include "planner/api/questions.h"
#include "planner/api/target.h"
#include "planner/cli/brief.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/commands/next_commands.h"
#include "planner/search/search.h"
#include "planner/terminal/progress.h"

namespace plimsoll {
namespace {

struct PlanOptions {
  PlanQuestion question;
  HeldOptions held;
  TrainingOptions training;
  std::string reserve = exact_text(kDefaultReserve);
  std::string time_limit;  ///< empty: none
  std::string output;      ///< file; empty: none is written
  bool json = false, verbose = false;
};

/// Says how much faster a plan that the time limit left out may be.
std::string words_of_gap(const Plan& plan) {
  if (plan.search.gap == 0) {
    return "no plan is faster than the chosen one; runners-up and Pareto front may lack some";
  }
  return fmt::format("no plan takes less than {}: at most {:.1f} % faster is possible",
                     to_text(plan.prediction.step_time / (1 + plan.search.gap)),
                     100 * possible_gain(plan.search));
}

/// Says why a search did not prove its choice.
std::string why_unproven(bool interrupted, std::optional<Seconds> time_limit, Seconds elapsed) {
  if (interrupted) return "stopped by an interrupt";
  if (time_limit && elapsed >= *time_limit)
    return fmt::format("stopped after the time limit of {}", to_text(*time_limit));
  return "the fastest plan did not fit in memory, so plans that were pruned against it are unproven";
}

std::string result_text(const PlanAnswer& answer, const PlanOptions& options) {
  const Plan& plan = answer.plan;
  const LoadedTarget& loaded = answer.loaded;
  const bool listed = options.question.top > 0;
  if (!options.verbose) {
    return brief(loaded, plan,
                 {plan.training, commands_after(plan, options.output, options.question), listed,
                  answer.script});
  }
  return fmt::format("{}; reserve {} per device\n{}{}{}", headline(loaded, plan.oversubscribed),
                     to_text(loaded.target.reserve), efficiency_line(loaded),
                     describe_parameters(stated_job(loaded)),
                     describe(plan, listed) +
                         (plan.training ? training_line(*plan.training, plan.device_kind) : ""));
}

/// Returns the command with the first change that helps; empty where none does.
std::string command_after(const NothingFits& refused, const PlanOptions& options) {
  const FittingChange* change = first_of(refused.found().fitting);
  if (change == nullptr) return "";
  return with_output(command_of(with_change(options.question, *change)), options.output);
}

ExitCode run_plan(PlanOptions options) {
  options.question.constraints = parse_held(options.held);
  const TargetOptions& files = options.question.target;
  std::vector<std::string> inputs = files.calibration;
  inputs.insert(inputs.end(), {files.job, files.from, files.cluster});
  check_output("-o", options.output, inputs);
  options.question.reserve = parse_reserve(options.reserve);
  options.question.time_limit = optional_time_limit(options.time_limit);
  options.question.training = parse_training(options.training);

  std::optional<PlanAnswer> answer;
  InterruptNoticeOnceAsked interrupt;
  try {
    Progress progress("strategies done with:");
    options.question.stop = [&] { return interrupt.asked(); };
    options.question.progress = [&](std::int64_t done, std::int64_t of) {
      progress.update(done, of);
    };
    answer = plan_job(options.question);
  } catch (const NothingFoundYet& stopped) {
    print_note(fmt::format("planner: {}\n", stopped.what()));
    return ExitCode::stopped_early;
  } catch (const NothingFits& refused) {
    print_note("planner: " + (options.verbose ? describe(refused)
                                              : brief(refused, command_after(refused, options))));
    return ExitCode::infeasible;
  }
  Plan& plan = answer->plan;
  print_note(
      fmt::format("searched {} strategies in {}\n", plan.search.space, to_text(answer->elapsed)));
  const std::string text = plan_text(plan);
  if (!options.output.empty()) {
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  print_result(options.json ? text : result_text(*answer, options));
  if (plan.search.proven) return ExitCode::ok;
  print_note(
      fmt::format("planner: {}: {}\n",
                  why_unproven(interrupt.asked(), options.question.time_limit, answer->elapsed),
                  words_of_gap(plan)));
  return ExitCode::stopped_early;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App& command = *app.add_subcommand("plan", "find the best strategy for a job");
  PlanQuestion& question = options->question;
  add_job(command, question.target, false);
  add_from(command, question.target);
  add_machine(command, question.target);
  add_held(command, options->held);
  add_training(command, options->training);
  add_reserve(command, options->reserve);
  command.add_option("-o,--output", options->output, "write the plan file here");
  command.add_option("--time-limit", options->time_limit,
                     "stop after this time (\"30 s\") with the best so far, exit 5");
  command.add_flag("--fastest", question.fastest,
                   "take the fastest prediction, whatever unusual choices it has");
  command
      .add_option("--top", question.top,
                  "list the N best plans that differ in degrees, sharding stage, micro-batch, "
                  "recompute or schedule")
      ->check(integers(1, kMostListedPlans));
  add_threads(command, question.threads, "the plan");
  add_verbose(command, options->verbose);
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_plan(*options); }; });
}

}  // namespace plimsoll
