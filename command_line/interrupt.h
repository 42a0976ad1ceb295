// Interrupt: lets Ctrl-C or SIGTERM end a search as a time limit does, with the best plan so far,
// and a training behind its running step.
#pragma once

namespace plimsoll {

/// While an object of this class lives, the first SIGINT or SIGTERM is noted, and a second one ends
/// the program.
class InterruptNotice {
 public:
  InterruptNotice();
  ~InterruptNotice();
  InterruptNotice(const InterruptNotice&) = delete;
  InterruptNotice& operator=(const InterruptNotice&) = delete;
  bool asked() const { return signal() != 0; }
  /// Returns the signal that came, or 0.
  static int signal();
};

}  // namespace plimsoll
