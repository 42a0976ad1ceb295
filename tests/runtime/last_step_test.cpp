// A run that is asked to stop ends behind one step on all ranks, and a second signal ends it at
// once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "command_line/interrupt.h"
#include "runtime/command/meeting.h"
#include "tests/runtime/hand_built.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"
#include "tests/runtime/thread_processes.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostSteps = 50;

// Ranks take turns at random, and a rank that has ended takes none: so nobody waits for another.
TEST(LastStepOfThreads, IsTheSameHoweverFarTheyAreApart) {
  std::mt19937 random(1);
  std::set<std::int64_t> ends;
  for (int round = 0; round < 500; ++round) {
    const std::int64_t ranks = 1 + std::int64_t(random() % 5), most = std::int64_t(random() % 400);
    std::int64_t turns = 0;
    LastStep last(
        kMostSteps, ranks, [&] { return turns > most; }, nullptr, kPatient);
    std::vector<std::int64_t> made(std::size_t(ranks), 0), going(std::size_t(ranks), 0);
    for (std::size_t rank = 0; rank < going.size(); ++rank) going[rank] = std::int64_t(rank);
    std::int64_t begun = 0;  // the furthest step that any has begun when the first is asked to stop
    while (!going.empty()) {
      const std::size_t next = random() % going.size();
      const auto rank = std::size_t(going[next]);
      ++made[rank];
      if (turns++ <= most) {
        begun = made[rank];
        for (std::size_t other = 0; other < made.size(); ++other) {
          if (other != rank) begun = std::max(begun, std::min(made[other] + 1, kMostSteps));
        }
      }
      if (last.ends(going[next], made[rank])) going.erase(going.begin() + std::ptrdiff_t(next));
    }
    for (const std::int64_t steps : made) EXPECT_EQ(steps, turns > most ? begun : kMostSteps);
    ends.insert(made[0]);
  }
  EXPECT_GT(ends.size(), 20u);
  EXPECT_TRUE(ends.contains(kMostSteps));
}

TEST(LastStepOfThreads, OfOneIsTheOneInWhichItWasAsked) {
  bool stop = false;
  LastStep last(
      kMostSteps, 1, [&] { return stop; }, nullptr, kPatient);
  EXPECT_FALSE(last.ends(0, 1));
  stop = true;
  EXPECT_TRUE(last.ends(0, 2));
}

std::set<std::int64_t> ends_of_processes(std::int64_t asked) {
  std::mutex lock;
  std::set<std::int64_t> ends;
  run_as_processes({"a", "a", "b"}, {}, [&](Processes& processes) {
    std::int64_t made = 1;
    const auto stop = [&] { return processes.index() == 1 && made >= asked; };
    LastStep last(kMostSteps, 1, stop, &processes, kPatient);
    while (!last.ends(0, made)) ++made;
    const std::lock_guard guard(lock);
    ends.insert(made);
  });
  return ends;
}

TEST(LastStepOfProcesses, IsTheOneBehindThatInWhichAnyWasAsked) {
  EXPECT_EQ(ends_of_processes(1), std::set<std::int64_t>{2});
  EXPECT_EQ(ends_of_processes(7), std::set<std::int64_t>{8});
  EXPECT_EQ(ends_of_processes(kMostSteps - 1), std::set<std::int64_t>{kMostSteps});
  EXPECT_EQ(ends_of_processes(kMostSteps), std::set<std::int64_t>{kMostSteps});
}

TEST(StoppedTraining, HasTheStepsThatAllRanksMade) {
  for (const std::string fields : {"", "mp=2", "pp=2", "dp=2,pp=2"}) {
    SCOPED_TRACE(fields);
    const auto programs = nano_programs(nano_strategy(fields, 2, Recompute::none));
    TrainOptions options;
    options.steps = kMostSteps;
    options.deadline = kPatient;
    std::atomic<std::int64_t> asked = 0;
    options.stop = [&] { return ++asked == 9; };
    std::int64_t reported = 0;
    options.progress = [&](std::int64_t, double, Seconds, double) { ++reported; };
    const TrainResult result = train_nano(programs, options);
    EXPECT_GE(result.steps, 9 / programs[0].grid.world_size());
    EXPECT_LE(result.steps, 10);
    EXPECT_EQ(reported, result.steps);
    EXPECT_TRUE(result.measured.losses.empty());
  }
}

TEST(InterruptNoticeDeathTest, ASecondSignalEndsTheProgram) {
  EXPECT_EXIT(
      {
        const InterruptNotice interrupt;
        std::raise(SIGINT);
        if (InterruptNotice::signal() != SIGINT || int(InterruptNotice::code()) != 130) _exit(1);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace plimsoll
