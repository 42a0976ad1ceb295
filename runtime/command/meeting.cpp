// Threads meet under a lock; processes have functions for it.
#include "runtime/command/meeting.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "runtime/communicator.h"

namespace plimsoll {
namespace {

class ThreadMeeting final : public Meeting {
 public:
  explicit ThreadMeeting(std::int64_t ranks) : texts_(std::size_t(ranks)) {}

  bool any(std::int64_t local, bool own) override {
    const std::vector<std::string> all = exchange(local, own ? "1" : "");
    return std::any_of(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  }
  std::vector<std::string> gather(std::int64_t local, const std::string& bytes) override {
    std::vector<std::string> all = exchange(local, bytes);
    return local == 0 ? all : std::vector<std::string>();
  }
  std::string broadcast(std::int64_t local, const std::string& bytes) override {
    return exchange(local, local == 0 ? bytes : "")[0];
  }
  void fail() override {
    const std::lock_guard guard(lock_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  /// The last to come opens the next round; those of this one read what all have left.
  std::vector<std::string> exchange(std::int64_t local, const std::string& text) {
    std::unique_lock guard(lock_);
    texts_[std::size_t(local)] = text;
    const std::uint64_t round = round_;
    if (++come_ == texts_.size()) {
      result_ = texts_;
      come_ = 0;
      ++round_;
      changed_.notify_all();
    }
    // A rank may only come to the next round once all have left this one or wait to be woken, so
    // the result is that of this round until this rank returns: nobody comes twice before it.
    changed_.wait(guard, [&] { return failed_ || round_ != round; });
    if (failed_) throw RankFailure("another rank failed between two steps");
    return result_;
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  std::size_t come_ = 0;
  std::uint64_t round_ = 0;
  bool failed_ = false;
};

class ProcessMeeting final : public Meeting {
 public:
  ProcessMeeting(Processes& processes, std::chrono::milliseconds deadline)
      : processes_(processes), deadline_(deadline) {}

  bool any(std::int64_t, bool own) override { return processes_.any(own, deadline_); }
  std::vector<std::string> gather(std::int64_t, const std::string& bytes) override {
    return processes_.gather(bytes, deadline_);
  }
  std::string broadcast(std::int64_t, const std::string& bytes) override {
    return processes_.broadcast(bytes, deadline_);
  }
  void fail() override {}

 private:
  Processes& processes_;
  std::chrono::milliseconds deadline_;
};

}  // namespace

std::unique_ptr<Meeting> make_meeting(std::int64_t ranks, Processes* processes,
                                      std::chrono::milliseconds deadline) {
  if (processes != nullptr) return std::make_unique<ProcessMeeting>(*processes, deadline);
  return std::make_unique<ThreadMeeting>(ranks);
}

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
