// LastStep tells the ranks of a run that saves nothing behind which step they all end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/processes.h"

namespace plimsoll {

/// A run makes `steps` steps, or fewer where `stop` returns true on any rank. Then all ranks end
/// behind the same step, and none waits for another to learn which one. A rank that waited here
/// could not say which rank keeps it waiting, as a communication does.
class LastStep {
 public:
  /// `locals` ranks are threads of this process, unless it is one of `processes`, which may be
  /// null, and which outlive this object.
  LastStep(std::int64_t steps, std::int64_t locals, std::function<bool()> stop,
           Processes* processes, std::chrono::milliseconds deadline);

  /// Returns whether a rank ends behind its step `made`, counted from 1. Each rank asks once behind
  /// each step. Throws EnvironmentError where another process is a step behind for longer than the
  /// deadline.
  bool ends(std::int64_t local, std::int64_t made);

 private:
  bool thread_ends(std::int64_t local, std::int64_t made);
  bool process_ends(std::int64_t made);

  const std::int64_t steps_;
  const std::function<bool()> stop_;
  Processes* const processes_;
  const std::chrono::milliseconds deadline_;
  std::mutex lock_;
  std::vector<std::int64_t> begun_;      ///< by thread: the step that it makes, or has made last
  std::optional<std::int64_t> decided_;  ///< by the first thread to which `stop` returned true
};

}  // namespace plimsoll
