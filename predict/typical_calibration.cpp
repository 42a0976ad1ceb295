#include "predict/typical_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "models/framework/framework.h"
#include "models/presets/presets.h"
#include "predict/default_efficiency.h"
#include "predict/fit_transfer.h"
#include "predict/step_interval.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

/// Rates: a share of something that a cluster states. Times and sizes differ by machine.
constexpr std::string_view kWithinNode = "levels.0.bandwidth_fraction";
constexpr std::string_view kAcrossNodes = "levels.1.bandwidth_fraction";
constexpr std::array<std::string_view, 6> kRates = {"matmul.peak_fraction",
                                                    "memory.bandwidth_fraction",
                                                    "attention_forward.peak_fraction",
                                                    "attention_backward.peak_fraction",
                                                    kWithinNode,
                                                    kAcrossNodes};

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

/// Names of built-in fits that say nothing of others.
std::vector<std::string> untypical_fits() {
  const std::string file = "untypical-fits.json";
  const auto text = find_preset(spread_presets(), "untypical-fits");
  INVARIANT(text, "the preset of fits that are not typical");
  const Json json = parse_json(*text, file);
  JsonObject object(json, file);
  std::vector<std::string> names;
  for (JsonObject& fit : object.objects("fits")) {
    names.push_back(fit.text("calibration"));
    INVARIANT(!fit.text("reason").empty(), "a reason");
    fit.finish();
  }
  object.finish();
  return names;
}

/// The built-in fits that say something of others.
const std::vector<FittedCalibration>& usable_fits() {
  static const std::vector<FittedCalibration> fits = [] {
    std::vector<FittedCalibration> result;
    const std::vector<std::string> untypical = untypical_fits();
    for (const Preset& preset : calibration_presets()) {
      const std::string name(preset.name), text(preset.text);
      if (!has(untypical, name) && is_fitted_calibration(text, name))
        result.push_back(parse_fitted_calibration(text, name));
    }
    return result;
  }();
  return fits;
}

}  // namespace

bool describes_training(const Framework& framework) { return framework.facts.typical_rates.value; }

std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework,
                                                     std::string_view left_out) {
  if (!cluster.efficiency || !describes_training(framework)) return std::nullopt;
  std::size_t fits = 0;
  std::map<std::string, Found> found;  // by name of a rate
  for (const FittedCalibration& fit : usable_fits()) {
    if (fit.framework == calibrated_as(framework) &&
        device_difference(fit.device, cluster.device).empty())
      continue;
    if (has_runs_of(fit, left_out)) continue;
    ++fits;
    for (const FittedValue& value : fit.values) {
      if (value.determined && has(kRates, value.name))
        found[value.name].add(value.value / value.prior);
    }
  }
  FittedCalibration typical;
  typical.cluster = cluster.name;
  typical.framework = calibrated_as(framework);
  add_cluster(cluster, typical);
  typical.sources = {fmt::format("what {} fits of other devices and frameworks found", fits)};
  const SourceSpread& found_spread = source_spread(TimeBasis::typical);
  typical.cross_validated_mean = found_spread.mean_error;
  typical.cross_validated_p90 = std::exp(found_spread.half_width) - 1;
  // Without factors of layers their prior is open, too.
  const double deviation = std::hypot(found_spread.mean_error, kSharedDeviation, kOwnDeviation);
  const RunSpread spread{found_spread.mean_error, found_spread.half_width / deviation};
  typical.within_node = typical.across_nodes = spread;
  for (const FitParameter& parameter : fit_parameters(cluster)) {
    std::string name = parameter.name;
    // The clusters of all fits have one level within nodes and one across them.
    if (name.starts_with("levels.") && name.ends_with(".bandwidth_fraction"))
      name = is_within_node(cluster, parameter.level) ? kWithinNode : kAcrossNodes;
    const auto ratio = found.find(name);
    if (ratio == found.end()) continue;
    FittedValue& value = typical.values.emplace_back();
    value.name = parameter.name;
    value.prior = parameter.get(cluster, framework, parameter.level);
    value.value = std::min(value.prior * ratio->second.ratio(), parameter.most);
    value.low = std::max(value.value / ratio->second.factor90(), parameter.least);
    value.high = std::min(value.value * ratio->second.factor90(), parameter.most);
    value.determined = value.typical = true;
  }
  return typical;
}

}  // namespace plimsoll
