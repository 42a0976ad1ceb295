// Parallel loops: every index once, the lowest failure, on any number of threads.
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/no_room_for_threads.h"

namespace plimsoll {
namespace {

TEST(Parallel, EveryIndexIsWorkedOnce) {
  for (const std::int64_t threads : {0, 1, 2, 8}) {
    std::vector<std::atomic<int>> worked(100);
    for_each_index(worked.size(), threads, [&](std::size_t i) { ++worked[i]; });
    for (const auto& times : worked) EXPECT_EQ(times, 1);
  }
}

TEST(Parallel, NoWorkIsNoWork) {
  for_each_index(0, 4, [](std::size_t) { FAIL(); });
}

TEST(Parallel, TheLowestFailureIsThrownWhenAllAreDone) {
  for (const std::int64_t threads : {1, 3}) {
    std::atomic<int> done = 0;
    try {
      for_each_index(20, threads, [&](std::size_t i) {
        ++done;
        if (i % 7 == 6) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "6");
    }
    EXPECT_EQ(done, 20);
  }
}

TEST(Parallel, WhereMemoryIsOutNoFurtherWorkBegins) {
  int begun = 0;
  const auto work = [&](std::size_t i) {
    ++begun;
    if (i == 6) throw std::bad_alloc();
  };
  EXPECT_THROW(for_each_index(20, 1, work), std::bad_alloc);
  EXPECT_EQ(begun, 7);
}

#ifndef PLIMSOLL_SANITIZED  // their runtimes end a process that gets no more memory
TEST(Parallel, WithoutThreadsTheCallerDoesAllTheWork) {
  const auto work_alone = [] {
    leave_no_room_for_threads();
    std::vector<std::atomic<int>> worked(100);
    for_each_index(worked.size(), 64, [&](std::size_t i) { ++worked[i]; });
    std::_Exit(std::ranges::all_of(worked, [](const auto& times) { return times == 1; }) ? 0 : 1);
  };
  EXPECT_EXIT(work_alone(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace plimsoll
