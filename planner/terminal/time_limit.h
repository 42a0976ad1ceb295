// A time limit of commands that cannot give part of an answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/units.h"

namespace plimsoll {

/// Returns when a limit that begins now ends.
std::chrono::steady_clock::time_point end_of(Seconds limit);

/// Counts from where it is made. When the time is over while it lives, the program says so and ends
/// with exit code 5. It must not live where a file is written.
class TimeLimit {
 public:
  /// Nothing: there is no limit.
  explicit TimeLimit(std::optional<Seconds> limit);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::mutex lock_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace plimsoll
