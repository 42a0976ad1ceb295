// Timelines drawn together: whole, in order, and with every op counted.
#include "plan/timeline_detail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace plimsoll {
namespace {

/// Two ranks whose streams run ops of random length, one after another with pauses.
Timeline random_timeline(std::uint32_t seed, std::size_t ops) {
  std::mt19937 random(seed);
  Timeline timeline;
  for (std::int64_t rank : {0, 3}) {
    for (const Stream stream : {Stream::compute, Stream::data}) {
      Picoseconds at;
      for (std::size_t i = 0; i < ops; ++i) {
        Interval one;
        one.rank = rank;
        one.stream = stream;
        one.kind = stream == Stream::data ? OpKind::all_reduce
                   : random() % 2 == 0    ? OpKind::matmul
                                          : OpKind::gelu;
        one.phase = random() % 3 == 0 ? Phase::backward : Phase::forward;
        one.routine = random() % 2 == 0 ? "a" : "b";
        one.micro_batch = std::int64_t(i / 16);
        one.posted = at += Picoseconds(random() % 3 == 0 ? random() % 400 : 0);
        if (stream == Stream::data) at += Picoseconds(random() % 50);
        one.begin = at;
        one.end = at += Picoseconds(1 + (random() % 10 == 0 ? random() % 5'000 : random() % 100));
        timeline.intervals.push_back(one);
      }
    }
  }
  sort_intervals(timeline);
  return timeline;
}

using Lane = std::tuple<std::int64_t, Stream, Phase>;
std::map<Lane, std::pair<std::int64_t, Picoseconds>> sums(const Timeline& timeline) {
  std::map<Lane, std::pair<std::int64_t, Picoseconds>> sums;
  for (const Interval& one : timeline.intervals) {
    auto& [ops, time] = sums[{one.rank, one.stream, one.phase}];
    ops += one.ops;
    time += one.end - one.begin;
  }
  return sums;
}

TEST(TimelineDetail, KeepsWhatIsShortEnough) {
  Timeline timeline = random_timeline(1, 20);
  const Timeline before = timeline;
  EXPECT_EQ(draw_together(timeline, 80), Picoseconds());
  EXPECT_EQ(timeline, before);
}

TEST(TimelineDetail, DrawsTogetherWithoutLoss) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Timeline timeline = random_timeline(seed, 700);
    const Timeline before = timeline;
    const Picoseconds resolution = draw_together(timeline, 300);
    EXPECT_GT(resolution, Picoseconds());
    EXPECT_LE(timeline.intervals.size(), 300u);
    EXPECT_GT(timeline.intervals.size(), 100u);
    EXPECT_EQ(sums(timeline), sums(before));
    std::map<std::pair<std::int64_t, Stream>, Picoseconds> ends;
    for (const Interval& one : timeline.intervals) {
      EXPECT_LE(one.posted, one.begin);
      EXPECT_LE(ends[std::pair(one.rank, one.stream)], one.begin);
      ends[std::pair(one.rank, one.stream)] = one.end;
      if (one.ops > 1) {
        EXPECT_LE(one.end - one.begin, resolution);
      }
    }
    // Intervals that are longer than the resolution are unchanged.
    for (const Interval& one : before.intervals) {
      if (one.end - one.begin < resolution) continue;
      EXPECT_NE(std::find(timeline.intervals.begin(), timeline.intervals.end(), one),
                timeline.intervals.end());
    }
  }
}

TEST(TimelineDetail, HasOneIntervalPerStreamAndPhaseAtLeast) {
  Timeline timeline = random_timeline(7, 50);
  draw_together(timeline, 1);
  EXPECT_EQ(timeline.intervals.size(), sums(timeline).size());
}

TEST(TimelineDetail, SpreadsRanksFromTheFirstToTheLast) {
  Timeline timeline;
  for (std::int64_t rank = 0; rank < 64; ++rank) {
    timeline.memory.emplace_back();
    timeline.memory.back().rank = 8 * rank;
  }
  EXPECT_EQ(ranks_spread(timeline, 64).size(), 64u);
  EXPECT_EQ(ranks_spread(timeline, 4), (std::vector<std::int64_t>{0, 168, 336, 504}));
}

TEST(TimelineDetail, ThinsCurvesAndKeepsTheirPeak) {
  Timeline timeline;
  timeline.memory.resize(1);
  auto& curve = timeline.memory[0].curve;
  for (std::int64_t i = 0; i < 1'000; ++i) {
    MemoryPoint point{Picoseconds(i * i), {}};
    point.by_role[0] = Bytes(i == 617 || i == 618 ? 5'000 : 1'000 + i);
    curve.push_back(point);
  }
  const std::vector<MemoryPoint> before = curve;
  thin_curves(timeline, 40);
  EXPECT_LE(curve.size(), 40u);
  EXPECT_GT(curve.size(), 20u);
  EXPECT_NE(std::find(curve.begin(), curve.end(), before[617]), curve.end());
  EXPECT_EQ(std::find(curve.begin(), curve.end(), before[618]), curve.end());
  EXPECT_EQ(curve.back(), before.back());
  const std::vector<MemoryPoint> thinned = curve;
  thin_curves(timeline, 40);
  EXPECT_EQ(curve, thinned);
}

}  // namespace
}  // namespace plimsoll
