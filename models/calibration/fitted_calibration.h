// Fitted calibration: a few numbers of a cluster and of a framework, found from published runs or
// from measured runs, with what is known of their errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// One number that a fit may move. What each means stands at its field:
/// models/cluster/efficiency.h, models/framework/framework.h.
struct FitParameter {
  std::string name;  ///< "matmul.peak_fraction", "levels.0.fixed_time", "dispatch_op"
  /// The prior's standard deviation of the logarithm: how far a datasheet or another machine's
  /// value may be off.
  double spread = 0;
  double least = 0, most = 0;
  double (*get)(const Cluster&, const Framework&, std::size_t level) = nullptr;
  void (*set)(Cluster&, Framework&, std::size_t level, double value) = nullptr;
  std::size_t level = 0;  ///< of parameters of a level
};

/// All that there are for a cluster with efficiency parameters, in a fixed order.
/// A framework may have none of one (0): then there is nothing to fit.
std::vector<FitParameter> fit_parameters(const Cluster& cluster);

struct FittedValue {
  std::string name;
  double value = 0, prior = 0;
  double low = 0, high = 0;  ///< 90 % interval
  /// False: the runs did not narrow the prior, which the value is.
  bool determined = false;
  /// The value is what fits of other devices and frameworks found, not what runs of this one did.
  bool typical = false;
  bool operator==(const FittedValue&) const = default;
  /// The runs might have moved it farther: an end of its interval is the value itself.
  bool at_bound() const { return determined && (low == value || high == value); }
};

/// The time of a layer depends on this, beside the machine and the kind of layer: tokens of a
/// micro-batch on one rank (of cp its share), of sequences of this length, hidden size, ranks that
/// share a layer, bytes of an operand of its products.
struct LayerShape {
  std::int64_t tokens = 0, sequence = 0, hidden = 0, mp = 1, operand_bytes = 2;
  auto operator<=>(const LayerShape&) const = default;
};

/// How far the layers of one shape are off what the values give, in local ops and dispatch_op:
/// libraries pick kernels by shape, and no formula follows them everywhere.
struct LayerPoint {
  LayerShape shape;
  double factor = 1;  ///< of time
  /// Standard deviation of its logarithm, were the values known: that all factors and a rate may
  /// be off together leaves the product that runs see where it is.
  double deviation = 0;
  std::int64_t runs = 0;
  bool operator==(const LayerPoint&) const = default;
};

/// Whether a step's ranks are on one node or on several: networks differ in noise.
struct RunSpread {
  /// Standard deviation of the logarithm of one run's step time, beside the deviation of its
  /// layers' factor.
  double deviation = 0;
  /// 90 % of the runs left out of a fit lie within so many standard deviations, of both together,
  /// of what it says. The two are chosen for the narrowest intervals.
  double interval90_deviations = 0;
  bool operator==(const RunSpread&) const = default;
};

/// Some sources do not say whether layers were repeated in backward. This says whether all were, as
/// the times of these runs show. Absent: there is no such run.
struct AssumedRecompute {
  std::optional<bool> within_node, across_nodes;
  bool operator==(const AssumedRecompute&) const = default;
};

/// A level of the network, as it was in the runs of a fit.
struct FittedLevel {
  std::string name;
  BytesPerSecond least_bandwidth, most_bandwidth;  ///< stated, per device and direction
  Seconds latency;
  std::optional<BytesPerSecond> peer_bandwidth = std::nullopt;
  bool reduces_in_switch = false;
  bool operator==(const FittedLevel&) const = default;
};

struct FittedCalibration {
  /// Names: of the cluster whose runs these were, and of the framework that they are for. What was
  /// fitted holds for every cluster of `device` (predict/fit_transfer.h).
  std::string cluster, framework;
  Device device;
  std::vector<FittedLevel> levels;   ///< those of "levels.0", "levels.1", ... in `values`
  std::vector<std::string> sources;  ///< of the runs: "document, place", each once
  std::int64_t runs = 0;             ///< 0: of none (predict/typical_calibration.h)
  /// Errors of step times: mean and 90th percentile of |predicted - measured| / measured, over runs
  /// each predicted by a fit without its layout and model size.
  double cross_validated_mean = 0, cross_validated_p90 = 0;
  /// The mean over runs each predicted by a fit without any run of its model size. Absent: all are
  /// of one size.
  std::optional<double> unseen_sizes_mean;
  RunSpread within_node, across_nodes;
  AssumedRecompute assumed_recompute;
  std::vector<FittedValue> values;  ///< in the order of fit_parameters
  std::vector<LayerPoint> layers;   ///< ascending shapes; empty: none fitted
  bool operator==(const FittedCalibration&) const = default;
};

/// The document of a source, without its version and place: "github:NVIDIA/NeMo" of
/// "github:NVIDIA/NeMo@3a8081f (2024-08-22), page 1".
std::string document_of(std::string_view source);
/// Whether a run of the fit is of that document; not where it is empty.
bool has_runs_of(const FittedCalibration& fitted, std::string_view document);

/// Sets the values, and what the groups of those that are determined rest on. Throws InputError
/// where a name is no parameter of this cluster.
void apply(const FittedCalibration& fitted, Cluster& cluster, Framework& framework);

/// Whether a calibration file is of this kind: measured ones have no "fitted".
bool is_fitted_calibration(std::string_view text, const std::string& file);
FittedCalibration parse_fitted_calibration(std::string_view text, const std::string& file);
std::string fitted_calibration_text(const FittedCalibration& fitted);

}  // namespace plimsoll
