// `planner space`: the strategies that a plan chooses from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/command_line.h"
#include "planner/api/summary_json.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/explore/explore.h"
#include "planner/terminal/progress.h"

namespace plimsoll {
namespace {

struct SpaceOptions {
  TargetOptions target;  ///< without cluster: no bounds, and the framework is the bundled one
  HeldOptions held;
  std::string reserve = exact_text(kDefaultReserve);
  std::string time_limit;
  bool list = false;  ///< every legal strategy
  bool json = false;
};

ExitCode run_space(const SpaceOptions& options) {
  const Constraints held = parse_held(options.held);
  const Bytes reserve = parse_reserve(options.reserve);
  std::optional<TimeLimit> limit(std::in_place, optional_time_limit(options.time_limit));
  std::int64_t devices = options.target.devices;
  SpaceSummary summary;
  Job job, stated;
  std::string head;  // with a cluster
  if (options.target.cluster.empty()) {
    if (devices == 0) throw UsageError("--devices is required without --cluster");
    stated = read_stated_job(options.target);
    const Framework framework = load_framework(options.target, stated);
    job = stated;
    job.vocab = padded_vocabulary(job.vocab, framework, 1);
    DeviceUnits unknown;
    unknown.alike = false;  // ranks may be neighbours in any way: every order is one of its own
    summary.space =
        enumerate(job, framework, devices, held.fixed, unknown, held.limits, held.tried);
  } else {
    const LoadedTarget loaded = load_target(options.target, reserve);
    const SearchRequest request{loaded.target, held};
    job = loaded.target.job;
    stated = stated_job(loaded);
    devices = loaded.target.devices;
    head = headline(loaded, is_oversubscribed(loaded.target)) + "\n";
    summary.space = enumerate(request);
    summary.bounds = count_bounds(request, summary.space);
  }
  const std::string text =
      options.json ? space_json(stated, devices, summary, options.list)
                   : head + describe_parameters(stated) + describe(summary, options.list);
  limit.reset();
  print_result(text);
  if (!summary.space.legal.empty()) return ExitCode::ok;
  throw InfeasibleError(fmt::format("no legal strategy for {} on {}: {}", job.name,
                                    devices_text(devices), summary.space.reason));
}

}  // namespace

void add_space(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SpaceOptions>();
  CLI::App& command = *app.add_subcommand("space", "show the strategies that a plan chooses from");
  add_job(command, options->target);
  command.add_option("--cluster", options->target.cluster,
                     "cluster file or preset: count also what cannot fit");
  add_calibration(command, options->target.calibration)->needs("--cluster");
  add_devices(command, options->target);
  add_framework(command, options->target);
  add_held(command, options->held);
  add_reserve(command, options->reserve);
  command.add_flag("--list", options->list, "every legal strategy, in canonical order");
  add_time_limit(command, options->time_limit, "the count");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_space(*options); }; });
}

}  // namespace plimsoll
