// Progress: a counter for people who wait at a terminal.
#include "planner/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/command_line.h"
#include "base/error.h"

namespace plimsoll {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};  // often enough to look alive
constexpr std::chrono::seconds kFirst{1};          // shorter work needs no line
constexpr double kMinute = 60, kHour = 3600;

/// A terminal that can clear a line.
bool can_redraw() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::string duration_text(double seconds) {
  if (seconds < kMinute) return fmt::format("{:.0f} s", std::ceil(seconds));
  if (seconds < kHour) return fmt::format("{:.0f} min", std::ceil(seconds / kMinute));
  return fmt::format("{:.1f} h", seconds / kHour);
}

using Clock = std::chrono::steady_clock;

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(can_redraw()) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::update(std::int64_t done, std::int64_t of) {
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now - begin_ < kFirst || now - last_ < kRedraw) return;
  last_ = now;
  shown_ = true;
  const Seconds elapsed(std::chrono::duration<double>(now - begin_).count());
  std::fprintf(stderr, "\r\x1b[K%s", progress_line(what_, done, of, elapsed).c_str());
  std::fflush(stderr);
}

std::string progress_line(const std::string& what, std::int64_t done, std::int64_t of,
                          Seconds elapsed) {
  std::string line = fmt::format("{} {} of {}", what, done, of);
  if (done <= 0 || done >= of) return line;
  const double left = elapsed.value() * double(of - done) / double(done);
  return line + fmt::format(", about {} left", duration_text(left));
}

Clock::time_point end_of(Seconds limit) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit.value()));
}

TimeLimit::TimeLimit(std::optional<Seconds> limit) {
  if (!limit) return;
  const Clock::time_point until = end_of(*limit);
  thread_ = std::thread([this, until, limit = *limit] {
    std::unique_lock guard(lock_);
    over_.wait_until(guard, until, [this] { return done_; });
    if (Clock::now() < until) return;
    print_note(fmt::format("planner: stopped after the time limit of {}; nothing was written\n",
                           to_text(limit)));
    std::_Exit(int(ExitCode::stopped_early));
  });
}

TimeLimit::~TimeLimit() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard guard(lock_);
    done_ = true;
  }
  over_.notify_all();
  thread_.join();
}

}  // namespace plimsoll
