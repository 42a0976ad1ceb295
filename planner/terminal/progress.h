// Progress: rewrites one line on stderr in place, if stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace plimsoll {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  ///< clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::int64_t done, std::int64_t of);

 private:
  std::string what_;
  bool terminal_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace plimsoll
