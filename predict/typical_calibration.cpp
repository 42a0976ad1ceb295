// Averages the rates that fits found, relative to the rates that their clusters state.
#include "predict/typical_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log_statistics.h"
#include "models/framework/framework.h"
#include "models/presets/known_json.h"
#include "predict/default_efficiency.h"
#include "predict/fit_transfer.h"
#include "predict/step_interval.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

// The file has one level within nodes and one across nodes, with these names.
constexpr std::string_view kWithinNode = "levels.0.bandwidth_fraction";
constexpr std::string_view kAcrossNodes = "levels.1.bandwidth_fraction";

/// The rates that a fit found, each relative to the rate that its cluster states.
struct FitRates {
  std::string framework;
  Device device;
  std::vector<std::string> documents;  ///< of its runs
  std::string without;  ///< the document that a fold leaves out; empty: the whole fit
  std::vector<std::pair<std::string, double>> rates;
};

FitRates rates_from(JsonObject object) {
  FitRates fit;
  object.text("calibration");
  const std::string cluster = object.text("cluster");
  const auto preset = find_preset(cluster_presets(), cluster);
  INVARIANT(preset, "a built-in fit is of a cluster preset");
  fit.device = parse_cluster(*preset, cluster).device;
  fit.framework = object.text("framework");
  fit.documents = object.texts("documents");
  if (object.has("without")) fit.without = object.text("without");
  JsonObject rates = object.object("rates");
  for (const std::string& name : rates.keys())
    fit.rates.emplace_back(name, rates.number(name, 1e-3, 1e3));
  object.finish();
  return fit;
}

/// Returns the rates in models/presets/spreads/typical-rates.json.
const std::vector<FitRates>& rates_of_fits() {
  static const std::vector<FitRates> fits = [] {
    const Json json = known_json(spread_presets(), "typical-rates");
    JsonObject object(json, "typical-rates.json");
    object.text("made_by");
    std::vector<FitRates> result;
    for (const JsonObject& fit : object.objects("fits")) result.push_back(rates_from(fit));
    object.finish();
    return result;
  }();
  return fits;
}

/// Whether the fit is the one that stands for its runs if a document is left out: the whole fit, or
/// the fold without that document.
bool counts_without(const FitRates& fit, std::string_view document) {
  if (!fit.without.empty()) return fit.without == document;
  return std::find(fit.documents.begin(), fit.documents.end(), document) == fit.documents.end();
}

}  // namespace

bool describes_training(const Framework& framework) { return framework.facts.typical_rates.value; }

std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework,
                                                     std::string_view left_out) {
  if (!cluster.efficiency || !describes_training(framework)) return std::nullopt;
  std::size_t fits = 0;
  bool known_framework = false, known_device = false;
  const std::string model = device_model(cluster.device.name);
  std::map<std::string, LogStatistics> found;  // by name of a rate
  for (const FitRates& fit : rates_of_fits()) {
    if (fit.framework == calibrated_as(framework) &&
        device_difference(fit.device, cluster.device).empty())
      continue;
    if (!counts_without(fit, left_out)) continue;
    ++fits;
    known_framework |= fit.framework == calibrated_as(framework);
    known_device |= !model.empty() && device_model(fit.device.name) == model;
    for (const auto& [name, ratio] : fit.rates) found[name].add(ratio);
  }
  FittedCalibration typical;
  typical.cluster = cluster.name;
  typical.framework = calibrated_as(framework);
  add_cluster(cluster, typical);
  typical.unfamiliar_framework = !known_framework;
  typical.unfamiliar_device = !known_device;
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
    if (name.starts_with("levels.") && name.ends_with(".bandwidth_fraction"))
      name = is_within_node(cluster, parameter.level) ? kWithinNode : kAcrossNodes;
    const auto ratio = found.find(name);
    if (ratio == found.end()) continue;
    FittedValue& value = typical.values.emplace_back();
    value.name = parameter.name;
    value.prior = parameter.get(cluster, framework, parameter.level);
    value.value = std::min(value.prior * ratio->second.geometric_mean(), parameter.most);
    value.low = std::max(value.value / ratio->second.factor90(), parameter.least);
    value.high = std::min(value.value * ratio->second.factor90(), parameter.most);
    value.determined = value.typical = true;
  }
  return typical;
}

}  // namespace plimsoll
