// `planner space`: the strategies that a plan chooses from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/command_line.h"
#include "planner/api/summary_json.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/explore/search_request.h"

namespace plimsoll {
namespace {

struct SpaceOptions {
  TargetOptions target;  ///< without cluster the framework is the bundled one
  HeldOptions held;
  bool list = false;  ///< every legal strategy
  bool json = false;
};

ExitCode run_space(const SpaceOptions& options) {
  const Constraints held = parse_held(options.held);
  std::int64_t devices = options.target.devices;
  Space space;
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
    space = enumerate(job, framework, devices, held.fixed, unknown, held.limits, held.tried);
  } else {
    const LoadedTarget loaded = load_target(options.target, Bytes());
    job = loaded.target.job;
    stated = stated_job(loaded);
    devices = loaded.target.devices;
    head = headline(loaded, is_oversubscribed(loaded.target)) + "\n";
    space = enumerate(SearchRequest{loaded.target, held});
  }
  print_result(options.json ? space_json(stated, devices, space, options.list)
                            : head + describe_parameters(stated) + describe(space, options.list));
  if (!space.legal.empty()) return ExitCode::ok;
  throw InfeasibleError(fmt::format("no legal strategy for {} on {}: {}", job.name,
                                    devices_text(devices), space.reason));
}

}  // namespace

void add_space(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SpaceOptions>();
  CLI::App& command = *app.add_subcommand("space", "show the strategies that a plan chooses from");
  add_job(command, options->target);
  command.add_option("--cluster", options->target.cluster,
                     "cluster file or preset: its framework, its devices, and where they lie");
  add_devices(command, options->target);
  add_framework(command, options->target);
  add_held(command, options->held);
  command.add_flag("--list", options->list, "every legal strategy, in canonical order");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_space(*options); }; });
}

}  // namespace plimsoll
