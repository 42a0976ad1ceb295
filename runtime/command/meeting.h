// At a meeting all ranks of a run tell each other something between two steps, whether they are
// threads of this process or processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

}  // namespace plimsoll
