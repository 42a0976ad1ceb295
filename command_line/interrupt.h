// Interrupt: lets Ctrl-C, SIGTERM or SIGUSR1 end a search as a time limit does, with the best plan
// so far, a training behind its running step, and a calibration behind its running test.
#pragma once

#include <string_view>

#include "base/error.h"

namespace plimsoll {

/// While an object of this class lives, the first SIGINT, SIGTERM or SIGUSR1 is noted, and a second
/// one ends the program. Launchers pass SIGUSR1 on, and Slurm sends it where a job asks for it.
class InterruptNotice {
 public:
  InterruptNotice();
  ~InterruptNotice();
  InterruptNotice(const InterruptNotice&) = delete;
  InterruptNotice& operator=(const InterruptNotice&) = delete;
  bool asked() const { return signal() != 0; }
  /// Returns the signal that came, or 0.
  static int signal();
  /// Returns "SIGINT", "SIGUSR1" or "SIGTERM". Where the signal came to another process, SIGTERM is
  /// named.
  static std::string_view name();
  /// Returns the code with which shells end where SIGINT or SIGTERM does: 130, or 143 for the
  /// others.
  static ExitCode code();
};

}  // namespace plimsoll
