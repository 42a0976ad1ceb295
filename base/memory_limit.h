// A program asks for no more memory than its machine has.
#pragma once

#include "base/units.h"

namespace plimsoll {

/// Returns the memory of this machine, or of the control group (Linux's cgroup) of this process
/// where that has less. Zero: neither says it.
Bytes machine_memory();

/// Lets this process have no more than `most` beside what it has: what it asks for then is refused,
/// and it ends with a message (base/command_line.h). Without a limit, Linux ends some process when
/// memory is used up. Only a limit that was higher is changed.
void limit_memory(Bytes most);

}  // namespace plimsoll
