// Core sharing: found by what a while of work takes, applied to all local ops.
#include <gtest/gtest.h>

#include "calibrate/measure/core_bench.h"

namespace plimsoll {
namespace {

TEST(CoreSharing, LengthensOpsAndSaysSo) {
  Calibration calibration;
  calibration.ops.resize(1);
  calibration.ops[0].time = {Seconds(2e-3), Seconds(1e-4), 7, false};
  calibration.matmuls.resize(1);
  calibration.matmuls[0].time = {Seconds(1e-3), Seconds(0), 7, false};
  calibration.collectives.resize(1);
  calibration.collectives[0].time = {Seconds(1e-3), Seconds(0), 7, false};
  const Calibration before = calibration;
  apply({2, 2, 1}, calibration);
  EXPECT_EQ(calibration, before);
  apply({4, 2, 2}, calibration);
  EXPECT_DOUBLE_EQ(calibration.ops[0].time.median.value(), 4e-3);
  EXPECT_DOUBLE_EQ(calibration.ops[0].time.spread.value(), 2e-4);
  EXPECT_DOUBLE_EQ(calibration.matmuls[0].time.median.value(), 2e-3);
  EXPECT_EQ(calibration.collectives, before.collectives);
  ASSERT_EQ(calibration.versions.size(), 1u);
  EXPECT_NE(calibration.versions[0].find("4 processes share 2 cores"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
