// The launcher and Linux tell about the processes of this host before MPI does.
#pragma once

#include <string>

namespace plimsoll {

/// Returns "rank 3" where the launcher has numbered process `id`, else "process 4711".
std::string name_of_process(int id);
/// Returns those processes of this process' launcher on this host that are stopped (SIGSTOP, or a
/// debugger): "rank 1 is stopped, rank 3 is stopped". Empty: none is, or Linux does not say.
std::string stopped_processes();

}  // namespace plimsoll
