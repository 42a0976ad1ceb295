// A fitted calibration has a few numbers of a cluster and of a framework, found from published or
// measured runs, with estimates of their errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/calibration/fit_parameters.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

struct FittedValue {
  std::string name;
  double value = 0, prior = 0;
  double low = 0, high = 0;  ///< 90 % interval
  /// Whether the runs narrowed the prior. If not, the value is that of the prior.
  bool determined = false;
  /// Whether the value comes from fits of other devices and frameworks, and not from runs of this
  /// one.
  bool typical = false;
  bool operator==(const FittedValue&) const = default;
  /// Returns whether a limit stopped the fit: an end of the interval is the value itself.
  bool at_bound() const { return determined && (low == value || high == value); }
};

/// A LayerShape is what the time of a layer depends on, beside the machine and the kind of layer.
/// It has the tokens of a micro-batch on one rank (with cp, the rank's share), the length of
/// sequences and the hidden size. It also has the number of ranks that share a layer, and the bytes
/// of an element of its products' operands. Layers with experts are of other shapes than those
/// without.
struct LayerShape {
  std::int64_t tokens = 0, sequence = 0, hidden = 0, mp = 1, operand_bytes = 2;
  std::int64_t routed = 0;  ///< columns of the experts of one token together
  auto operator<=>(const LayerShape&) const = default;
};

/// A LayerPoint is the factor by which the time of layers of one shape differs from the fitted
/// values, in local ops and dispatch_op. Libraries choose kernels by shape, and no formula follows
/// their choices everywhere.
struct LayerPoint {
  LayerShape shape;
  double factor = 1;  ///< factor of the time
  /// The standard deviation of the factor's logarithm if the values were known. It leaves out that
  /// all factors and a rate may be off together, since such an error cancels in the times of runs.
  double deviation = 0;
  std::int64_t runs = 0;
  bool operator==(const LayerPoint&) const = default;
};

/// A RunSpread is the noise of steps, for ranks on one node or on several nodes, as networks differ
/// in noise.
struct RunSpread {
  /// The standard deviation of the logarithm of one run's step time, beside the deviation of the
  /// factor of its layers.
  double deviation = 0;
  /// 90 % of the runs that were left out of a fit lie within so many standard deviations of its
  /// prediction. The standard deviation is that of the run and of the layers' factor together. Both
  /// numbers are chosen for the narrowest intervals.
  double interval90_deviations = 0;
  bool operator==(const RunSpread&) const = default;
};

/// Some sources do not say whether layers were recomputed in backward. An AssumedRecompute says
/// whether all were, as the times of these runs show. It is absent where there is no such run.
struct AssumedRecompute {
  std::optional<bool> within_node, across_nodes;
  bool operator==(const AssumedRecompute&) const = default;
};

/// A FittedLevel is a level of the network as it was in the runs of a fit.
struct FittedLevel {
  std::string name;
  BytesPerSecond least_bandwidth, most_bandwidth;  ///< stated, per device and direction
  Seconds latency;
  std::optional<BytesPerSecond> peer_bandwidth = std::nullopt;
  bool reduces_in_switch = false;
  bool operator==(const FittedLevel&) const = default;
};

/// A ModelSize says which model the runs of a fit trained, as far as sizes tell.
struct ModelSize {
  std::int64_t layers = 0, hidden = 0;
  std::int64_t experts = 0;  ///< of a layer; 0: none
  auto operator<=>(const ModelSize&) const = default;
};

/// A LearnedStep is the step of a run that numbers were learned from.
struct LearnedStep {
  std::string log;     ///< file
  std::string layout;  ///< in words (reports/plan_words.h)
  /// Digests of the job with its devices, and of the strategy (predict/tried_layouts.h).
  std::string job_digest, strategy_digest;
  Seconds measured, before, after;   ///< predicted before anything was learned, and with it
  std::optional<Seconds> by_others;  ///< predicted by the other runs, if there are any
  bool contradicts = false;          ///< whether these contradict it; nothing was learned from it
  bool operator==(const LearnedStep&) const = default;
};

/// LearnedMemory is the correction of reserved bytes that was learned from one's own runs
/// (fitting/learned_memory.h).
struct LearnedMemory {
  double factor = 1;      ///< on the bytes of the allocator's replay
  double half_width = 0;  ///< relative, of the 90 % interval
  bool operator==(const LearnedMemory&) const = default;
};

/// A LearnedSpread is what runs of one's own leave open of a step (fitting/learn.h).
struct LearnedSpread {
  double noise = 0;  ///< standard deviation of the logarithm of a step time whose numbers are known
  std::vector<std::string> names;  ///< of values
  std::vector<double> covariance;  ///< of the logarithms of these values, row by row
  std::vector<LearnedStep> runs;   ///< as given to `planner learn`
  std::optional<LearnedMemory> memory = {};
  bool operator==(const LearnedSpread&) const = default;
};

struct FittedCalibration {
  /// The names of the cluster of the runs and of the framework. The fit holds for every cluster of
  /// `device` (predict/fit_transfer.h).
  std::string cluster, framework;
  Device device;
  std::vector<FittedLevel> levels;   ///< the levels "levels.0", "levels.1", ... of `values`
  std::vector<std::string> sources;  ///< sources of the runs: "document, place", each once
  std::int64_t runs = 0;             ///< number of runs; 0: none (predict/default_efficiency.h)
  std::vector<ModelSize> sizes;      ///< of the runs, ascending, each once
  /// Errors of step times, predicted - measured over measured: the mean and the 90th percentile of
  /// their sizes. Each run is predicted by a fit without the runs of its layout and model size.
  /// Both are absent if the fit was learned from one run.
  std::optional<double> cross_validated_mean, cross_validated_p90;
  /// The mean error where each run is predicted by a fit without any run of its model size. It is
  /// absent where all runs have one size.
  std::optional<double> unseen_sizes_mean;
  RunSpread within_node, across_nodes;
  AssumedRecompute assumed_recompute;
  std::vector<FittedValue> values;       ///< in the order of fit_parameters
  std::vector<LayerPoint> layers;        ///< ascending shapes; empty: none fitted
  std::optional<LearnedSpread> learned;  ///< of runs of one's own; absent: a fit of published runs
  /// Whether the runs are of the people whose steps are predicted: the user's own, or those of the
  /// same document. It is no part of the file.
  bool of_same_people = false;
  /// Whether typical rates rest on no fit of the framework, and whether they rest on none of the
  /// device's model. The file does not contain them.
  bool unfamiliar_framework = false, unfamiliar_device = false;
  bool operator==(const FittedCalibration&) const = default;
};

/// Returns the document of a source without its version and place: "github:NVIDIA/NeMo" for
/// "github:NVIDIA/NeMo@3a8081f (2024-08-22), page 1".
std::string document_of(std::string_view source);
/// Returns whether a run of the fit is from that document, and false for an empty document.
bool has_runs_of(const FittedCalibration& fitted, std::string_view document);
/// Returns whether the fit has runs of this size of model.
bool has_runs_of(const FittedCalibration& fitted, const ModelSize& size);

/// Returns ", 3.1 % off runs left out", or nothing if no run was left out.
std::string left_out_words(const FittedCalibration& fitted);

/// Sets the values in `cluster` and `framework`, and the RestsOn of the groups with determined
/// values. Throws InputError where a name is no parameter of this cluster.
void apply(const FittedCalibration& fitted, Cluster& cluster, Framework& framework);

FittedCalibration parse_fitted_calibration(std::string_view text, const std::string& file);
std::string fitted_calibration_text(const FittedCalibration& fitted);

}  // namespace plimsoll
