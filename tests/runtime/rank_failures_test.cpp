// Any one of two to eight ranks throws, hangs or is late: the run ends and names that rank, or goes
// on. Nothing here depends on the speed of the machine.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "runtime/command/train.h"
#include "runtime/communicator.h"
#include "tests/runtime/hand_built.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;

struct Failing {
  std::int64_t ranks = 0, bad = 0;
};

std::vector<Failing> every_rank() {
  std::vector<Failing> all;
  for (std::int64_t ranks = 2; ranks <= 8; ++ranks) {
    for (std::int64_t bad = 0; bad < ranks; ++bad) all.push_back({ranks, bad});
  }
  return all;
}

class EveryRank : public testing::TestWithParam<Failing> {};

INSTANTIATE_TEST_SUITE_P(Failures, EveryRank, testing::ValuesIn(every_rank()),
                         [](const testing::TestParamInfo<Failing>& info) {
                           return std::to_string(info.param.bad) + "Of" +
                                  std::to_string(info.param.ranks);
                         });

/// Trains with a sequence on each rank. Rank `bad` calls `what` before the first matmul of step 3.
TrainResult train_with(const Failing& failing, const std::function<void()>& what) {
  Job job = nano_job();
  job.global_batch = failing.ranks;
  Strategy strategy = nano_strategy("dp=" + std::to_string(failing.ranks), 1, Recompute::none);
  strategy.micro_batch = 1;
  TrainOptions options = steps_of(4);
  const auto called = std::make_shared<std::atomic<bool>>(false);
  options.backend_of_rank = [=](std::int64_t rank) {
    if (rank != failing.bad) return make_backend("cpu");
    return make_watched_backend([=](const Op& op, const RunPosition& position) {
      if (op.kind == OpKind::matmul && position.step == 2 && !called->exchange(true)) what();
    });
  };
  return train_nano(nano_programs(strategy, job), options, job);
}

TEST_P(EveryRank, ThatThrowsEndsTheRunAndIsNamed) {
  try {
    train_with(GetParam(), [] { throw std::runtime_error("the matmul is tired"); });
    FAIL() << "a rank threw";
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    const std::string start =
        "rank " + std::to_string(GetParam().bad) + " failed in step 3, routine ";
    EXPECT_EQ(message.substr(0, start.size()), start) << message;
    EXPECT_NE(message.find(": the matmul is tired"), std::string::npos) << message;
  }
}

TEST_P(EveryRank, ThatIsLateDoesNotEndTheRun) {
  const TrainResult result =
      train_with(GetParam(), [] { std::this_thread::sleep_for(milliseconds(20)); });
  EXPECT_EQ(result.steps, 4);
}

// No deadline passes before all ranks but one have posted, so the message is always the same.
TEST_P(EveryRank, ThatHangsIsNamedWithTheLastPostsOfAll) {
  const auto [ranks, bad] = GetParam();
  Grid grid;
  grid.degree[std::size_t(Axis::dp)] = ranks;
  auto handles = make_local_communicators(grid, milliseconds(30), std::chrono::steady_clock::now());
  std::barrier<> all(ranks), others(ranks - 1);
  std::latch others_ended(ranks - 1);
  std::vector<std::string> failures(handles.size());
  std::atomic<int> expired = 0;
  const auto run = [&, bad = bad](std::int64_t rank) {
    Communicator& communicator = *handles[std::size_t(rank)];
    float value = 1;
    const auto post = [&](std::int64_t step) {
      return communicator.post_collective(OpKind::all_reduce, {{{Axis::dp}}},
                                          {DType::f32, 1, reinterpret_cast<std::byte*>(&value)},
                                          {step, "test", 0});
    };
    const auto first = post(0);
    all.arrive_and_wait();
    communicator.wait(first);
    if (rank == bad) others_ended.wait();
    try {
      const auto second = post(1);
      others.arrive_and_wait();
      communicator.wait(second);
    } catch (const RankFailure& failure) {
      failures[std::size_t(rank)] = failure.what();
    } catch (const EnvironmentError& error) {
      failures[std::size_t(rank)] = error.what();
      ++expired;
    }
    if (rank != bad) others_ended.count_down();
  };
  std::vector<std::jthread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  threads.clear();
  EXPECT_EQ(expired, 1);
  const std::string op = "all_reduce of 1 f32 elements over group dp", who = std::to_string(bad);
  for (const std::string& failure : failures) {
    EXPECT_EQ(failure, failures[0]);
    EXPECT_NE(failure.find(" waited longer than the deadline of 0.03 s in step 2, routine test, "
                           "for " +
                           op + ", its post 2: rank " + who + " has not posted it ("),
              std::string::npos)
        << failure;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::string last = rank == bad ? ", step 1, post 1: " : ", step 2, post 2: ";
      const auto at = failure.find("rank " + std::to_string(rank) + ": ");
      ASSERT_NE(at, std::string::npos) << failure;
      EXPECT_EQ(failure.substr(failure.find(", step", at), last.size() + op.size()), last + op)
          << failure;
    }
    EXPECT_NE(failure.find("rank " + who + ": computes, "), std::string::npos) << failure;
  }
}

}  // namespace
}  // namespace plimsoll
