// Waits end at their deadline, which a process that is stopped does not come nearer to.
#include "runtime/comm/waited.h"

#include <gtest/gtest.h>

#include <thread>

namespace plimsoll {
namespace {

using std::chrono::milliseconds;

TEST(Waited, TimeWithoutALookCountsUpToALimit) {
  Waited waited;
  // A process that is stopped for so long looks at its clock as late.
  std::this_thread::sleep_for(2 * Waited::kMostBetweenLooks);
  EXPECT_EQ(waited.so_far(), Waited::kMostBetweenLooks);
}

TEST(Waited, LooksAddUp) {
  Waited waited;
  Waited::Clock::duration before{};
  for (int look = 0; look < 3; ++look) {
    std::this_thread::sleep_for(milliseconds(2));
    const auto sum = waited.so_far();
    EXPECT_GE(sum, before + milliseconds(2));
    before = sum;
  }
}

TEST(WaitWithin, EndsAtTheDeadlineAndNotBefore) {
  std::mutex lock;
  std::condition_variable woken;
  std::unique_lock guard(lock);
  const auto begin = Waited::Clock::now();
  EXPECT_FALSE(wait_within(woken, guard, milliseconds(250), [] { return false; }));
  EXPECT_GE(Waited::Clock::now() - begin, milliseconds(250));
}

TEST(WaitWithin, EndsWhereWhatIsWaitedForComes) {
  std::mutex lock;
  std::condition_variable woken;
  bool over = false;
  std::unique_lock guard(lock);
  std::thread other([&] {
    const std::lock_guard other_guard(lock);
    over = true;
    woken.notify_all();
  });
  EXPECT_TRUE(wait_within(woken, guard, std::chrono::hours(1), [&] { return over; }));
  guard.unlock();
  other.join();
}

}  // namespace
}  // namespace plimsoll
