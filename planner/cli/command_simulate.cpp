// `planner simulate`: one strategy, predicted.
#include <fmt/format.h>

#include <array>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/cli/commands.h"
#include "planner/cli/describe.h"
#include "planner/cli/summary_json.h"
#include "planner/refusal/least_changes.h"
#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "predict/stage_memory.h"
#include "reports/trace.h"

namespace plimsoll {
namespace {

std::vector<StageMemory> stage_memory(const Target& target, const Strategy& strategy,
                                      const Prediction& prediction, Bytes outside, Bytes reserve) {
  // They were proven when they were predicted.
  const std::vector<Program> programs =
      lower({target.job, strategy, target.framework}, {}, Proof::none);
  std::vector<StageMemory> memory;
  for (const Program& program : programs) {
    memory.push_back(memory_at_peak(program, target.framework, prediction.stages[memory.size()],
                                    outside, reserve));
  }
  return memory;
}

}  // namespace

ExitCode run_simulate(const SimulateOptions& options) {
  std::vector<std::string> inputs = options.target.calibration;
  inputs.insert(inputs.end(), {options.target.job, options.target.cluster});
  check_output("--trace", options.trace, inputs);
  const Bytes reserve = parse_reserve(options.reserve);
  const Target target = load_target(options.target);
  const std::int64_t devices = target.devices;
  const bool oversubscribed = check_devices(target.cluster, devices);
  const Strategy strategy = legal_strategy(target.job, target.framework, options.strategy, devices);
  const Evaluation evaluation =
      evaluate(target.job, strategy, target.framework, cost_model(target), devices, reserve,
               options.unfolded ? Folding::unfolded : Folding::folded);
  const Bytes outside = memory_outside_program(target.job, strategy, target.framework);
  if (!options.trace.empty()) {
    write_file_atomically(options.trace, chrome_trace(evaluation.timeline));
    print_note(fmt::format("wrote {}\n", options.trace));
  }
  const std::vector<StageMemory> memory =
      stage_memory(target, strategy, evaluation.score.prediction, outside, reserve);
  print_result(options.json
                   ? evaluation_json(stated_job(target), strategy, devices, evaluation, memory,
                                     outside, reserve)
                   : fmt::format("{}\n{}{}{}\n{}{}{}", headline(target, devices, oversubscribed),
                                 efficiency_line(target), describe_parameters(stated_job(target)),
                                 strategy_summary(strategy),
                                 describe_step(evaluation.score.prediction, !oversubscribed),
                                 describe(evaluation.parts), describe(memory, target.framework)));
  if (evaluation.score.fits) return ExitCode::ok;
  const StagePrediction& tightest = tightest_of(evaluation.score.prediction.stages);
  const Bytes reserved = tightest.reserved, capacity = tightest.capacity;
  const std::string why = fmt::format(
      "does not fit: tensors take {} ({} bytes), with {} ({} bytes) of context "
      "and communicators and {} ({} bytes) of reserve, and a device has {} ({} bytes)",
      to_text(reserved), reserved.count(), to_text(outside), outside.count(), to_text(reserve),
      reserve.count(), to_text(capacity), capacity.count());
  SearchRequest request;
  request.job = target.job;
  request.framework = target.framework;
  request.devices = devices;
  request.reserve = reserve;
  const NothingFits refused(why, single_changes(request, cost_model(target), strategy));
  print_note("planner: " + describe(refused));
  return ExitCode::infeasible;
}

}  // namespace plimsoll
