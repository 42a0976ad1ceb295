// Delays of streams: what kernels and communications that run at once lose to each other, by hand.
#include "simulator/engine/stream_engine.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace plimsoll {
namespace {

constexpr std::uint32_t kCompute = 0, kGathers = 1;

/// A hundred layers, each gathered beside the one before it: a gather of `gather`, of which compute
/// loses `lost_compute`, beside a layer of `layer`, of which gathers lose `lost_gather`. The time
/// from one layer's end to the next one's in the middle.
std::int64_t period(std::int64_t layer, std::int64_t gather, std::int64_t lost_compute,
                    std::int64_t lost_gather) {
  StreamEngine engine;
  engine.add_rank({kCompute, kGathers});
  std::vector<StreamEngine::Event> layers, gathers;
  const auto add_gather = [&] {
    std::vector<StreamEngine::Event> waits;  // no more than two layers' parameters are there
    if (layers.size() > 1) waits = {layers[layers.size() - 2]};
    engine.add_delay(kGathers, Picoseconds(lost_gather), StreamEngine::Delay::before_op);
    gathers.push_back(engine.add_op({kGathers, Picoseconds(1), Picoseconds(gather)}, waits));
    engine.add_delay(kCompute, Picoseconds(lost_compute), StreamEngine::Delay::in_op);
  };
  add_gather();
  for (std::size_t l = 0; l < 100; ++l) {
    add_gather();
    layers.push_back(
        engine.add_op({kCompute, Picoseconds(1), Picoseconds(layer)}, std::vector{gathers[l]}));
  }
  const StreamEngine::Result& run = engine.run(std::vector{Picoseconds(0)});
  return (run.fired[layers[60]] - run.fired[layers[59]]).count();
}

TEST(StreamDelays, WhatIsAlwaysBusyLosesTime) {
  // Computing 10,000 beside 4,000 of gathers, which take a tenth of what computes: 400 more.
  EXPECT_EQ(period(10'000, 4'000, 400, 0), 10'400);
  // Gathers of 10,000 beside layers of 4,000: those are through in 5,000 all the same.
  EXPECT_EQ(period(4'000, 10'000, 1'000, 0), 10'000);
  // 9,600 take 10,600 beside 10,000 of gathers.
  EXPECT_EQ(period(9'600, 10'000, 1'000, 0), 10'600);
  // The streams are swapped here.
  EXPECT_EQ(period(4'000, 10'000, 0, 400), 10'400);
  EXPECT_EQ(period(10'000, 4'000, 0, 1'000), 10'000);
}

TEST(StreamDelays, WhatWaitsForACommunicationLosesNothing) {
  // A layer of 100, an exchange of 50 that it gives and the next waits for.
  StreamEngine engine;
  engine.add_rank({kCompute, kGathers});
  const auto first = engine.add_op({kCompute, Picoseconds(1), Picoseconds(100)}, {});
  const auto exchange =
      engine.add_op({kGathers, Picoseconds(1), Picoseconds(50)}, std::vector{first});
  engine.add_delay(kCompute, Picoseconds(10), StreamEngine::Delay::in_op);
  const auto next =
      engine.add_op({kCompute, Picoseconds(1), Picoseconds(100)}, std::vector{exchange});
  const StreamEngine::Result& run = engine.run(std::vector{Picoseconds(0)});
  EXPECT_EQ(run.begin[next].count(), 151);
  EXPECT_EQ(run.fired[next].count(), 251);
}

TEST(StreamDelays, TheTimeIsTheSlowedOps) {
  StreamEngine engine;
  engine.add_rank({kCompute, kGathers});
  const auto first = engine.add_op({kCompute, Picoseconds(1), Picoseconds(100)}, {});
  engine.add_delay(kCompute, Picoseconds(4), StreamEngine::Delay::in_op);
  engine.add_delay(kCompute, Picoseconds(6), StreamEngine::Delay::in_op);
  const auto slowed = engine.add_op({kCompute, Picoseconds(1), Picoseconds(100)}, {});
  const auto after = engine.add_op({kCompute, Picoseconds(1), Picoseconds(100)}, {});
  for (const std::int64_t start : {0, 5'000}) {
    const StreamEngine::Result& run = engine.run(std::vector{Picoseconds(start)});
    EXPECT_EQ(run.fired[first].count(), start + 101);
    EXPECT_EQ(run.posted[slowed].count(), start + 101);
    EXPECT_EQ(run.begin[slowed].count(), start + 101);
    EXPECT_EQ(run.fired[slowed].count(), start + 211);
    EXPECT_EQ(run.begin[after].count(), start + 211);
    EXPECT_EQ(run.rank_end[0].count(), start + 311);
  }
}

TEST(StreamDelays, ThoseBeforeTheFirstOpCountFromTheStart) {
  StreamEngine engine;
  engine.add_rank({kCompute, kGathers});
  engine.add_delay(kCompute, Picoseconds(10), StreamEngine::Delay::in_op);
  const auto op = engine.add_op({kCompute, Picoseconds(1), Picoseconds(100)}, {});
  for (const std::int64_t start : {0, 5'000}) {
    const StreamEngine::Result& run = engine.run(std::vector{Picoseconds(start)});
    EXPECT_EQ(run.begin[op].count(), start + 1);
    EXPECT_EQ(run.fired[op].count(), start + 110);
  }
}

}  // namespace
}  // namespace plimsoll
