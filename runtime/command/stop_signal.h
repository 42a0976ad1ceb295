// A stop signal ends a training behind its running step.
#pragma once

namespace plimsoll {

/// While an object of this class lives, the first SIGINT or SIGTERM is noted, and a second one ends
/// the program.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Returns the signal that came, or 0.
  static int caught();
};

}  // namespace plimsoll
