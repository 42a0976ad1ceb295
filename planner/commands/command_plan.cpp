// `planner plan`: the best strategy for a job.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/cli/plan_origin.h"
#include "planner/cli/summary_json.h"
#include "planner/commands/commands.h"
#include "planner/explore/explore.h"
#include "planner/search/search.h"
#include "planner/terminal/interrupt.h"
#include "planner/terminal/progress.h"

namespace plimsoll {
namespace {

/// The most plans of one list. Each is simulated once more, to say where its step goes.
constexpr std::int64_t kMostListedPlans = 100;

struct PlanOptions {
  TargetOptions target;
  HeldOptions held;
  std::string reserve = kDefaultReserve;
  std::string output;        ///< file; empty: none is written
  std::string time_limit;    ///< empty: none
  std::int64_t threads = 0;  ///< 0: all cores
  std::int64_t top = 0;      ///< how many plans are listed; 0: the usual runners-up
  bool json = false;
};

/// Says how much faster a plan that the time limit left out may be.
std::string words_of_gap(const Plan& plan) {
  if (plan.search.gap == 0) {
    return "no plan is faster than the chosen one; runners-up and Pareto front may lack some";
  }
  return fmt::format("no plan takes less than {}, {:.2f} % below the best so far",
                     to_text(plan.prediction.step_time / (1 + plan.search.gap)),
                     100 * (1 - 1 / (1 + plan.search.gap)));
}

/// Says why a search did not prove its choice.
std::string why_unproven(const InterruptNotice& interrupt, std::optional<Seconds> time_limit,
                         Seconds elapsed) {
  if (interrupt.asked()) return "stopped by an interrupt";
  if (time_limit && elapsed >= *time_limit)
    return fmt::format("stopped after the time limit of {}", to_text(*time_limit));
  return "a faster plan that others were cut beside turned out not to fit";
}

/// Holds the precision of a script, which a search does not vary, where no --fix says otherwise.
void hold_precision(const Strategy& script, PlanOptions& options, Fixed& fixed) {
  std::vector<std::string> held;
  for (const char* key : {"fp8", "fp8_parameters", "gradient_type", "main_gradient_type",
                          "main_parameter_type", "moment_type"}) {
    const std::string value = field_text(script, key);
    if (is_fixed(fixed, key) || value == field_text(Strategy(), key)) continue;
    fixed.emplace_back(key, value);
    held.push_back(fmt::format("{}={}", key, value));
  }
  if (held.empty()) return;
  print_note(
      fmt::format("{}: held as in the script: {}\n", options.target.from, fmt::join(held, ", ")));
  options.held.fix.insert(options.held.fix.end(), held.begin(), held.end());
}

ExitCode run_plan(PlanOptions options) {
  Held choices = parse_held(options.held);
  const Bytes reserve = parse_reserve(options.reserve);
  std::optional<Seconds> time_limit;
  if (!options.time_limit.empty()) time_limit = parse_time_limit(options.time_limit);
  const TargetOptions& files = options.target;
  std::vector<std::string> inputs = files.calibration;
  inputs.insert(inputs.end(), {files.job, files.from, files.cluster});
  check_output("-o", options.output, inputs);
  read_from(options.target);
  if (options.target.imported)
    hold_precision(*options.target.imported->strategy, options, choices.fixed);
  const LoadedTarget loaded = load_target(options.target, reserve);

  Plan plan;
  const InterruptNotice interrupt;
  const auto begin = std::chrono::steady_clock::now();
  try {
    Progress progress("strategies done with:");
    SearchRequest request{loaded.target};
    request.fixed = choices.fixed;
    request.limits = choices.limits;
    request.cluster_digest = loaded.cluster_digest;
    request.calibration_digest = loaded.source.digest;
    request.threads = options.threads;
    if (options.top > 0) request.shown = {std::size_t(options.top - 1), Likeness::switches};
    request.time_limit = time_limit;
    request.stop = [&] { return interrupt.asked(); };
    request.progress = [&](std::int64_t done, std::int64_t of) { progress.update(done, of); };
    plan = search(request);
  } catch (const NothingFoundYet& stopped) {
    print_note(fmt::format("planner: {}\n", stopped.what()));
    return ExitCode::stopped_early;
  } catch (const NothingFits& refused) {
    print_note("planner: " + describe(refused));
    return ExitCode::infeasible;
  }
  const Seconds elapsed(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  print_note(fmt::format("searched {} strategies in {}\n", plan.search.space, to_text(elapsed)));
  plan.stated_vocabulary = loaded.stated_vocabulary;
  plan.calibration_rest_digest = loaded.source.rest_digest;
  plan.origin = origin_of(loaded, options.target, options.held, options.reserve, options.top);
  const std::string text = plan_text(plan);
  if (!options.output.empty()) {
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  print_result(options.json
                   ? text
                   : fmt::format("{}; reserve {} per device\n{}{}{}",
                                 headline(loaded, plan.oversubscribed), to_text(reserve),
                                 efficiency_line(loaded), describe_parameters(stated_job(loaded)),
                                 describe(plan, options.top > 0)));
  if (plan.search.proven) return ExitCode::ok;
  print_note(fmt::format("planner: {}: {}\n", why_unproven(interrupt, time_limit, elapsed),
                         words_of_gap(plan)));
  return ExitCode::stopped_early;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App& command = *app.add_subcommand("plan", "find the best strategy for a job");
  add_job(command, options->target, false);
  add_from(command, options->target);
  add_machine(command, options->target);
  add_held(command, options->held);
  add_reserve(command, options->reserve);
  command.add_option("-o,--output", options->output, "write the plan file here");
  command.add_option("--time-limit", options->time_limit,
                     "stop after this time (\"30 s\") with the best so far, exit 5");
  command
      .add_option("--top", options->top,
                  "list the N best plans that differ in degrees, sharding stage, micro-batch, "
                  "recompute or schedule")
      ->check(integers(1, kMostListedPlans));
  add_threads(command, options->threads, "the plan");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_plan(*options); }; });
}

}  // namespace plimsoll
