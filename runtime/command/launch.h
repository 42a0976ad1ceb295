// A launch starts one process per rank by the launcher of a cluster, on the hosts where the plan
// places them; a placement that does not fit is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll {

/// Returns the command line that starts `ranks` processes of `program` with `arguments`. `launcher`
/// is "mpirun" or "srun", optionally followed by its own options, separated by spaces ("mpirun
/// --hostfile hosts"). Throws UsageError for another launcher.
std::vector<std::string> launch_command(const std::string& launcher, std::int64_t ranks,
                                        const std::string& program,
                                        const std::vector<std::string>& arguments);

/// Runs `program` (planner-run-mpi) under the launcher, and returns the launcher's exit code;
/// `program` lies beside this one. `arguments` are this program's without the launcher. The
/// first SIGHUP, SIGINT or SIGTERM asks the ranks to stop, all other signals are passed on, and the
/// launcher is ended when this process is killed. Throws EnvironmentError when it cannot start the
/// launcher, when a rank was ended by a signal that a run does not answer, and when the launcher
/// hangs for 10 s after its processes have ended: it is killed then.
ExitCode launch(const std::string& launcher, std::int64_t ranks, const std::string& program,
                const std::vector<std::string>& arguments);

/// Returns all words of a command line but its name, --launcher and the launcher.
std::vector<std::string> without_launcher(int argc, char** argv);

/// Checks that ranks fill nodes in order, `devices_per_node` on each. Ranks of a node must share a
/// host, and ranks of different nodes must not. `hosts` is by rank. The reason names two ranks, and
/// the start command that would place them correctly.
Verdict fits_placement(std::int64_t devices_per_node, std::span<const std::string> hosts);

}  // namespace plimsoll
