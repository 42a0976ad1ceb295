#include "simulator/layer_factors.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

/// Squared distance, in units of what counts as close.
double distance(const LayerShape& a, const LayerShape& b) {
  const auto apart = [](std::int64_t x, std::int64_t y, double close) {
    const double logarithm = std::log(double(x) / double(y)) / std::log(close);
    return logarithm * logarithm;
  };
  return apart(a.tokens, b.tokens, kLayerTokens) + apart(a.sequence, b.sequence, kLayerWidth) +
         apart(a.hidden, b.hidden, kLayerWidth) + apart(a.mp, b.mp, kLayerWidth);
}

double shared(const LayerShape& a, const LayerShape& b) {
  return kSharedDeviation * kSharedDeviation * std::exp(-distance(a, b) / 2);
}

constexpr double kOwnVariance = kOwnDeviation * kOwnDeviation;

}  // namespace

Eigen::MatrixXd layer_covariance(std::span<const LayerShape> shapes) {
  const auto n = std::ptrdiff_t(shapes.size());
  Eigen::MatrixXd result(n, n);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    for (std::ptrdiff_t j = 0; j < n; ++j) {
      result(i, j) = shared(shapes[std::size_t(i)], shapes[std::size_t(j)]);
    }
    result(i, i) += kOwnVariance;
  }
  return result;
}

LayerFactor layer_factor(std::span<const LayerPoint> points, const LayerShape& shape) {
  if (points.empty()) return {};
  const auto same = std::find_if(points.begin(), points.end(),
                                 [&](const LayerPoint& point) { return point.shape == shape; });
  if (same != points.end()) return {same->factor, same->deviation};
  std::vector<LayerShape> shapes;
  const auto n = std::ptrdiff_t(points.size());
  Eigen::VectorXd near(n), logarithms(n);
  double least = 0, most = 0;
  for (const LayerPoint& point : points) {
    const auto i = std::ptrdiff_t(shapes.size());
    shapes.push_back(point.shape);
    near[i] = shared(point.shape, shape);
    logarithms[i] = std::log(point.factor);
    least = std::min(least, logarithms[i]);
    most = std::max(most, logarithms[i]);
  }
  const Eigen::VectorXd weights = layer_covariance(shapes).ldlt().solve(near);
  double variance = kSharedDeviation * kSharedDeviation + kOwnVariance - near.dot(weights);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const double of_point = weights[i] * points[std::size_t(i)].deviation;
    variance += of_point * of_point;
  }
  return {std::exp(std::clamp(weights.dot(logarithms), least, most)),
          std::sqrt(std::max(0.0, variance))};
}

double least_layer_factor(std::span<const LayerPoint> points) {
  double least = 1;
  for (const LayerPoint& point : points) least = std::min(least, point.factor);
  return least;
}

double interval90_half_width(const FittedCalibration& fitted, const LayerShape& shape) {
  const double layer = layer_factor(fitted.layers, shape).deviation;
  return std::exp(fitted.interval90_deviations * std::hypot(fitted.run_deviation, layer)) - 1;
}

}  // namespace plimsoll
