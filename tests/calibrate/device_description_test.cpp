// The attention of a device, described from made-up timings.
#include "calibrate/describe/device_description.h"

#include <gtest/gtest.h>

#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kUnits = 100;

/// Timings of a device of 100 multiprocessors that reaches `fraction` of 100 TFLOP/s in attention.
std::vector<AttentionTiming> timings(double fraction, Seconds fixed) {
  AttentionEfficiency efficiency;
  efficiency.peak_fraction = fraction;
  efficiency.fixed_time = fixed;
  std::vector<AttentionTiming> result;
  for (const bool backward : {false, true}) {
    for (const std::int64_t tiles : {96, 128, 512, 1024, 2048, 4096, 8192}) {
      AttentionTiming& timing = result.emplace_back();
      timing.backward = backward;
      timing.tiles = tiles;
      timing.work = Flops(1e8 * double(tiles) * (backward ? 2.5 : 1));
      timing.time =
          efficient_attention(timing.work, true, tiles, FlopsPerSecond(100e12), efficiency, kUnits)
              .time;
    }
  }
  return result;
}

Efficiency described(std::span<const AttentionTiming> timings) {
  Calibration calibration;
  calibration.matmuls.emplace_back().dtype = DType::f16;
  calibration.matmuls.back().shape = {1, 1000, 1000, 1000};
  calibration.matmuls.back().time.median = Seconds(2e9 / 100e12);  // 100 TFLOP/s
  calibration.matmuls.push_back(calibration.matmuls.back());
  calibration.matmuls.back().dtype = DType::f32;
  OpPoint& add = calibration.ops.emplace_back();
  add.kind = OpKind::add;
  add.moved = Bytes(1 << 30);
  add.time.median = Seconds(1e-3);
  DeviceFacts facts;
  facts.name = "made up";
  facts.memory = Bytes(std::int64_t{1} << 35);
  facts.multiprocessors = kUnits;
  Cluster cluster;
  describe_device(cluster, calibration, facts, DType::f16, timings);
  return *cluster.efficiency;
}

TEST(DeviceDescription, FindsTheAttentionThatTimingsWereMadeWith) {
  const Efficiency found = described(timings(0.55, Seconds(6e-6)));
  for (const AttentionEfficiency& one : {found.attention_forward, found.attention_backward}) {
    EXPECT_NEAR(one.peak_fraction, 0.55, 0.01);
    EXPECT_NEAR(one.fixed_time.value(), 6e-6, 1e-6);
    ASSERT_TRUE(one.fitted.has_value());
    EXPECT_LT(one.fitted->error, 0.01);
  }
  EXPECT_EQ(found.attention_forward.fitted->to, Flops(1e8 * 8192));
}

TEST(DeviceDescription, ATimingThatLiesFarOffMovesLittle) {
  std::vector<AttentionTiming> points = timings(0.55, Seconds(6e-6));
  points[3].time = 3.0 * points[3].time;
  EXPECT_NEAR(described(points).attention_forward.peak_fraction, 0.55, 0.03);
}

}  // namespace
}  // namespace plimsoll
