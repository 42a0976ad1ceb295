// Launch: one process per rank, started by what clusters have for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

/// The command line that starts `ranks` processes of `program` with `arguments`. `launcher` is
/// "mpirun" or "srun", and may go on with options of its own ("mpirun --hostfile hosts"), by
/// spaces. Throws UsageError for another launcher.
std::vector<std::string> launch_command(const std::string& launcher, std::int64_t ranks,
                                        const std::string& program,
                                        const std::vector<std::string>& arguments);

/// Replaces this process by `program` (planner-run-mpi), which lies beside it, under the launcher.
/// `arguments` are this program's without the launcher. Throws EnvironmentError when it cannot.
[[noreturn]] void launch(const std::string& launcher, std::int64_t ranks,
                         const std::string& program, const std::vector<std::string>& arguments);

/// All words of a command line but its name, --launcher and its value.
std::vector<std::string> without_launcher(int argc, char** argv);

}  // namespace plimsoll
