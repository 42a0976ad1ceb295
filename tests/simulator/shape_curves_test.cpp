// Which curve stands for a group shape, and what overlaps say between payloads.
#include "simulator/costs/shape_curves.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plimsoll {
namespace {

CollectivePoint point(std::int64_t ranks, std::int64_t nodes, std::int64_t at_once,
                      double microseconds, OpKind kind = OpKind::all_reduce) {
  return {
      kind,  ranks,   Bytes(1'000),         {Seconds(microseconds * 1e-6), Seconds(0), 7, false},
      nodes, at_once, CommunicatorKind::mpi};
}

GroupSpread lying(std::int64_t ranks, std::int64_t nodes, std::int64_t at_once = 1) {
  GroupSpread spread;
  spread.ranks = ranks;
  spread.nodes = nodes;
  spread.at_once = at_once;
  return spread;
}

ShapeCurves curves(std::initializer_list<CollectivePoint> points) {
  ShapeCurves curves;
  for (const CollectivePoint& one : points) curves.add(one);
  return curves;
}

void expect(const ShapeCurves& curves, const GroupSpread& spread, double microseconds,
            Provenance provenance) {
  const auto found = curves.at(OpKind::all_reduce, DType::f32, Bytes(1'000), spread);
  ASSERT_TRUE(found);
  const Estimate* estimate = &found->whole;
  EXPECT_NEAR(estimate->time.value() * 1e6, microseconds, microseconds * 1e-9);
  EXPECT_EQ(estimate->provenance, provenance) << to_text(estimate->provenance);
}

TEST(ShapeCurves, AMeasuredShapeIsMeasured) {
  const ShapeCurves measured =
      curves({point(2, 1, 1, 3), point(2, 2, 1, 40), point(4, 2, 1, 70), point(2, 2, 2, 80)});
  expect(measured, lying(2, 1), 3, Provenance::measured);
  expect(measured, lying(2, 2), 40, Provenance::measured);
  expect(measured, lying(4, 2), 70, Provenance::measured);
  expect(measured, lying(2, 2, 2), 80, Provenance::measured);
  EXPECT_TRUE(measured.has_contention());
  EXPECT_FALSE(measured.at(OpKind::all_gather, DType::f32, Bytes(1'000), lying(2, 2)));
}

TEST(ShapeCurves, InsideANodeSaysNothingOfBeyond) {
  const auto at = [](const ShapeCurves& curves, const GroupSpread& spread) {
    return curves.at(OpKind::all_reduce, DType::f32, Bytes(1'000), spread);
  };
  EXPECT_FALSE(at(curves({point(2, 1, 1, 3)}), lying(2, 2)));
  EXPECT_FALSE(at(curves({point(2, 2, 1, 3)}), lying(2, 1)));
}

TEST(ShapeCurves, BetweenTwoNumbersOfNodesLogarithmsAreInterpolated) {
  const ShapeCurves measured = curves({point(2, 2, 1, 10), point(8, 8, 1, 1'000)});
  expect(measured, lying(4, 4), 100, Provenance::interpolated);
  // Beyond: as much more as 31/32 of the payload is of 7/8.
  expect(measured, lying(32, 32), 1'000 * (31.0 / 32) / (7.0 / 8), Provenance::extrapolated);
}

TEST(ShapeCurves, BetweenTwoNumbersOfNodesTheWiderSpreadCounts) {
  for (const double first : {0.1, 0.2}) {
    CollectivePoint low = point(2, 2, 1, 10), high = point(8, 8, 1, 1'000);
    low.time.spread = low.time.median * first;
    high.time.spread = high.time.median * (0.3 - first);
    const auto relative = [&](std::int64_t nodes) {
      const Estimate found =
          curves({low, high})
              .at(OpKind::all_reduce, DType::f32, Bytes(1'000), lying(nodes, nodes))
              ->whole;
      return found.spread / found.time;
    };
    EXPECT_NEAR(relative(4), std::max(relative(2), relative(8)), 1e-12);
    EXPECT_NEAR(relative(2) / relative(8), first / (0.3 - first), 1e-9);
  }
}

TEST(ShapeCurves, MoreAtOnceIsNeverFaster) {
  const ShapeCurves odd = curves({point(2, 2, 1, 50), point(2, 2, 4, 40)});
  expect(odd, lying(2, 2, 4), 50, Provenance::measured);
  expect(odd, lying(2, 2, 2), 50, Provenance::interpolated);
  expect(odd, lying(2, 2, 8), 100, Provenance::extrapolated);
  expect(curves({point(2, 2, 4, 40)}), lying(2, 2, 1), 40, Provenance::extrapolated);
}

TEST(ShapeCurves, BetweenOneGroupAndAllTheirLogarithmsAreInterpolated) {
  const ShapeCurves measured = curves({point(2, 2, 1, 10), point(2, 2, 4, 40)});
  expect(measured, lying(2, 2, 2), 20, Provenance::interpolated);
}

/// 100 us of latency at 1 byte; at 1 MB a thousand more.
ShapeCurves with_latency(std::initializer_list<std::pair<std::int64_t, double>> nodes,
                         OpKind kind = OpKind::all_reduce) {
  ShapeCurves curves;
  for (const auto& [count, latency] : nodes) {
    for (const std::int64_t bytes : {1, 1'000'000}) {
      CollectivePoint one = point(count, count, 1, latency + double(bytes) * 1e-3, kind);
      one.payload = Bytes(bytes);
      curves.add(one);
    }
  }
  return curves;
}

double microseconds(const ShapeCurves& curves, OpKind kind, std::int64_t bytes,
                    const GroupSpread& spread) {
  return curves.at(kind, DType::f32, Bytes(bytes), spread)->whole.time.value() * 1e6;
}

TEST(ShapeCurves, BeyondWhatWasMeasuredLatencyAndBandwidthGrowApart) {
  const ShapeCurves one = with_latency({{2, 100}});
  const double pieces = (7.0 / 8) / (1.0 / 2);
  // A tree of 8 has three steps for the one of 2.
  EXPECT_NEAR(microseconds(one, OpKind::all_reduce, 1, lying(8, 8)), 300, 0.1);
  EXPECT_NEAR(microseconds(one, OpKind::all_reduce, 1'000'000, lying(8, 8)), 300 + 1000 * pieces,
              1);
  // A ring seven.
  const ShapeCurves gather = with_latency({{2, 100}}, OpKind::all_gather);
  EXPECT_NEAR(microseconds(gather, OpKind::all_gather, 1, lying(8, 8)), 700, 0.1);
  // As it grew before: by a half with each doubling.
  const ShapeCurves two = with_latency({{2, 100}, {4, 150}});
  EXPECT_NEAR(microseconds(two, OpKind::all_reduce, 1, lying(8, 8)), 225, 0.5);
  // Groups at once share bandwidth only.
  EXPECT_NEAR(microseconds(one, OpKind::all_reduce, 1, lying(2, 2, 8)), 100, 0.1);
  EXPECT_NEAR(microseconds(one, OpKind::all_reduce, 1'000'000, lying(2, 2, 8)), 8'100, 10);
}

TEST(ShapeCurves, WhatIsAddedUpHasAType) {
  CollectivePoint half = point(2, 2, 1, 7);
  half.dtype = DType::bf16;
  const ShapeCurves measured = curves({point(2, 2, 1, 10), half});
  const auto at = [&](const ShapeCurves& curves, DType dtype) {
    const auto found = curves.at(OpKind::all_reduce, dtype, Bytes(1'000), lying(2, 2));
    return std::pair(std::lround(found->whole.time.value() * 1e6), found->whole.provenance);
  };
  EXPECT_EQ(at(measured, DType::f32), std::pair(10L, Provenance::measured));
  EXPECT_EQ(at(measured, DType::bf16), std::pair(7L, Provenance::measured));
  EXPECT_EQ(at(measured, DType::f16), std::pair(10L, Provenance::extrapolated));
  EXPECT_EQ(at(curves({half}), DType::f32), std::pair(7L, Provenance::extrapolated));
  // An op that only moves bytes has no curve over shapes.
  const ShapeCurves gather = curves({point(2, 2, 1, 10, OpKind::all_gather)});
  EXPECT_EQ(gather.at(OpKind::all_gather, DType::bf16, Bytes(1'000), lying(2, 2))->whole.provenance,
            Provenance::measured);
}

TEST(ShapeCurves, ImportedPointsWereMeasuredElsewhere) {
  CollectivePoint imported = point(2, 2, 1, 10);
  imported.imported = ImportedFrom{"f", "2026-07-09"};
  expect(curves({imported}), lying(2, 2), 10, Provenance::interpolated);
}

TEST(ShapeCurves, AsManyRanksPerNodeAsWereMeasuredNearest) {
  const ShapeCurves measured = curves({point(2, 2, 1, 10), point(16, 2, 1, 90)});
  expect(measured, lying(4, 2), 10, Provenance::extrapolated);
  expect(measured, lying(12, 2), 90, Provenance::extrapolated);
}

OverlapPoint overlap(std::int64_t bytes, double compute, double communication, bool matmul = true) {
  OverlapPoint point;
  point.compute = matmul ? OpKind::matmul : OpKind::add;
  point.nodes = 2;
  point.payload = Bytes(bytes);
  point.compute_slowdown = compute;
  point.communication_slowdown = communication;
  return point;
}

TEST(OverlapCurves, AreInterpolatedAndNeverSpeedUp) {
  OverlapCurves overlaps;
  overlaps.add(overlap(100, 2, 8));
  overlaps.add(overlap(10'000, 0.5, 4));
  const auto at = [&](std::int64_t bytes, bool matmul = true) {
    const auto found = overlaps.at(OpKind::all_reduce, true, matmul, Bytes(bytes));
    return std::pair(found.compute, found.communication);
  };
  EXPECT_EQ(at(1), std::pair(2.0, 8.0));
  EXPECT_EQ(at(100), std::pair(2.0, 8.0));
  EXPECT_EQ(at(1'000), std::pair(1.25, 6.0));
  EXPECT_EQ(at(100'000), std::pair(1.0, 4.0));
  EXPECT_EQ(at(100, false), std::pair(2.0, 8.0));  // nothing else was measured
  overlaps.add(overlap(100, 3, 1, false));
  EXPECT_EQ(at(100, false), std::pair(3.0, 1.0));
  const auto none = overlaps.at(OpKind::send, true, true, Bytes(100));
  EXPECT_EQ(std::pair(none.compute, none.communication), std::pair(1.0, 1.0));
}

}  // namespace
}  // namespace plimsoll
