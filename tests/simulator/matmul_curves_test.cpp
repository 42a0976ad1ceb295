// Times of matmuls between measured shapes: against the fit that the header describes, which a
// library of linear algebra solves here, and by hand.
#include "simulator/costs/matmul_curves.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <random>

namespace plimsoll {
namespace {

constexpr BytesPerSecond kBandwidth(1e11);

double flops_of(const MatmulShape& s) {
  return 2.0 * double(s.batch) * double(s.m) * double(s.n) * double(s.k);
}
double bytes_of_operands(const MatmulShape& s) {
  return 4.0 * double(s.batch) * double(s.m * s.k + s.k * s.n + s.m * s.n);
}

MatmulPoint point(const MatmulShape& shape, double seconds, double spread = 0) {
  MatmulPoint point;
  point.shape = shape;
  point.time = {Seconds(seconds), Seconds(spread), 10};
  return point;
}

/// A point whose time is `factor` times that of its operations at 1 TFLOP/s.
MatmulPoint slower(const MatmulShape& shape, double factor, double relative_spread = 0) {
  const double seconds = factor * flops_of(shape) / 1e12;
  return point(shape, seconds, relative_spread * seconds);
}

Eigen::Array4d logs(const MatmulShape& s) {
  return Eigen::Array4d(double(s.batch), double(s.m), double(s.n), double(s.k)).log() /
         std::log(2.0);
}

struct Expected {
  double seconds, open;
};

/// The fit of the header, at a shape.
Expected expected_at(const std::vector<MatmulPoint>& points, const MatmulShape& shape) {
  double best = 0;
  for (const MatmulPoint& one : points)
    best = std::max(best, flops_of(one.shape) / one.time.median.value());
  const auto roofline = [&](const MatmulShape& s) {
    return flops_of(s) / best + bytes_of_operands(s) / kBandwidth.value();
  };
  const Eigen::Index count = Eigen::Index(points.size());
  Eigen::MatrixXd rows(count, 9);
  Eigen::VectorXd values(count), weights(count);
  std::vector<std::pair<double, double>> near;  // distance and value
  double spread = 0;
  for (Eigen::Index i = 0; i < count; ++i) {
    const MatmulPoint& one = points[std::size_t(i)];
    const Eigen::Array4d offset = logs(one.shape) - logs(shape);
    const double relative = one.time.spread.value() / one.time.median.value();
    rows.row(i) << 1, offset.transpose(), offset.square().transpose();
    values(i) = std::log(one.time.median.value() / roofline(one.shape));
    const double distance = offset.square().sum();
    weights(i) = 1 / std::pow(distance + 0.25, 3) / (1 + std::pow(relative / 0.05, 2));
    near.emplace_back(distance, values(i));
    spread += relative / double(count);
  }
  Eigen::MatrixXd matrix = rows.transpose() * weights.asDiagonal() * rows;
  const double ridge = 0.05 * matrix(0, 0);
  for (Eigen::Index i = 1; i < 9; ++i) matrix(i, i) += ridge;
  const Eigen::VectorXd right = rows.transpose() * weights.asDiagonal() * values;
  const double fitted = matrix.ldlt().solve(right)(0);
  std::sort(near.begin(), near.end());
  near.resize(std::min<std::size_t>(near.size(), 10));
  double low = near[0].second, high = low;
  for (const auto& [distance, value] : near)
    low = std::min(low, value), high = std::max(high, value);
  return {
      std::max(roofline(shape) * std::exp(std::clamp(fitted, low, high)), flops_of(shape) / best),
      std::max(spread * kHalfWidth90, (high - low) / 2)};
}

TEST(MatmulCurves, AreTheFitThatIsDescribed) {
  std::mt19937 random(11);
  const auto size = [&](std::int64_t most) { return std::int64_t{16} << random() % most; };
  for (int draw = 0; draw < 50; ++draw) {
    MatmulCurves curves(kBandwidth);
    std::vector<MatmulPoint> points;
    for (int i = 0; i < 8 + draw; ++i) {
      const MatmulShape shape{1, size(7), size(7), size(7)};
      const bool there = std::any_of(points.begin(), points.end(),
                                     [&](const MatmulPoint& one) { return one.shape == shape; });
      if (there) continue;
      const double factor = 1 + 8.0 / std::sqrt(double(shape.k)) + double(random() % 100) / 200;
      points.push_back(slower(shape, factor, double(random() % 20) / 100));
      curves.add(points.back());
    }
    const MatmulShape wanted{1, size(7) + 3, size(7) + 5, size(7) + 7};
    const Expected expected = expected_at(points, wanted);
    const Estimate found = curves.at(wanted, {});
    EXPECT_NEAR(found.time.value() / expected.seconds, 1, 1e-9) << draw;
    EXPECT_NEAR(found.spread / found.time, expected.open, 1e-9) << draw;
  }
}

TEST(MatmulCurves, AMeasuredShapeHasItsMeasuredTime) {
  MatmulCurves curves(kBandwidth);
  curves.add(point({1, 64, 64, 64}, 1e-5, 1e-6));
  curves.add(point({1, 128, 64, 64}, 3e-5, 1e-6));
  curves.add(point({1, 32, 64, 64}, 0));  // has no rate
  const Estimate found = curves.at({1, 128, 64, 64}, {});
  EXPECT_EQ(found.time, Seconds(3e-5));
  EXPECT_DOUBLE_EQ(found.spread.value(), 1e-6 * kHalfWidth90);
  EXPECT_EQ(found.provenance, Provenance::measured);
  EXPECT_EQ(curves.at({1, 96, 64, 64}, {}).provenance, Provenance::interpolated);
  EXPECT_EQ(curves.at({1, 32, 64, 64}, {}).provenance, Provenance::extrapolated);
  EXPECT_EQ(curves.at({1, 256, 64, 64}, {}).provenance, Provenance::extrapolated);
  EXPECT_EQ(curves.at({1, 128, 64, 64}, {.bias = true}).provenance, Provenance::extrapolated);
  EXPECT_TRUE(curves.covers(DType::f32));
  EXPECT_FALSE(curves.covers(DType::bf16));
}

TEST(MatmulCurves, NothingIsFasterThanTheFastestMeasuredProduct) {
  MatmulCurves curves(kBandwidth);
  curves.add(slower({1, 16, 16, 16}, 1));  // half of its roofline is memory's, a large one's is not
  const MatmulShape large{1, 4096, 4096, 4096};
  EXPECT_DOUBLE_EQ(curves.at(large, {}).time.value(), flops_of(large) / 1e12);
}

/// The time of a form that was not measured, by two forms that were, in units of the first one's.
double between(const MatmulForm& wanted, const MatmulForm& one, const MatmulForm& other) {
  MatmulCurves curves(BytesPerSecond(1e30));
  for (const auto& [form, factor] : {std::pair(one, 1.0), std::pair(other, 4.0)}) {
    MatmulPoint measured = slower({form.batched ? 2 : 1, 64, 64, 64}, factor);
    measured.transpose_a = form.transpose_a;
    measured.transpose_b = form.transpose_b;
    measured.accumulate = form.accumulate;
    measured.bias = form.bias;
    measured.dtype = form.dtype;
    curves.add(measured);
  }
  const MatmulShape shape{wanted.batched ? 2 : 1, 64, 64, 64};
  return curves.at(shape, wanted).time.value() * 1e12 / flops_of(shape);
}

TEST(MatmulCurves, AnUnmeasuredFormHasTheTimesOfTheNearestOne) {
  const MatmulForm plain, bias{.bias = true}, sums{.accumulate = true}, left{.transpose_a = true},
      right{.transpose_b = true}, batched{.batched = true};
  const MatmulForm both{.accumulate = true, .bias = true};
  // The wanted form has both: the one that differs in less is nearest.
  EXPECT_NEAR(between(both, sums, bias), 1, 1e-9);
  EXPECT_NEAR(between(both, bias, sums), 4, 1e-9);
  EXPECT_NEAR(between({.transpose_a = true, .accumulate = true}, left, sums), 1, 1e-9);
  EXPECT_NEAR(between({.transpose_b = true, .accumulate = true}, right, sums), 1, 1e-9);
  EXPECT_NEAR(between({.transpose_b = true, .bias = true}, right, bias), 1, 1e-9);
  EXPECT_NEAR(between({.transpose_a = true, .batched = true}, batched, left), 1, 1e-9);
  EXPECT_NEAR(between({.transpose_a = true, .batched = true}, left, batched), 4, 1e-9);
  EXPECT_NEAR(between({.transpose_a = true}, both, right), 1, 1e-9);  // 4 + 2 + 1 against 4 + 4
  EXPECT_NEAR(between({.transpose_b = true}, both, left), 1, 1e-9);
  EXPECT_NEAR(between(plain, both, batched), 1, 1e-9);
  EXPECT_NEAR(between(plain, bias, sums), 1, 1e-9);
  // Another type differs more than all but everything else together.
  const MatmulForm all{.transpose_a = true, .accumulate = true, .bias = true, .batched = true};
  MatmulForm half = plain;
  half.dtype = DType::bf16;
  EXPECT_NEAR(between(plain, all, half), 1, 1e-9);
}

}  // namespace
}  // namespace plimsoll
