// Parallel loops: every index once, the lowest failure, on any number of threads.
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace plimsoll
