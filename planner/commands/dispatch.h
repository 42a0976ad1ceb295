// The command line of `planner` with all its commands, and the command that it names. Parsing it
// runs nothing and opens no file.
#pragma once

#include <memory>

#include "base/command_line.h"
#include "planner/commands/commands.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Runs the command, or replaces the process by the program of `calibrate` or `run`. Throws as the
/// command does, and UsageError for a command line that is not understood.
ExitCode dispatch(int argc, char** argv);

/// Returns the command line. Once it has parsed words, `action` is the command that they name, or
/// empty where that command is another executable. `action` outlives the command line.
std::unique_ptr<CLI::App> planner_app(Action& action);

}  // namespace plimsoll
