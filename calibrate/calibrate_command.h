// The command line of planner-calibrate, for one process and for one process per rank.
#pragma once

#include "base/error.h"
#include "runtime/processes.h"

namespace plimsoll {

/// Parses the arguments, measures and writes; with `processes` (else null) those of a cluster, and
/// process 0 writes. Throws the exceptions of base/error.h.
ExitCode calibrate_command(int argc, char** argv, Processes* processes);

}  // namespace plimsoll
