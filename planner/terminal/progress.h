// Progress: rewrites one line on stderr in place, if stderr is a terminal. Commands that cannot
// give part of an answer have a time limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/units.h"

namespace plimsoll {

/// Shows how much of a long work is done and how much time is left. Nothing is shown where the work
/// ends within a second, where stderr is no terminal, or where TERM is "dumb". The line has no
/// colours. Any thread may update.
class Progress {
 public:
  /// `what` stands before the numbers: "strategies done with:".
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::int64_t done, std::int64_t of);
  void clear();  ///< clears the line, before other text; the destructor does so, too

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool terminal_;
  bool shown_ = false;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_;
  std::mutex mutex_;
};

/// Returns "runs predicted: 30 of 120, about 45 s left". The rest is taken to go on as fast as what
/// is done; without anything done there is no estimate.
std::string progress_line(const std::string& what, std::int64_t done, std::int64_t of,
                          Seconds elapsed);

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
