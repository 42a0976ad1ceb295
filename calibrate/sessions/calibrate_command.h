// This is the command line of planner-calibrate, for one process and for one process per rank.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "runtime/command/run_command.h"
#include "runtime/rank_device.h"

namespace plimsoll {

/// Reads the facts of an accelerator, for backends that have one.
using FactsOfDevice = DeviceFacts (*)(std::int64_t local_rank);

/// Parses the arguments, measures and writes. With `start`, which may be null, it measures a
/// cluster, and process 0 writes. `facts` reads the device of a backend that was added
/// (runtime/backend.h), and is null without one. Throws the exceptions of base/error.h.
ExitCode calibrate_command(int argc, char** argv, const StartProcesses& start,
                           FactsOfDevice facts = nullptr);

}  // namespace plimsoll
