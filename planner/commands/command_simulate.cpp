// `planner simulate`: one strategy, predicted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "base/file.h"
#include "command_line/interrupt.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/api/question_command.h"
#include "planner/api/questions.h"
#include "planner/api/summary_json.h"
#include "planner/cli/brief.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/commands/next_commands.h"
#include "planner/explain/few_changes.h"
#include "predict/expert_memory.h"
#include "reports/plan_words.h"
#include "reports/trace.h"

namespace plimsoll {
namespace {

struct SimulateOptions {
  SimulationQuestion question;
  TrainingOptions training;
  std::string reserve = exact_text(kDefaultReserve);
  std::string trace;  ///< file; empty: none is written
  bool unfolded = false, json = false, verbose = false;
};

std::string simulation_text(const LoadedTarget& loaded, const Strategy& strategy,
                            const Evaluation& evaluation, std::span<const StageMemory> memory,
                            bool oversubscribed) {
  const auto experts = expert_memory(loaded.target, strategy);
  return fmt::format("{}\n{}{}{}\n{}{}{}{}{}", headline(loaded, oversubscribed),
                     efficiency_line(loaded), describe_parameters(stated_job(loaded)),
                     strategy_summary(strategy),
                     describe_step(evaluation.prediction, !oversubscribed),
                     describe(evaluation.parts), describe(memory, loaded.target.framework()),
                     describe_host(loaded.target, strategy, evaluation.prediction.stages),
                     experts ? describe(*experts, *loaded.target.job.experts) : "");
}

std::string why_unfit(const Filling& fullest) {
  return fmt::format(
      "does not fit: tensors take {} ({} bytes), with {} ({} bytes) of context "
      "and communicators and {} ({} bytes) of reserve, and a device has {} ({} bytes)",
      to_text(fullest.reserved), fullest.reserved.count(), to_text(fullest.outside),
      fullest.outside.count(), to_text(fullest.reserve), fullest.reserve.count(),
      to_text(fullest.capacity), fullest.capacity.count());
}

/// Returns changes that let a strategy fit. Ctrl-C ends their search.
FoundChanges changes_of(const Target& target, const Strategy& strategy,
                        const Prediction& prediction) {
  ExplainRequest request{target, strategy};
  InterruptNoticeOnceAsked interrupt;
  request.stop = [&] { return interrupt.asked(); };
  return changes_to_fit(request,
                        plan_time(target, strategy, prediction.step_time, prediction.breakdown));
}

ExitCode run_simulate(SimulateOptions options) {
  const TargetOptions& files = options.question.target;
  std::vector<std::string> inputs = files.calibration;
  inputs.insert(inputs.end(), {files.job, files.from, files.cluster});
  check_output("--trace", options.trace, inputs);
  if (options.unfolded) options.question.folding = Folding::unfolded;
  options.question.training = parse_training(options.training);
  options.question.reserve = parse_reserve(options.reserve);
  const SimulationAnswer answer = simulate_job(options.question);
  const auto& [loaded, strategy, evaluation, memory, training] = answer;
  const Target& target = loaded.target;
  if (!options.trace.empty()) {
    write_file_atomically(options.trace, chrome_trace(evaluation.timeline));
    print_note(fmt::format("wrote {}\n", options.trace));
  }
  if (options.json) {
    print_result(evaluation_json(answer));
  } else if (options.verbose) {
    print_result(simulation_text(loaded, strategy, evaluation, memory, is_oversubscribed(target)) +
                 (training ? training_line(*training, target.cluster().device.kind) : ""));
  } else {
    print_result(brief(loaded, strategy, evaluation.prediction,
                       {training, with_verbose({command_of(search_of(options.question))})}));
  }
  const std::vector<StagePrediction>& stages = evaluation.prediction.stages;
  const FitsAnswer fits = fits_answer(target, strategy, stages);
  if (fits.fits == Fits::yes) return ExitCode::ok;
  if (fits.fits == Fits::with_even_routing) {
    print_note(fmt::format("planner: fits with even routing only: {}\n", describe_both(fits)));
    return ExitCode::ok;
  }
  if (!fits_host(target, strategy, stages)) {
    print_note(
        fmt::format("planner: does not fit: ranks of a node keep {} in the host's memory, "
                    "which has {}\n",
                    to_text(host_memory_of_node(target, strategy, stages)),
                    to_text(*target.cluster().host->memory)));
    return ExitCode::infeasible;
  }
  std::string why = why_unfit(fits.fullest);
  if (fits.even) why += "; " + describe_both(fits);
  FoundChanges changes = changes_of(target, strategy, evaluation.prediction);
  for (FittingChange& change : changes.fitting) {
    const std::string words =
        layout_change(target.job, target.framework(), change.strategy, strategy);
    if (!options.verbose && !words.empty()) change.words = "with " + words;
  }
  const NothingFits refused(why, Shortage{"does not fit", fits.fullest}, std::move(changes));
  if (options.verbose) {
    print_note("planner: " + describe(refused));
    return ExitCode::infeasible;
  }
  const FittingChange* change = first_of(refused.found().fitting);
  if (change != nullptr && files.from.empty()) {
    SimulationQuestion changed = options.question;
    changed.strategy.clear();
    for (const StrategyField& field : differing_fields(change->strategy, Strategy()))
      changed.strategy +=
          (changed.strategy.empty() ? "" : ",") + std::string(field.key) + "=" + field.value;
    print_note("planner: " + brief(refused, command_of(changed)));
  } else {
    print_note("planner: " + brief(refused, command_of(search_of(options.question))));
  }
  return ExitCode::infeasible;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SimulateOptions>();
  CLI::App& command = *app.add_subcommand("simulate", "predict one strategy");
  SimulationQuestion& question = options->question;
  add_job(command, question.target, false);
  command.add_option("STRATEGY", question.strategy, "\"mp=2,pp=2\" or a JSON file");
  add_from(command, question.target);
  add_machine(command, question.target);
  add_training(command, options->training);
  add_reserve(command, options->reserve);
  command.add_flag("--unfolded", options->unfolded, "simulate every rank, not one per class");
  command.add_option("--trace", options->trace,
                     "write the step here, as Chrome's and Perfetto's trace viewers read it");
  add_verbose(command, options->verbose);
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_simulate(*options); }; });
}

}  // namespace plimsoll
