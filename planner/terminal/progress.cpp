// Progress: a counter for people who wait at a terminal.
#include "planner/terminal/progress.h"

#include <unistd.h>

#include <cstdio>

namespace plimsoll {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};  // often enough to look alive

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\x1b[K", stderr);
}

void Progress::update(std::int64_t done, std::int64_t of) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || (done < of && now - last_ < kRedraw)) return;
  last_ = now;
  std::fprintf(stderr, "\r\x1b[K%s %lld of %lld", what_.c_str(), static_cast<long long>(done),
               static_cast<long long>(of));
  std::fflush(stderr);
}

}  // namespace plimsoll
