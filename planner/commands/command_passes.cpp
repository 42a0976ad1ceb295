// `planner passes`: what each pass makes of one strategy.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/command_line.h"
#include "passes/pipeline.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"

namespace plimsoll {
namespace {

struct PassesOptions {
  TargetOptions target;  ///< without calibration; without cluster the framework is the bundled one
  std::string strategy;
  std::string before, after;         ///< a stage; both empty: an overview of all
  std::optional<std::int64_t> rank;  ///< of the Programs, that of its class; absent: all
  bool list = false;                 ///< names only; needs neither job nor strategy
};

/// Returns the number of devices that a strategy asks for.
std::int64_t device_count(const Strategy& strategy) {
  std::int64_t devices = 1;
  for (std::int64_t degree :
       {strategy.mp, strategy.pp, strategy.dp, strategy.sharding_degree, strategy.cp}) {
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

/// Returns the stage whose text is asked for: that of --after, or the one before that of --before.
/// The result is empty without either.
std::string chosen_stage(const PassesOptions& options) {
  if (options.before.empty() && options.after.empty()) return "";
  const bool before = !options.before.empty();
  const std::string& name = before ? options.before : options.after;
  const std::vector<std::string> names = stage_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw UsageError(fmt::format("{} {}: no such stage; there are {}",
                                 before ? "--before" : "--after", name, fmt::join(names, " ")));
  }
  if (!before) return name;
  if (found == names.begin()) throw UsageError("--before forward: it is the first stage");
  return *std::prev(found);
}

std::string list() {
  std::string lines;
  for (const std::string& stage : stage_names()) {
    lines += fmt::format("{:<20} {}\n", stage, sentence_of(stage));
  }
  return lines;
}

/// Returns a line for every stage: whether it changed the text, and how long the text is.
std::string overview(const PassContext& context) {
  std::string lines_of_all, before;
  lower(context, [&](std::string_view stage, const StageText& text) {
    std::string after = text(std::nullopt);
    const auto lines = std::count(after.begin(), after.end(), '\n');
    lines_of_all +=
        fmt::format("{:<20} {:<9} {:>6} lines  {}\n", stage,
                    after == before ? "unchanged" : "changed", lines, sentence_of(stage));
    before = std::move(after);
  });
  return lines_of_all;
}

std::string text_of(const PassContext& context, const std::string& wanted,
                    std::optional<std::int64_t> rank) {
  std::string found;
  lower(context, [&](std::string_view stage, const StageText& text) {
    if (stage == wanted) found = text(rank);
  });
  return found;
}

ExitCode run_passes(const PassesOptions& options) {
  const std::string stage = chosen_stage(options);
  if (options.list) {
    print_result(list());
    return ExitCode::ok;
  }
  if (options.rank && stage.empty()) {
    throw UsageError(fmt::format(
        "--rank {}: it picks the Program of a stage; --before or --after says which stage",
        *options.rank));
  }
  Job job = read_stated_job(options.target);
  const Framework framework = load_framework(options.target, job);
  job.vocab = padded_vocabulary(job.vocab, framework, 1);
  const std::int64_t devices = device_count(parse_strategy(options.strategy));
  const Strategy strategy = legal_strategy(job, framework, options.strategy, devices);
  if (options.rank && *options.rank >= devices) {
    throw UsageError(
        fmt::format("--rank {}: the strategy has ranks 0 to {}", *options.rank, devices - 1));
  }
  const PassContext context{job, strategy, framework};
  const std::string chosen =
      options.before.empty() ? "after " + options.after : "before " + options.before;
  const std::string headline =
      fmt::format("# {} as {}; framework {}", job.name, strategy_summary(strategy), framework.name);
  print_result(stage.empty() ? fmt::format("{}\n{}", headline, overview(context))
                             : fmt::format("{}; {}\n{}", headline, chosen,
                                           text_of(context, stage, options.rank)));
  return ExitCode::ok;
}

}  // namespace

void add_passes(CLI::App& app, Action& action) {
  const auto options = std::make_shared<PassesOptions>();
  CLI::App& command = *app.add_subcommand("passes", "show what each pass makes of a job");
  add_job(command, options->target, false);
  command.add_option("STRATEGY", options->strategy, "\"mp=2,pp=2\" or a JSON file");
  CLI::Option* before =
      command.add_option("--before", options->before, "print the text form before this stage");
  command.add_option("--after", options->after, "print the text form after this stage")
      ->excludes(before);
  command.add_option("--rank", options->rank, "print the Program of this rank's class only")
      ->check(integers(0, kMostDevices - 1));
  command.add_flag("--list", options->list, "name the stages and leave");
  command.add_option("--cluster", options->target.cluster,
                     "cluster file or preset: for its framework only");
  add_framework(command, options->target);
  command.callback([options, &action] {
    if (!options->list && options->strategy.empty()) {
      throw CLI::RequiredError("JOB and STRATEGY (or --list)");
    }
    action = [options] { return run_passes(*options); };
  });
}

}  // namespace plimsoll
