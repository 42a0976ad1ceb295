// Commands: adds each `planner COMMAND` to a command line. A command prints its result on stdout,
// and messages and progress on stderr. Failures are the exceptions of base/error.h.
#pragma once

#include <functional>

#include "base/error.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Runs the command that was parsed. The callback of that command sets the action.
using Action = std::function<ExitCode()>;

/// The exit code is 5 where the time limit passed first, with the best plan so far or with none.
void add_plan(CLI::App& app, Action& action);
/// The exit code is 4 where no point has a plan, and 5 where a time limit or a signal left some
/// out.
void add_sweep(CLI::App& app, Action& action);
/// The exit code is 4 where what was asked does not run, and 5 where a time limit ended a search.
void add_explain(CLI::App& app, Action& action);
void add_space(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
/// The exit code is 7 (outside_tolerance) where a goal is missed.
void add_validate(CLI::App& app, Action& action);
void add_fit(CLI::App& app, Action& action);
void add_learn(CLI::App& app, Action& action);
void add_passes(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_describe(CLI::App& app, Action& action);
void add_list(CLI::App& app, Action& action);
void add_init(CLI::App& app, Action& action);
void add_schema(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
/// Its pages are those of `app` and its commands.
void add_man(CLI::App& app, Action& action);
/// The exit code is 6 where something does not work here.
void add_doctor(CLI::App& app, Action& action);

}  // namespace plimsoll
