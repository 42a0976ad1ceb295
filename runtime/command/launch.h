// A launch starts one process per rank by the launcher of a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

/// Returns the command line that starts `ranks` processes of `program` with `arguments`. `launcher`
/// is "mpirun" or "srun", optionally followed by its own options, separated by spaces ("mpirun
/// --hostfile hosts"). Throws UsageError for another launcher.
std::vector<std::string> launch_command(const std::string& launcher, std::int64_t ranks,
                                        const std::string& program,
                                        const std::vector<std::string>& arguments);

/// Replaces this process by `program` (planner-run-mpi) under the launcher; `program` lies beside
/// this one. `arguments` are this program's without the launcher. Throws EnvironmentError when it
/// cannot.
[[noreturn]] void launch(const std::string& launcher, std::int64_t ranks,
                         const std::string& program, const std::vector<std::string>& arguments);

/// Returns all words of a command line but its name, --launcher and the launcher.
std::vector<std::string> without_launcher(int argc, char** argv);

}  // namespace plimsoll
