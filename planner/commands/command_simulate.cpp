// `planner simulate`: one strategy, predicted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/cli/summary_json.h"
#include "planner/commands/commands.h"
#include "planner/refusal/least_changes.h"
#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "predict/stage_memory.h"
#include "reports/trace.h"

namespace plimsoll {
namespace {

struct SimulateOptions {
  TargetOptions target;
  std::string strategy;
  std::string reserve = kDefaultReserve;
  std::string trace;  ///< file; empty: none is written
  bool unfolded = false, json = false;
};

std::vector<StageMemory> stage_memory(const Target& target, const Strategy& strategy,
                                      const Prediction& prediction) {
  // They were proven when they were predicted.
  const std::vector<Program> programs = lower(context_of(target, strategy), {}, Proof::none);
  std::vector<StageMemory> memory;
  for (const Program& program : programs)
    memory.push_back(memory_at_peak(target, strategy, program, prediction.stages[memory.size()]));
  return memory;
}

std::string simulation_text(const LoadedTarget& loaded, const Strategy& strategy,
                            const Evaluation& evaluation, std::span<const StageMemory> memory,
                            bool oversubscribed) {
  return fmt::format("{}\n{}{}{}\n{}{}{}", headline(loaded, oversubscribed),
                     efficiency_line(loaded), describe_parameters(stated_job(loaded)),
                     strategy_summary(strategy),
                     describe_step(evaluation.prediction, !oversubscribed),
                     describe(evaluation.parts), describe(memory, loaded.target.framework()));
}

std::string why_unfit(const Filling& fullest) {
  return fmt::format(
      "does not fit: tensors take {} ({} bytes), with {} ({} bytes) of context "
      "and communicators and {} ({} bytes) of reserve, and a device has {} ({} bytes)",
      to_text(fullest.reserved), fullest.reserved.count(), to_text(fullest.outside),
      fullest.outside.count(), to_text(fullest.reserve), fullest.reserve.count(),
      to_text(fullest.capacity), fullest.capacity.count());
}

/// Returns the strategy that is named, else the one of the script.
Strategy strategy_of(const SimulateOptions& options, const Target& target) {
  const auto& imported = options.target.imported;
  if (!imported) {
    if (options.strategy.empty()) throw UsageError("STRATEGY is required");
    return legal_strategy(target.job, target.framework(), options.strategy, target.devices);
  }
  if (!options.strategy.empty())
    throw UsageError("found STRATEGY and --from; the file that --from names has the strategy");
  if (!imported->strategy) {
    throw UsageError(fmt::format("--devices is required: {} does not state how many there are",
                                 options.target.from));
  }
  return legal_strategy(target.job, target.framework(), *imported->strategy, target.devices);
}

ExitCode run_simulate(SimulateOptions options) {
  std::vector<std::string> inputs = options.target.calibration;
  inputs.insert(inputs.end(), {options.target.job, options.target.from, options.target.cluster});
  check_output("--trace", options.trace, inputs);
  read_from(options.target);
  const LoadedTarget loaded = load_target(options.target, parse_reserve(options.reserve));
  const Target& target = loaded.target;
  const bool oversubscribed = is_oversubscribed(target);
  const Strategy strategy = strategy_of(options, target);
  const Evaluation evaluation =
      evaluate(target, strategy, options.unfolded ? Folding::unfolded : Folding::folded);
  if (!options.trace.empty()) {
    write_file_atomically(options.trace, chrome_trace(evaluation.timeline));
    print_note(fmt::format("wrote {}\n", options.trace));
  }
  const std::vector<StageMemory> memory = stage_memory(target, strategy, evaluation.prediction);
  print_result(options.json
                   ? evaluation_json(loaded, strategy, evaluation, memory)
                   : simulation_text(loaded, strategy, evaluation, memory, oversubscribed));
  const std::vector<StagePrediction>& stages = evaluation.prediction.stages;
  if (fits_devices(target, strategy, stages)) return ExitCode::ok;
  const Filling fullest =
      filling_of(tightest_of(stages), outside_program(target, strategy), target.reserve);
  const NothingFits refused(why_unfit(fullest), single_changes(target, strategy));
  print_note("planner: " + describe(refused));
  return ExitCode::infeasible;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SimulateOptions>();
  CLI::App& command = *app.add_subcommand("simulate", "predict one strategy");
  add_job(command, options->target, false);
  command.add_option("STRATEGY", options->strategy, "\"mp=2,pp=2\" or a JSON file");
  add_from(command, options->target);
  add_machine(command, options->target);
  add_reserve(command, options->reserve);
  command.add_flag("--unfolded", options->unfolded, "simulate every rank, not one per class");
  command.add_option("--trace", options->trace,
                     "write the step here, as Chrome's and Perfetto's trace viewers read it");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_simulate(*options); }; });
}

}  // namespace plimsoll
