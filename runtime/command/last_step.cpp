// Threads end behind the furthest step that any of them has begun; processes hear from each other.
#include "runtime/command/last_step.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

LastStep::LastStep(std::int64_t steps, std::int64_t locals, std::function<bool()> stop,
                   Processes* processes, std::chrono::milliseconds deadline)
    : steps_(steps),
      stop_(std::move(stop)),
      processes_(processes),
      deadline_(deadline),
      begun_(std::size_t(locals), 1) {}

bool LastStep::ends(std::int64_t local, std::int64_t made) {
  if (!stop_) return made == steps_;
  return processes_ == nullptr ? thread_ends(local, made) : process_ends(made);
}

// No thread begins a step while another decides, so none is behind the furthest.
bool LastStep::thread_ends(std::int64_t local, std::int64_t made) {
  const std::lock_guard guard(lock_);
  if (!decided_ && stop_()) decided_ = *std::ranges::max_element(begun_);
  if (made == decided_.value_or(steps_)) return true;
  begun_[std::size_t(local)] = made + 1;
  return false;
}

// A process hears what was asked behind the step before: all are past that one, unless a rank keeps
// the others waiting in a communication.
bool LastStep::process_ends(std::int64_t made) {
  const bool stops = made > 1 && processes_->end_any(deadline_);
  if (stops || made == steps_) return true;
  processes_->begin_any(stop_());
  return false;
}

}  // namespace plimsoll
