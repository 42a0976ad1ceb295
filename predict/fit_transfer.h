// Fit transfer: uses a fit of runs on one cluster for another cluster with the same device.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns the first word of a device's name that has both letters and digits: "H100" of "NVIDIA
/// H100 80GB HBM3". The result is empty where there is no such word.
std::string device_model(const std::string& name);

/// Says how the devices differ: "memory 141 GB, in the runs 85.5 GB". The text is empty for the
/// same device: one model by name, with rates and memory that agree to 1 % (documents round).
std::string device_difference(const Device& fitted, const Device& own);

/// Says how levels differ, in words that follow a level's name. The text is empty for the same
/// level. The number of devices that a level joins does not matter, since bandwidth is per device.
std::string level_difference(const FittedLevel& fitted, const Level& own);
std::string level_difference(const Level& other, const Level& own);

/// Adds a cluster that runs of a fit were on: the device and the levels, or bandwidths of known
/// levels.
void add_cluster(const Cluster& cluster, FittedCalibration& fitted);

/// Makes intervals wider by an error `open`, a logarithm, that is independent of their own.
void widen(FittedCalibration& fitted, double open);

/// A fit with the values that hold for another cluster of the same device.
struct TransferredFit {
  FittedCalibration fitted;
  /// Levels of the cluster that differ from those of the runs, with the difference. Their numbers
  /// are typical of training, or the cluster's own where no typical ones are known.
  std::vector<std::string> other_levels;
  std::size_t same_levels = 0;
  double outermost_apart = 0;  ///< |logarithm| between the bandwidths of the outermost levels
};

/// Returns the fit for a cluster. Numbers of kernels and of the host stay. Numbers of a level stay
/// where the cluster has a level with the same name, latency and bandwidth; without one, intervals
/// are wider by kOtherNetwork. Typical rates of levels leave out fits with runs of the document
/// `left_out`. Throws InputError where a number belongs neither to `cluster` nor to
/// a level that the fit names.
TransferredFit transfer(const FittedCalibration& fitted, const Cluster& cluster,
                        const Framework& framework, std::string_view left_out = "");

/// Moves the values of a fit of other people's runs, and its factors of layers, towards rates
/// typical of training. Those of levels stay: they are of the network. The host's price of an op is
/// that of the cluster and the framework: other people have other hosts for the same device. Values
/// without a typical rate move towards those of the cluster and the framework. These count as one
/// more document: a fit of one document moves half the way, one of three a quarter. Machines and
/// programs of two documents differ by about as much as those of two fits. Over 30 groups of
/// published runs that fits of other documents predict, the mean error of dense models fell
/// from 14.0 to 10.7 %, of experts from 24.5 to 22.4 %. Least squares over these groups ask for
/// three documents or more. One is taken, which follows the fit more closely. Without typical rates
/// the fit stays as it is.
void shrink(FittedCalibration& fitted, const Cluster& cluster, const Framework& framework,
            std::string_view left_out = "");

/// The error, as a logarithm, that nine in ten steps on another network stay within, beside the
/// error that the fit leaves open. It comes from the two fits of megatron-lm-2021 on A100 80 GB, on
/// networks of 100 and 200 Gbit/s. When these predict each other's runs, 18 of 18 and 50 of 65 are
/// within it.
inline constexpr double kOtherNetwork = 0.3;

}  // namespace plimsoll
