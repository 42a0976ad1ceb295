// A thread waits for the end of the command or of its time.
#include "planner/terminal/time_limit.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "base/command_line.h"
#include "base/error.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

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
