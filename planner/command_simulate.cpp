// `planner simulate` and `planner passes`: one strategy, looked at closely.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/command_line.h"
#include "passes/pipeline.h"
#include "planner/commands.h"
#include "planner/describe.h"
#include "planner/evaluate.h"
#include "planner/search.h"
#include "planner/summary_json.h"

namespace plimsoll {
namespace {

Strategy legal_strategy(const Job& job, const Framework& framework, const std::string& text,
                        std::int64_t devices) {
  const Strategy strategy = parse_strategy(text);
  Verdict verdict = legal(job, strategy, devices);
  if (verdict) verdict = legal(framework, strategy);
  if (!verdict) {
    throw InfeasibleError(fmt::format("{} cannot run as {}: {}", job.name,
                                      strategy_summary(strategy), verdict.reason()));
  }
  return strategy;
}

/// The devices that a strategy asks for, where no flag says how many there are.
std::int64_t device_count(const Strategy& strategy) {
  std::int64_t devices = 1;
  for (std::int64_t degree : {strategy.mp, strategy.pp, strategy.dp, strategy.sharding_degree}) {
    if (degree > kMostDevices / devices) {
      throw UsageError(
          fmt::format("{}: more than {} devices", strategy_summary(strategy), kMostDevices));
    }
    devices *= degree;
  }
  return devices;
}

std::string_view sentence_of(std::string_view stage) {
  for (const GraphPass& pass : graph_passes()) {
    if (pass.name == stage) return pass.sentence;
  }
  if (stage == "forward") return "the job's forward pass, op by op, before any pass";
  if (stage == "cut_blocks") return "blocks become routines: tensors in slots and frames";
  if (stage == "schedule") return "calls of routines in host issue order, with waits";
  if (stage == "plan_memory") return "every buffer gets its offset in the arena";
  return "";
}

void check_stage(const std::string& stage) {
  const std::vector<std::string> names = stage_names();
  if (std::find(names.begin(), names.end(), stage) != names.end()) return;
  throw UsageError(
      fmt::format("--stage {}: no such stage; there are {}", stage, fmt::join(names, " ")));
}

/// Every stage with what it did to this job: whether the text changed, and how long it is.
std::string overview(const PassContext& context) {
  std::string lines_of_all, before;
  lower(context, [&](std::string_view stage, const std::function<std::string()>& text) {
    std::string after = text();
    const auto lines = std::count(after.begin(), after.end(), '\n');
    lines_of_all +=
        fmt::format("{:<20} {:<9} {:>6} lines  {}\n", stage,
                    after == before ? "unchanged" : "changed", lines, sentence_of(stage));
    before = std::move(after);
  });
  return lines_of_all;
}

}  // namespace

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
  const Bytes arena = evaluation.score.arena, capacity = target.cluster.device.memory;
  const Bytes outside = memory_outside_program(target.job, strategy, target.framework);
  throw InfeasibleError(
      fmt::format("does not fit: the largest arena is {} ({} bytes), with {} ({} bytes) of context "
                  "and communicators and {} ({} bytes) of reserve, and a device has {} ({} bytes)",
                  to_text(arena), arena.count(), to_text(outside), outside.count(),
                  to_text(reserve), reserve.count(), to_text(capacity), capacity.count()));
}

ExitCode run_passes(const PassesOptions& options) {
  if (!options.stage.empty()) check_stage(options.stage);
  if (options.list) {
    std::string list;
    for (const std::string& stage : stage_names()) {
      list += fmt::format("{:<20} {}\n", stage, sentence_of(stage));
    }
    print_result(list);
    return ExitCode::ok;
  }
  const Job job = load_job(options.target);
  const Framework framework = options.target.framework.empty()
                                  ? bundled_framework()
                                  : framework_by_name(options.target.framework);
  const std::int64_t devices = device_count(parse_strategy(options.strategy));
  const Strategy strategy = legal_strategy(job, framework, options.strategy, devices);
  const PassContext context{job, strategy, framework};
  if (options.stage.empty()) {
    print_result(overview(context));
    return ExitCode::ok;
  }
  lower(context, [&](std::string_view stage, const std::function<std::string()>& text) {
    if (stage == options.stage) print_result(text());
  });
  return ExitCode::ok;
}

}  // namespace plimsoll
