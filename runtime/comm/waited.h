// Waited: how long a loop has waited, for loops that poll, and for those that give up at a
// deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plimsoll {

/// Adds up the time between looks. Where a process is stopped as a whole, as by Ctrl-Z or with a
/// suspended Slurm job, all its ranks are, and none of them is to blame for that time. So no more
/// than kMostBetweenLooks counts between two looks. A loop must look more often than that, or it
/// gives up too late.
class Waited {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMostBetweenLooks{500};

  /// Looks at the clock. Returns the sum.
  Clock::duration so_far() {
    const Clock::time_point now = Clock::now();
    sum_ += std::min<Clock::duration>(now - last_, kMostBetweenLooks);
    last_ = now;
    return sum_;
  }

 private:
  Clock::time_point last_ = Clock::now();
  Clock::duration sum_{};
};

/// Waits for `over`, which is called under the lock. Returns false at the deadline.
template <class Over>
bool wait_within(std::condition_variable& woken, std::unique_lock<std::mutex>& guard,
                 std::chrono::milliseconds deadline, Over over) {
  constexpr std::chrono::milliseconds kLook{100};
  Waited waited;
  for (Waited::Clock::duration sum{}; sum < deadline; sum = waited.so_far()) {
    if (woken.wait_for(guard, std::min<Waited::Clock::duration>(deadline - sum, kLook), over))
      return true;
  }
  return over();
}

/// Tells the core that this loop polls.
inline void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace plimsoll
