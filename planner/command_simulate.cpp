// `planner simulate`: one strategy, predicted.
#include <fmt/format.h>

#include "base/command_line.h"
#include "planner/commands.h"
#include "planner/describe.h"
#include "planner/evaluate.h"
#include "planner/search.h"
#include "planner/summary_json.h"

namespace plimsoll {
ExitCode run_simulate(const SimulateOptions& options) {
  const Bytes reserve = parse_reserve(options.reserve);
  const Target target = load_target(options.target);
  const std::int64_t devices = options.target.devices;
  const bool oversubscribed = check_devices(target.cluster, devices);
  const Strategy strategy = legal_strategy(target.job, target.framework, options.strategy, devices);
  const Evaluation evaluation =
      evaluate(target.job, strategy, target.framework, cost_model(target), devices, reserve,
               options.unfolded ? Folding::unfolded : Folding::folded);
  print_result(
      options.json
          ? evaluation_json(target.job, strategy, devices, evaluation)
          : fmt::format("{}\n{}{}\n{}{}", headline(target, devices, oversubscribed),
                        efficiency_line(target), strategy_summary(strategy),
                        describe(evaluation.score.prediction, !oversubscribed),
                        describe_outside_program({target.job, strategy, target.framework})));
  if (evaluation.score.fits) return ExitCode::ok;
  const StagePrediction& tightest = tightest_of(evaluation.score.prediction.stages);
  const Bytes arena = tightest.arena, capacity = tightest.capacity;
  const Bytes outside = memory_outside_program(target.job, strategy, target.framework);
  throw InfeasibleError(
      fmt::format("does not fit: the largest arena is {} ({} bytes), with {} ({} bytes) of context "
                  "and communicators and {} ({} bytes) of reserve, and a device has {} ({} bytes)",
                  to_text(arena), arena.count(), to_text(outside), outside.count(),
                  to_text(reserve), reserve.count(), to_text(capacity), capacity.count()));
}

}  // namespace plimsoll
