// Layer factors: the time of layers of a shape relative to the cost model's time without the
// factor.
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

/// Standard deviations of the logarithm of a factor before any run was seen. One part is shared by
/// shapes that are close to each other (tiles, caches); one part belongs to each shape alone (which
/// kernel a library picked). Shapes are close within kLayerTokens times the tokens and kLayerWidth
/// times each width, if their operands have the same number of bits. The values were chosen among
/// seven pairs by the errors of runs left out of fits (docs/how-it-works/calibrations.md).
inline constexpr double kSharedDeviation = 0.06, kOwnDeviation = 0.03;
inline constexpr double kLayerTokens = 4, kLayerWidth = 2;

/// Returns the covariances of the logarithms before any run was seen. (Gaussian process regression
/// with a squared-exponential kernel and a white one: Rasmussen and Williams, Gaussian Processes
/// for Machine Learning, 2006, sections 2.2 and 4.2.)
Eigen::MatrixXd layer_covariance(std::span<const LayerShape> shapes);

/// How the logarithm of a shape's factor follows from the logarithms of other shapes.
struct LayerNeighbours {
  Eigen::VectorXd weights;  ///< of the other shapes' logarithms
  double deviation = 0;     ///< of the logarithm, once the others are known
};
LayerNeighbours layer_neighbours(std::span<const LayerShape> shapes, const LayerShape& shape);

/// Returns the factor of a shape. A point with this shape gives it; else close points do, and the
/// farther they are the nearer the factor is to 1, and the larger its deviation. The factor stays
/// within the range of the points and 1. Without points it is 1.
LayerFactor layer_factor(std::span<const LayerPoint> points, const LayerShape& shape);

/// Returns the relative half width of the 90 % interval of a step time with layers of this shape,
/// on one node or on several. It is as wide as runs left out of the fit needed.
double interval90_half_width(const FittedCalibration& fitted, const LayerShape& shape,
                             bool across_nodes);

}  // namespace plimsoll
