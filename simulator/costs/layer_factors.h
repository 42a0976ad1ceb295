// Layer factors: how far the layers of a shape are off what the cost model's other numbers give.
#pragma once

#include <Eigen/Dense>
#include <span>

#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// A factor of time, relative to the prediction without it.
struct LayerFactor {
  double factor = 1;
  double deviation = 0;  ///< standard deviation of its logarithm
};

/// Standard deviations of the logarithm of a factor that nothing is known of: a part that shapes
/// close to each other share (tiles, caches), and a part that each shape has to itself (which
/// kernel a library picked); close: kLayerTokens times the tokens, kLayerWidth times the others,
/// operands of the same width (others have other kernels).
/// Chosen among seven pairs by the errors of runs left out of fits (docs/accuracy.md).
inline constexpr double kSharedDeviation = 0.06, kOwnDeviation = 0.03;
inline constexpr double kLayerTokens = 4, kLayerWidth = 2;

/// Covariances of the logarithms before any run was seen. (Gaussian process regression with a
/// squared-exponential kernel and a white one: Rasmussen and Williams, Gaussian Processes for
/// Machine Learning, 2006, sections 2.2 and 4.2.)
Eigen::MatrixXd layer_covariance(std::span<const LayerShape> shapes);

/// How the logarithm of a shape's factor follows from those of others, before any run was seen.
struct LayerNeighbours {
  Eigen::VectorXd weights;  ///< of the others' logarithms
  double deviation = 0;     ///< of what they leave open
};
LayerNeighbours layer_neighbours(std::span<const LayerShape> shapes, const LayerShape& shape);

/// The factor of a shape: that of the point with this shape, else drawn from those close to it
/// towards 1, the less sure the farther they are. Kept within the range of the points and 1.
/// Without points: 1, as sure as layer_covariance() says.
LayerFactor layer_factor(std::span<const LayerPoint> points, const LayerShape& shape);

/// Relative half width of the 90 % interval of a step time with layers of this shape, on ranks of
/// one node or of several: as wide as runs left out of the fit needed.
double interval90_half_width(const FittedCalibration& fitted, const LayerShape& shape,
                             bool across_nodes);

}  // namespace plimsoll
