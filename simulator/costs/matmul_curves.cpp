// Interpolates measured matmul times over shapes.
#include "simulator/costs/matmul_curves.h"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr int kDimensions = 4;                  // batch, m, n, k
constexpr int kUnknowns = 1 + 2 * kDimensions;  // constant, slopes and curvatures
constexpr std::size_t kNeighbours = 10;         // whose range bounds the fit
using Logs = std::array<double, kDimensions>;

Logs logs(const MatmulShape& shape) {
  return {std::log2(double(shape.batch)), std::log2(double(shape.m)), std::log2(double(shape.n)),
          std::log2(double(shape.k))};
}

double squared_distance(const Logs& a, const Logs& b) {
  double sum = 0;
  for (std::size_t i = 0; i < kDimensions; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

Flops flops_of(const MatmulShape& shape) {
  return Flops(2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k));
}

struct Neighbour {
  double distance = 0;  // squared, in doublings
  Logs offset{};        // from the wanted shape
  double value = 0;     // log of measured over roofline
  double spread = 0;    // relative, of the measurement
};

/// Returns the value at offset 0 of a quadratic fit without cross terms. Points are weighted by
/// closeness (half a doubling away counts as near) and by steadiness.
double local_fit(const std::vector<Neighbour>& points) {
  using Row = Eigen::Matrix<double, kUnknowns, 1>;
  Eigen::Matrix<double, kUnknowns, kUnknowns> matrix;
  matrix.setZero();
  Row right = Row::Zero();
  for (const Neighbour& point : points) {
    const double doubt = 1 + (point.spread / 0.05) * (point.spread / 0.05);
    const double weight = 1 / (std::pow(point.distance + 0.25, 3) * doubt);
    Row row;
    row[0] = 1;
    for (int i = 0; i < kDimensions; ++i) {
      row[1 + i] = point.offset[std::size_t(i)];
      row[1 + kDimensions + i] = row[1 + i] * row[1 + i];
    }
    matrix += weight * row * row.transpose();
    right += weight * point.value * row;
  }
  // Terms that the points do not determine, as with a single batch size, are pulled to zero.
  matrix.diagonal().tail<kUnknowns - 1>().array() += 0.05 * matrix(0, 0);
  return matrix.ldlt().solve(right)[0];
}

}  // namespace

void MatmulCurves::add(const MatmulPoint& point) {
  if (!(point.time.median > Seconds(0))) return;  // has no rate
  const MatmulForm form{point.transpose_a, point.transpose_b,     point.accumulate,
                        point.bias,        point.shape.batch > 1, point.dtype};
  points_[form].push_back({point.shape, point.time});
  FlopsPerSecond& best = best_rate_[point.dtype];
  best = std::max(best, flops_of(point.shape) / point.time.median);
}

bool MatmulCurves::covers(DType dtype) const { return best_rate_.count(dtype) != 0; }

Seconds MatmulCurves::roofline(const MatmulShape& shape, const MatmulForm& form) const {
  const double a = double(shape.m) * double(shape.k), b = double(shape.k) * double(shape.n);
  const double c = double(shape.m) * double(shape.n) * (form.accumulate ? 2 : 1);
  const double bytes = double(shape.batch) * (a + b + c) * double(bytes_of(form.dtype).count());
  return flops_of(shape) / best_rate_.at(form.dtype) + Seconds(bytes / memory_bandwidth_.value());
}

const std::vector<MatmulCurves::Point>& MatmulCurves::nearest_form(const MatmulForm& form) const {
  const auto difference = [&](const MatmulForm& other) {
    return 16 * (other.dtype != form.dtype) + 8 * (other.batched != form.batched) +
           4 * (other.transpose_a != form.transpose_a) +
           4 * (other.transpose_b != form.transpose_b) + 2 * (other.accumulate != form.accumulate) +
           (other.bias != form.bias);
  };
  const auto nearest = std::min_element(
      points_.begin(), points_.end(),
      [&](const auto& a, const auto& b) { return difference(a.first) < difference(b.first); });
  return nearest->second;
}

Estimate MatmulCurves::at(const MatmulShape& shape, const MatmulForm& form) const {
  INVARIANT(covers(form.dtype), "no matmul was measured in this dtype");
  const std::vector<Point>& points = nearest_form(form);
  const bool same_form = points_.count(form) != 0;
  const Logs wanted = logs(shape);
  bool inside = same_form;
  std::vector<Neighbour> neighbours;
  double relative_spread = 0;
  for (const Point& point : points) {
    if (point.shape == shape && same_form) {
      return {point.time.median, point.time.spread * kHalfWidth90, Provenance::measured};
    }
    Neighbour neighbour;
    const Logs at = logs(point.shape);
    for (std::size_t i = 0; i < kDimensions; ++i) {
      neighbour.offset[i] = at[i] - wanted[i];
    }
    neighbour.distance = squared_distance(at, wanted);
    neighbour.value = std::log(point.time.median / roofline(point.shape, form));
    neighbour.spread = point.time.spread / point.time.median;
    relative_spread += neighbour.spread / double(points.size());
    neighbours.push_back(neighbour);
  }
  // A shape is inside where measured shapes lie on both sides of it, or at it, in every dimension.
  for (std::size_t i = 0; i < kDimensions; ++i) {
    bool below = false, above = false;
    for (const Neighbour& neighbour : neighbours) {
      below = below || neighbour.offset[i] <= 0;
      above = above || neighbour.offset[i] >= 0;
    }
    inside = inside && below && above;
  }
  const std::size_t near = std::min(kNeighbours, neighbours.size());
  std::partial_sort(neighbours.begin(), neighbours.begin() + std::ptrdiff_t(near), neighbours.end(),
                    [](const Neighbour& a, const Neighbour& b) { return a.distance < b.distance; });
  const auto by_value = [](const Neighbour& a, const Neighbour& b) { return a.value < b.value; };
  const auto [low, high] =
      std::minmax_element(neighbours.begin(), neighbours.begin() + std::ptrdiff_t(near), by_value);
  const double low_value = low->value, high_value = high->value;
  const double factor = std::clamp(local_fit(neighbours), low_value, high_value);
  // No product is faster than the fastest measured one, whose rate is the peak of such a machine.
  const Seconds time = std::max(roofline(shape, form) * std::exp(factor),
                                flops_of(shape) / best_rate_.at(form.dtype));
  const double open = std::max(relative_spread * kHalfWidth90, (high_value - low_value) / 2);
  return {time, time * open, inside ? Provenance::interpolated : Provenance::extrapolated};
}

}  // namespace plimsoll
