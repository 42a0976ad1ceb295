// Measured times over bytes: at points, between them, and beyond both ends.
#include "simulator/costs/size_curve.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Sample sample(double seconds) { return {Seconds(seconds), Seconds(seconds / 10), 7, false}; }

TEST(SizeCurve, BelowTheSmallestOnlyTheLatencyStays) {
  SizeCurve slow;  // bandwidth alone: an op that takes long for its bytes
  slow.add(Bytes(1 << 20), sample(0.046));
  slow.add(Bytes(1 << 22), sample(0.184));
  EXPECT_NEAR(slow.at(Bytes(1 << 10)).time.value(), 0.046 / 1024, 1e-12);
  EXPECT_EQ(slow.at(Bytes(1 << 10)).provenance, Provenance::extrapolated);
  EXPECT_LT(slow.at(Bytes(1 << 10)).spread, slow.at(Bytes(1 << 10)).time);

  SizeCurve launched;  // 10 us, and 1 us per MiB
  launched.add(Bytes(1 << 20), sample(11e-6));
  launched.add(Bytes(1 << 30), sample(1034e-6));
  EXPECT_NEAR(launched.at(Bytes(0)).time.value(), 10e-6, 0.02e-6);
  EXPECT_NEAR(launched.at(Bytes(1 << 19)).time.value(), 10.5e-6, 0.02e-6);
}

TEST(SizeCurve, OnePointTellsNoLatency) {
  SizeCurve one;
  one.add(Bytes(1 << 20), sample(5e-6));
  EXPECT_EQ(one.at(Bytes(1)).time, Seconds(5e-6));
  EXPECT_NEAR(one.at(Bytes(1 << 22)).time.value(), 20e-6, 1e-15);
}

TEST(SizeCurve, BetweenTwoPointsByLogarithms) {
  SizeCurve curve;
  curve.add(Bytes(100), sample(1.0));
  curve.add(Bytes(10000), sample(4.0));
  EXPECT_NEAR(curve.at(Bytes(1000)).time.value(), 2.0, 1e-12);
  EXPECT_EQ(curve.at(Bytes(1000)).provenance, Provenance::interpolated);
  EXPECT_EQ(curve.at(Bytes(100)).provenance, Provenance::measured);
}

}  // namespace
}  // namespace plimsoll
