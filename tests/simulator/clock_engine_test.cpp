// The engines give, to the picosecond, the times of a simulator that is written in another way:
// one that looks at everything at every picosecond (clock_engine.h).
#include "tests/simulator/clock_engine.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/draws.h"
#include "tests/simulator/run_engine.h"

namespace plimsoll {
namespace {

struct DrawnRun {
  std::vector<std::vector<TimedOp>> ranks;
  std::vector<Picoseconds> starts;
  WakeUpCost wake_up;
  std::vector<MutualSlowdown> slowdowns;
};

/// Draws small whole numbers, so that much happens at the same instant.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}

  DrawnRun run(Execution execution) {
    DrawnRun drawn;
    const std::size_t ranks = 1 + below(4), steps = 5 + below(40);
    step_ = 1 + below(5);
    streams_ = 1 + below(4);
    with_links_ = below(2) == 0;
    drawn.ranks.resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) drawn.starts.push_back(time(3));
    drawn.wake_up = {time(3), time(4)};
    for (std::size_t i = 0; i < 3; ++i) drawn.slowdowns.push_back(slowdown());
    // All ranks issue in the order of the steps, so that none waits for a later one.
    for (std::size_t s = 0; s < steps; ++s) {
      if (below(2) == 0) {
        add(drawn.ranks[below(ranks)], execution, std::nullopt);
        continue;
      }
      const std::size_t first = below(ranks), count = 1 + below(ranks);
      for (std::size_t k = 0; k < count; ++k) add(drawn.ranks[(first + k) % ranks], execution, s);
    }
    return drawn;
  }

 private:
  std::uint32_t below(std::size_t end) { return std::uint32_t(random_() % end); }
  Picoseconds time(std::size_t end) { return Picoseconds(below(end) * step_); }

  MutualSlowdown slowdown() {
    MutualSlowdown drawn;
    for (std::size_t work = 0; work < kLocalWorks; ++work) {
      drawn.communication[work] = kFullSpeed / (1 + below(4));
      drawn.compute[work] = kFullSpeed / (1 + below(3));
    }
    drawn.latency = time(3);
    drawn.sends = below(2) == 0;
    drawn.receives = below(2) == 0;
    return drawn;
  }

  std::vector<std::uint32_t> earlier(std::size_t ops, std::size_t most) {
    std::vector<std::uint32_t> waits;
    for (std::size_t i = below(most + 1); i > 0 && ops > 0; --i) waits.push_back(below(ops));
    return waits;
  }

  void add(std::vector<TimedOp>& rank, Execution execution, std::optional<std::uint64_t> number) {
    TimedOp op;
    op.stream = below(streams_);
    op.dispatch = Picoseconds(1) + time(2);
    op.duration = time(8);
    op.rendezvous = number;
    op.waits = earlier(rank.size(), 2);
    op.work = LocalWork(below(2));
    op.slowdown = below(3);
    if (execution == Execution::streams) {
      if (below(6) == 0) op.host_waits = earlier(rank.size(), 2);
      op.host_wait = time(3);
      if (with_links_ && below(2) == 0) op.link_use = {below(8), time(3)};
    }
    rank.push_back(op);
  }

  std::mt19937 random_;
  std::size_t step_ = 1, streams_ = 1;
  bool with_links_ = false;
};

void expect_as_by_the_clock(Execution execution) {
  const Draws draws = wanted_draws({.count = 1000});
  for (std::int64_t seed = draws.first; seed < draws.first + draws.count; ++seed) {
    const DrawnRun drawn = Draw(std::uint32_t(seed)).run(execution);
    const EngineResult expected =
        run_by_the_clock(drawn.ranks, execution, drawn.starts, drawn.wake_up, drawn.slowdowns);
    const EngineResult found =
        run_engine(drawn.ranks, execution, drawn.starts, drawn.wake_up, drawn.slowdowns);
    for (std::size_t rank = 0; rank < drawn.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < drawn.ranks[rank].size(); ++i) {
        const OpTimes &is = found.times[rank][i], &should = expected.times[rank][i];
        const auto where = [&] {
          return ::testing::Message() << "seed " << seed << ", rank " << rank << ", op " << i;
        };
        ASSERT_EQ(is.posted, should.posted) << where();
        ASSERT_EQ(is.begin, should.begin) << where();
        ASSERT_EQ(is.end, should.end) << where();
      }
    }
    ASSERT_EQ(found.host_end, expected.host_end) << "seed " << seed;
    ASSERT_EQ(found.rank_end, expected.rank_end) << "seed " << seed;
  }
}

TEST(ClockEngine, StreamsAreAsTheyAreByTheClock) { expect_as_by_the_clock(Execution::streams); }
TEST(ClockEngine, ThreadsAreAsTheyAreByTheClock) { expect_as_by_the_clock(Execution::threads); }
TEST(ClockEngine, ProcessesAreAsTheyAreByTheClock) { expect_as_by_the_clock(Execution::processes); }

}  // namespace
}  // namespace plimsoll
