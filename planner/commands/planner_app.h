// The command line of `planner`, with all its commands. Parsing it runs nothing and opens no file.
#pragma once

#include <memory>

#include "planner/commands/commands.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Returns the command line. Once it has parsed words, `action` is the command that they name, or
/// empty where that command is another executable. `action` outlives the command line.
std::unique_ptr<CLI::App> planner_app(Action& action);

}  // namespace plimsoll
