// Gaussian process regression over the shapes of layers.
#include "simulator/costs/layer_factors.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

/// Returns the squared distance of two shapes; 1 is the limit of close in one dimension.
double distance(const LayerShape& a, const LayerShape& b) {
  const auto apart = [](std::int64_t x, std::int64_t y, double close) {
    const double logarithm = std::log(double(x) / double(y)) / std::log(close);
    return logarithm * logarithm;
  };
  return apart(a.tokens, b.tokens, kLayerTokens) + apart(a.sequence, b.sequence, kLayerWidth) +
         apart(a.hidden, b.hidden, kLayerWidth) + apart(a.mp, b.mp, kLayerWidth) +
         (a.routed > 0 ? apart(a.routed, b.routed, kLayerWidth) : 0);
}

double shared(const LayerShape& a, const LayerShape& b) {
  if (a.operand_bytes != b.operand_bytes || (a.routed > 0) != (b.routed > 0)) return 0;
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

LayerNeighbours layer_neighbours(std::span<const LayerShape> shapes, const LayerShape& shape) {
  LayerNeighbours found{Eigen::VectorXd(std::ptrdiff_t(shapes.size())), 0};
  double variance = kSharedDeviation * kSharedDeviation + kOwnVariance;
  if (!shapes.empty()) {
    Eigen::VectorXd near(found.weights.size());
    for (std::ptrdiff_t i = 0; i < near.size(); ++i)
      near[i] = shared(shapes[std::size_t(i)], shape);
    found.weights = layer_covariance(shapes).ldlt().solve(near);
    variance -= near.dot(found.weights);
  }
  found.deviation = std::sqrt(std::max(0.0, variance));
  return found;
}

LayerFactor layer_factor(std::span<const LayerPoint> points, const LayerShape& shape) {
  const auto same = std::find_if(points.begin(), points.end(),
                                 [&](const LayerPoint& point) { return point.shape == shape; });
  if (same != points.end()) return {same->factor, same->deviation};
  std::vector<LayerShape> shapes;
  for (const LayerPoint& point : points) shapes.push_back(point.shape);
  const LayerNeighbours neighbours = layer_neighbours(shapes, shape);
  double logarithm = 0, least = 0, most = 0;
  double variance = neighbours.deviation * neighbours.deviation;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double weight = neighbours.weights[std::ptrdiff_t(i)];
    const double of_point = std::log(points[i].factor);
    logarithm += weight * of_point;
    variance += weight * points[i].deviation * weight * points[i].deviation;
    least = std::min(least, of_point);
    most = std::max(most, of_point);
  }
  return {std::exp(std::clamp(logarithm, least, most)), std::sqrt(variance)};
}

double interval90_half_width(const FittedCalibration& fitted, const LayerShape& shape,
                             bool across_nodes) {
  const RunSpread& spread = across_nodes ? fitted.across_nodes : fitted.within_node;
  const double layer = layer_factor(fitted.layers, shape).deviation;
  return std::exp(spread.interval90_deviations * std::hypot(spread.deviation, layer)) - 1;
}

}  // namespace plimsoll
