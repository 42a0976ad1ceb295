// At a meeting all ranks of a run tell each other something between two steps, whether they are
// threads of this process or processes. They agree there on the last step, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/processes.h"

namespace plimsoll {

/// Every rank calls the same function; `local` counts the ranks of this process. A rank that waits
/// throws RankFailure after fail(), and EnvironmentError where processes miss the deadline.
class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Returns whether any rank passed true.
  virtual bool any(std::int64_t local, bool own) = 0;
  /// Returns what each rank passed, by rank, on rank 0, and nothing elsewhere.
  virtual std::vector<std::string> gather(std::int64_t local, const std::string& bytes) = 0;
  /// Returns what rank 0 passed.
  virtual std::string broadcast(std::int64_t local, const std::string& bytes) = 0;
  /// Ends waits of threads, since a rank has failed.
  virtual void fail() = 0;
};

/// Returns a meeting of `ranks` threads, or of processes where they are given.
std::unique_ptr<Meeting> make_meeting(std::int64_t ranks, Processes* processes,
                                      std::chrono::milliseconds deadline);

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
