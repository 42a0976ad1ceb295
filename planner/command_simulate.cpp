// `planner simulate` and `planner passes`: one strategy, looked at closely.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "passes/pipeline.h"
#include "planner/commands.h"
#include "planner/describe.h"
#include "planner/evaluate.h"
#include "planner/search.h"
#include "planner/summary_json.h"

namespace plimsoll {
namespace {

Strategy legal_strategy(const Job& job, const std::string& text, std::int64_t devices) {
  const Strategy strategy = parse_strategy(text);
  if (const Verdict verdict = legal(job, strategy, devices); !verdict) {
    throw InfeasibleError(fmt::format("{} cannot run as {}: {}", job.name,
                                      strategy_summary(strategy), verdict.reason()));
  }
  return strategy;
}

std::string_view sentence_of(std::string_view stage) {
  for (const GraphPass& pass : graph_passes()) {
    if (pass.name == stage) return pass.sentence;
  }
  if (stage == "forward") return "the job's forward pass, op by op, before any pass";
  if (stage == "schedule") return "blocks become routines; calls in host issue order, with waits";
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
void print_overview(const PassContext& context) {
  std::string before;
  lower(context, [&](std::string_view stage, const std::function<std::string()>& text) {
    std::string after = text();
    const auto lines = std::count(after.begin(), after.end(), '\n');
    fmt::print("{:<20} {:<9} {:>6} lines  {}\n", stage, after == before ? "unchanged" : "changed",
               lines, sentence_of(stage));
    before = std::move(after);
  });
}

}  // namespace

ExitCode run_simulate(const SimulateOptions& options) {
  const Bytes reserve = parse_reserve(options.reserve);
  const Target target = load_target(options.target);
  const std::int64_t devices = options.target.devices;
  const bool oversubscribed = check_devices(target.cluster, devices);
  const Strategy strategy = legal_strategy(target.job, options.strategy, devices);
  const Evaluation evaluation =
      evaluate(target.job, strategy, target.framework, cost_model(target), devices, reserve,
               options.unfolded ? Folding::unfolded : Folding::folded);
  if (options.json) {
    fmt::print("{}", evaluation_json(target.job, strategy, devices, evaluation));
  } else {
    fmt::print("{}\n{}\n{}", headline(target, devices, oversubscribed), strategy_summary(strategy),
               describe(evaluation.score.prediction, !oversubscribed));
  }
  if (evaluation.score.fits) return ExitCode::ok;
  throw InfeasibleError(fmt::format(
      "does not fit: the peak is {}, and a device has {} with {} kept free",
      to_text(evaluation.score.peak), to_text(target.cluster.device.memory), to_text(reserve)));
}

ExitCode run_passes(const PassesOptions& options) {
  if (!options.stage.empty()) check_stage(options.stage);
  if (options.list) {
    for (const std::string& stage : stage_names()) {
      fmt::print("{:<20} {}\n", stage, sentence_of(stage));
    }
    return ExitCode::ok;
  }
  const Job job = load_job(options.target);
  const Framework framework = options.target.framework.empty()
                                  ? bundled_framework()
                                  : framework_by_name(options.target.framework);
  const std::int64_t devices = grid_of(parse_strategy(options.strategy)).world_size();
  const Strategy strategy = legal_strategy(job, options.strategy, devices);
  const PassContext context{job, strategy, framework};
  if (options.stage.empty()) {
    print_overview(context);
    return ExitCode::ok;
  }
  lower(context, [&](std::string_view stage, const std::function<std::string()>& text) {
    if (stage == options.stage) fmt::print("{}", text());
  });
  return ExitCode::ok;
}

}  // namespace plimsoll
