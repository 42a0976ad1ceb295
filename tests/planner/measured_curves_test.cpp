// Points of a calibration that were left out are foretold from the others of their curve.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "planner/explain/report_explanation.h"

namespace plimsoll {
namespace {

Sample timed(double seconds) { return {Seconds(seconds), Seconds(seconds * 0.02), 9, false}; }

CollectivePoint all_reduce(std::int64_t bytes, double seconds) {
  CollectivePoint point;
  point.ranks = 4;
  point.payload = Bytes(bytes);
  point.time = timed(seconds);
  return point;
}

const MeasuredCurve& curve(const MeasuredMachine& machine, const std::string& what) {
  for (const MeasuredCurve& one : machine.curves) {
    if (one.what == what) return one;
  }
  throw std::runtime_error("no curve " + what);
}

TEST(MeasuredCurves, APointBesideTheLineOfTheOthersIsForetoldOff) {
  Calibration calibration;
  calibration.device = "a core";
  // Times as the bytes, but for 4096, which takes a quarter longer; points come in any order.
  calibration.collectives = {all_reduce(16384, 16e-3), all_reduce(1024, 1e-3),
                             all_reduce(4096, 5e-3), all_reduce(2048, 2e-3),
                             all_reduce(8192, 8e-3)};
  const MeasuredMachine machine = measured_machine(calibration);
  EXPECT_EQ(machine.device, "a core");
  const MeasuredCurve& found = curve(machine, "all_reduce of 4 f32");
  EXPECT_EQ(found.points, 5);
  EXPECT_NEAR(found.spread, 0.02, 1e-12);
  // The ends are kept. Both neighbours of 4096 are foretold by a half of its error, by logarithms.
  ASSERT_EQ(found.left_out.size(), 3u);
  EXPECT_NEAR(found.left_out[0], 0.8, 1e-9);
  EXPECT_NEAR(found.left_out[1], std::sqrt(1.25), 1e-9);
  EXPECT_NEAR(found.left_out[2], std::sqrt(1.25), 1e-9);
}

TEST(MeasuredCurves, MatmulsOfOneRateForetellEachOther) {
  Calibration calibration;
  for (const std::int64_t m : {64, 256, 1024}) {
    for (const std::int64_t k : {64, 256, 1024}) {
      MatmulPoint point;
      point.shape = {1, m, 512, k};
      point.time = timed(1e-6 * double(m * k));
      calibration.matmuls.push_back(point);
    }
  }
  calibration.matmuls.push_back(calibration.matmuls.front());
  calibration.matmuls.back().transpose_b = true;
  const MeasuredMachine machine = measured_machine(calibration);
  ASSERT_EQ(machine.curves.size(), 2u);
  const MeasuredCurve& plain = curve(machine, "matmul f32");
  ASSERT_EQ(plain.left_out.size(), 9u);
  for (const double ratio : plain.left_out) EXPECT_NEAR(ratio, 1, 0.35);
  EXPECT_TRUE(curve(machine, "matmul f32, right transposed").left_out.empty());
}

TEST(MeasuredCurves, NothingMeasuredHasNoCurves) {
  EXPECT_TRUE(measured_machine(Calibration()).curves.empty());
}

}  // namespace
}  // namespace plimsoll
