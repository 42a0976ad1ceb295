// The command that the command line of `planner` names.
#pragma once

#include "base/command_line.h"

namespace plimsoll {

/// Runs the command, or replaces the process by the program of `calibrate` or `run`. Throws as the
/// command does, and UsageError for a command line that is not understood.
ExitCode dispatch(int argc, char** argv);

}  // namespace plimsoll
