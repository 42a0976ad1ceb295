// Which curve stands for a group shape, and what overlaps say between payloads.
#include "simulator/shape_curves.h"

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
  const auto estimate = curves.at(OpKind::all_reduce, Bytes(1'000), spread);
  ASSERT_TRUE(estimate);
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
  EXPECT_FALSE(measured.at(OpKind::all_gather, Bytes(1'000), lying(2, 2)));
}

TEST(ShapeCurves, InsideANodeSaysNothingOfBeyond) {
  EXPECT_FALSE(curves({point(2, 1, 1, 3)}).at(OpKind::all_reduce, Bytes(1'000), lying(2, 2)));
  EXPECT_FALSE(curves({point(2, 2, 1, 3)}).at(OpKind::all_reduce, Bytes(1'000), lying(2, 1)));
}

TEST(ShapeCurves, BetweenTwoNumbersOfNodesLogarithmsAreInterpolated) {
  const ShapeCurves measured = curves({point(2, 2, 1, 10), point(8, 8, 1, 1'000)});
  expect(measured, lying(4, 4), 100, Provenance::interpolated);
  // Beyond: as much more as 31/32 of the payload is of 7/8.
  expect(measured, lying(32, 32), 1'000 * (31.0 / 32) / (7.0 / 8), Provenance::extrapolated);
}

TEST(ShapeCurves, MoreAtOnceIsNeverFaster) {
  const ShapeCurves odd = curves({point(2, 2, 1, 50), point(2, 2, 4, 40)});
  expect(odd, lying(2, 2, 4), 50, Provenance::measured);
  expect(odd, lying(2, 2, 2), 50, Provenance::extrapolated);
  expect(odd, lying(2, 2, 8), 100, Provenance::extrapolated);
  expect(curves({point(2, 2, 4, 40)}), lying(2, 2, 1), 40, Provenance::extrapolated);
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
