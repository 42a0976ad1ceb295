#include "planner/typical_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "models/presets.h"
#include "planner/published_target.h"
#include "simulator/layer_factors.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 4> kFrameworks = {"megatron-lm", "megatron-deepspeed",
                                                         "pytorch-fsdp", "torchtitan"};
/// Rates: a share of something that a cluster states. Times and sizes differ by machine.
constexpr std::array<std::string_view, 6> kRates = {"matmul.peak_fraction",
                                                    "memory.bandwidth_fraction",
                                                    "attention_forward.peak_fraction",
                                                    "attention_backward.peak_fraction",
                                                    "levels.0.bandwidth_fraction",
                                                    "levels.1.bandwidth_fraction"};
/// Its authors state a noise of 40 %.
constexpr std::string_view kNoisy = "jean-zay-v100-32gb--megatron-deepspeed";
/// Of 231 runs on clusters with a fit, predicted so without that fit (docs/accuracy.md): mean of
/// |predicted / measured - 1|, and what nine in ten of |measured / predicted - 1| stay within.
constexpr double kMeanError = 0.12, kPercentile90 = 0.32;

template <class List>
bool has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

struct Found {
  double sum = 0, squares = 0, count = 0;  ///< of logarithms of value / prior

  void add(double ratio) {
    sum += std::log(ratio);
    squares += std::log(ratio) * std::log(ratio);
    count += 1;
  }
  double ratio() const { return std::exp(sum / count); }
  double factor90() const {
    const double mean = sum / count;
    return std::exp(1.645 * std::sqrt(std::max(0.0, squares / count - mean * mean)));
  }
};

/// By name of a rate; `fits`: how many there are.
std::map<std::string, Found> found_by_fits(std::size_t& fits) {
  std::map<std::string, Found> found;
  for (const Preset& preset : calibration_presets()) {
    if (preset.name == kNoisy || !is_fitted_calibration(preset.text, std::string(preset.name)))
      continue;
    ++fits;
    for (const FittedValue& value :
         parse_fitted_calibration(std::string(preset.text), std::string(preset.name)).values) {
      if (value.determined && has(kRates, value.name))
        found[value.name].add(value.value / value.prior);
    }
  }
  return found;
}

}  // namespace

std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework) {
  if (!cluster.efficiency || !has(kFrameworks, calibrated_as(framework))) return std::nullopt;
  std::size_t fits = 0;
  const std::map<std::string, Found> found = found_by_fits(fits);
  FittedCalibration typical;
  typical.cluster = cluster.name;
  typical.framework = calibrated_as(framework);
  typical.sources = {fmt::format("what {} fits of other clusters and frameworks found", fits)};
  typical.cross_validated_mean = kMeanError;
  typical.cross_validated_p90 = kPercentile90;
  // Without factors of layers their prior is open, too.
  const double deviation = std::hypot(kMeanError, kSharedDeviation, kOwnDeviation);
  const RunSpread spread{kMeanError, std::log(1 + kPercentile90) / deviation};
  typical.within_node = typical.across_nodes = spread;
  for (const FitParameter& parameter : fit_parameters(cluster)) {
    const auto ratio = found.find(parameter.name);
    if (ratio == found.end()) continue;
    FittedValue& value = typical.values.emplace_back();
    value.name = parameter.name;
    value.prior = parameter.get(cluster, framework, parameter.level);
    value.value = std::min(value.prior * ratio->second.ratio(), parameter.most);
    value.low = value.value / ratio->second.factor90();
    value.high = value.value * ratio->second.factor90();
    value.determined = true;
  }
  return typical;
}

}  // namespace plimsoll
