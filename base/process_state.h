// Linux says of each process of a machine what it does and who started it.
#pragma once

namespace plimsoll {

struct ProcessState {
  /// As proc(5) has it: 'Z' has ended, and its parent has not asked for its status; 'T' is stopped,
  /// and 't' by a debugger; 'X' is gone, or Linux does not say.
  char state = 'X';
  int parent = 0;
};

ProcessState process_state(int id);

}  // namespace plimsoll
