// The command line of planner-run, for one process with all ranks and for one process per rank.
#pragma once

#include "base/error.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Parses the arguments, trains and reports; with `processes` (else null) process 0 reports. Throws
/// the exceptions of base/error.h.
ExitCode run_command(int argc, char** argv, Processes* processes);

/// main() of the programs: as run_program(), but a failure leaves without unwinding around a rank
/// that may still run on its thread.
int run_and_leave(const char* name, int argc, char** argv, Processes* processes);

}  // namespace plimsoll
