// Left-out errors of points whose curve is known.
#include "calibrate/describe/fit_errors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plimsoll {
namespace {

Sample took(double seconds) { return {Seconds(seconds), Seconds(0), 7, false}; }

TEST(FitErrors, OnALineOnlyTheDisturbedPointAndItsNeighboursStandOut) {
  // 1 us per KiB, and one point of twice that. Its neighbours are predicted by it and the next:
  // halfway in logs between 1 (or 16) and 8 lies sqrt(8) (or sqrt(128)).
  std::vector<OpPoint> points;
  for (const std::int64_t kib : {1, 2, 4, 8, 16}) {
    const double disturbed = kib == 4 ? 2 : 1;
    points.push_back(
        {OpKind::gelu, DType::f32, Bytes(kib << 10), 0, took(1e-6 * double(kib) * disturbed)});
  }
  const LeftOutErrors errors = left_out_errors(points);
  EXPECT_FALSE(errors.front().has_value());  // the ends of the curve
  EXPECT_FALSE(errors.back().has_value());
  EXPECT_NEAR(errors[1].value(), 2 / std::sqrt(8.0) - 1, 1e-9);
  EXPECT_NEAR(errors[2].value(), 1, 1e-9);
  EXPECT_NEAR(errors[3].value(), 8 / std::sqrt(128.0) - 1, 1e-9);
}

TEST(FitErrors, OtherKindsRowsAndRankCountsAreOtherCurves) {
  std::vector<OpPoint> ops = {
      {OpKind::gelu, DType::f32, Bytes(1 << 10), 0, took(1)},
      {OpKind::add, DType::f32, Bytes(2 << 10), 0, took(1)},
      {OpKind::gelu, DType::f32, Bytes(4 << 10), 64, took(1)},
  };
  for (const auto& error : left_out_errors(ops)) EXPECT_FALSE(error.has_value());
  std::vector<CollectivePoint> collectives = {
      {OpKind::all_reduce, 2, Bytes(1 << 10), took(1)},
      {OpKind::all_reduce, 4, Bytes(2 << 10), took(1)},
      {OpKind::all_reduce, 2, Bytes(4 << 10), took(4)},
      {OpKind::all_reduce, 2, Bytes(2 << 10), took(3)},
  };
  const LeftOutErrors errors = left_out_errors(collectives);
  EXPECT_FALSE(errors[1].has_value());
  EXPECT_NEAR(errors[3].value(), 0.5, 1e-9);  // 2 in the middle of 1 and 4, in logs
}

TEST(FitErrors, AMatmulThatTookTwiceAsLongIsFoundAndKindsAreSummedUp) {
  Calibration calibration;
  for (const std::int64_t m : {128, 256, 512, 1024}) {
    for (const std::int64_t n : {128, 256, 512, 1024}) {
      MatmulPoint point;
      point.shape = {1, m, n, 512};
      point.time = took(1e-11 * double(m * n * 512) * (m == 512 && n == 256 ? 2 : 1));
      calibration.matmuls.push_back(point);
    }
  }
  const LeftOutErrors errors = left_out_errors(calibration.matmuls, BytesPerSecond(1e12));
  std::size_t worst = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (errors[i].value() > errors[worst].value()) worst = i;
  }
  EXPECT_EQ(calibration.matmuls[worst].shape, (MatmulShape{1, 512, 256, 512}));
  EXPECT_GT(errors[worst].value(), 0.5);
  const auto kinds = fit_errors(calibration, BytesPerSecond(1e12));
  ASSERT_EQ(kinds.size(), 1u);
  EXPECT_EQ(kinds[0].what, "matmul");
  EXPECT_EQ(kinds[0].points, 16u);
  EXPECT_LE(kinds[0].median, kinds[0].worst_tenth);
}

}  // namespace
}  // namespace plimsoll
