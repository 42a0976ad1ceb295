// Interrupt: lets Ctrl-C, a closed terminal, SIGTERM or SIGUSR1 end a search as a time limit does,
// with the best plan so far, a training behind its running step, and a calibration behind its
// running test.
#pragma once

#include <mutex>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace plimsoll {

/// While an object of this class lives, the first SIGINT, SIGHUP, SIGTERM or SIGUSR1 is noted. A
/// second one ends the program, unless it is SIGHUP, which a closed terminal may send twice. A
/// SIGHUP that was ignored before stays ignored, as nohup(1) wants it. Launchers pass SIGUSR1 on,
/// and Slurm sends it where a job asks for it.
class InterruptNotice {
 public:
  InterruptNotice();
  ~InterruptNotice();
  InterruptNotice(const InterruptNotice&) = delete;
  InterruptNotice& operator=(const InterruptNotice&) = delete;
  bool asked() const { return signal() != 0; }
  /// Returns the signal that came, or 0.
  static int signal();
  /// Returns "SIGINT", "SIGHUP", "SIGUSR1" or "SIGTERM". Where the signal came to another process,
  /// SIGTERM is named.
  static std::string_view name();
  /// Returns the code with which shells end where the signal does: 129 for SIGHUP, 130 for SIGINT,
  /// or 143 for the others.
  static ExitCode code();
};

/// Notes signals as InterruptNotice does, but only from the first call of asked() on. Until then a
/// signal ends the program: a command that still waits for its input files has nothing to show.
class InterruptNoticeOnceAsked {
 public:
  bool asked() {
    std::call_once(begun_, [this] { notice_.emplace(); });
    return notice_->asked();
  }

 private:
  std::once_flag begun_;
  std::optional<InterruptNotice> notice_;
};

}  // namespace plimsoll
