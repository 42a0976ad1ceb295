// This is the command line of planner-run, for one process with all ranks and for one process per
// rank.
#pragma once

#include "base/error.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Parses the arguments, trains and reports. With `processes`, which may be null, only process 0
/// reports. Throws the exceptions of base/error.h.
ExitCode run_command(int argc, char** argv, Processes* processes);

/// Is main() of the programs. It does as run_program(), but after a failure it leaves without
/// unwinding, since a rank may still run on its thread.
int run_program_and_exit(const char* name, int argc, char** argv, Processes* processes);

}  // namespace plimsoll
