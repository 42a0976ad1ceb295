// This is the command line of planner-run, for one process with all ranks and for one process per
// rank.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/error.h"
#include "runtime/processes.h"

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Meets the other processes of the job, which may take ten times `deadline`. The result outlives
/// the command.
using StartProcesses = std::function<Processes&(std::chrono::milliseconds deadline)>;

/// Parses the arguments, trains and reports. With `start`, which may be empty, only process 0
/// reports. Throws the exceptions of base/error.h.
ExitCode run_command(int argc, char** argv, const StartProcesses& start);

/// Is main() of the programs. It does as run_program(), but after a failure it leaves without
/// unwinding, since a rank may still run on its thread.
int run_program_and_exit(const char* name, int argc, char** argv, const StartProcesses& start);

/// Adds the option --deadline to a command, with its limits. `seconds` has the default.
void add_deadline(CLI::App& app, double& seconds, const std::string& description);

/// Waits are counted in whole milliseconds; a deadline is kept, and named, exactly. Throws
/// UsageError for another number.
std::chrono::milliseconds deadline_of(double seconds);

}  // namespace plimsoll
