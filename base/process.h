// Processes: a program asks for no more memory than its machine has, and finds what others do.
#pragma once

#include <optional>

#include "base/units.h"

namespace plimsoll {

/// Returns the memory of this machine, or of the control group (Linux's cgroup) of this process
/// where that has less. Nothing: neither states it.
std::optional<Bytes> machine_memory();

/// Lets this process have no more than `most` in addition to what it has: more is refused, and
/// the process ends with a message (base/command_line.h). Without a limit, Linux ends some process
/// when memory is used up. Only a limit that was higher is changed.
void limit_memory(Bytes most);

struct ProcessState {
  /// As proc(5) has it: 'Z' has ended, and its parent has not asked for its status; 'T' is stopped,
  /// and 't' by a debugger; 'X' is gone, or Linux does not say.
  char state = 'X';
  int parent = 0;
};

ProcessState process_state(int id);

}  // namespace plimsoll
