// Fit transfer: what was fitted on the runs of one cluster, for another cluster of the same device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// The first word of a device's name that is letters and digits, as "H100" of "NVIDIA H100 80GB
/// HBM3"; empty: there is none.
std::string device_model(const std::string& name);

/// How the devices differ: "memory 141 GB, in the runs 85.5 GB". Empty: they are the same, of
/// one model by name, with rates and memory that agree to 1 % (documents round).
std::string device_difference(const Device& fitted, const Device& own);

/// How levels differ, in words after a level's name. Empty: they are the same. How many devices a
/// level joins is no part of it: bandwidth is per device.
std::string level_difference(const FittedLevel& fitted, const Level& own);
std::string level_difference(const Level& other, const Level& own);

/// Adds a cluster that runs of a fit were on: its device and levels, or its bandwidths to theirs.
void add_cluster(const Cluster& cluster, FittedCalibration& fitted);

/// Intervals wider by `open`, a logarithm that is off independently of what they hold already.
void widen(FittedCalibration& fitted, double open);

/// A fit as it holds for a cluster of its device.
struct TransferredFit {
  FittedCalibration fitted;
  /// Levels of the cluster that differ from those of the runs, and in what. Their numbers are those
  /// that are typical of training, where there are such, else the cluster's own.
  std::vector<std::string> other_levels;
  std::size_t same_levels = 0;
  double outermost_apart = 0;  ///< |logarithm| between the bandwidths of the outermost levels
};

/// Numbers of kernels and of the host stand; numbers of a level where the cluster has a level with
/// the same name, latency and bandwidth. Where it has not, intervals are wider by kOtherNetwork.
/// Throws InputError where a number is neither of `cluster` nor of a level that the fit names.
TransferredFit transfer(const FittedCalibration& fitted, const Cluster& cluster,
                        const Framework& framework);

/// Logarithm of what nine in ten steps on a network that the runs were not on stay within, beside
/// what the fit leaves open. The two fits of megatron-lm-2021 on A100 80 GB, of networks of 100 and
/// 200 Gbit/s, predict each other's runs so that with it 18 of 18 and 50 of 65 are within.
inline constexpr double kOtherNetwork = 0.3;

}  // namespace plimsoll
