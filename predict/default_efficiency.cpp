// Takes the efficiency of a preset with the same device, or means over all presets.
#include "predict/default_efficiency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log_statistics.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/network_kind.h"
#include "models/framework/framework.h"
#include "models/presets/known_json.h"
#include "models/presets/presets.h"
#include "predict/fit_transfer.h"
#include "predict/step_interval.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {
namespace {

/// Returns the presets of GPUs that state an efficiency.
const std::vector<Cluster>& known_clusters() {
  static const std::vector<Cluster> clusters = [] {
    std::vector<Cluster> result;
    for (const Preset& preset : cluster_presets()) {
      Cluster cluster = parse_cluster(preset.text, std::string(preset.name));
      if (cluster.device.kind == DeviceKind::gpu && cluster.efficiency)
        result.push_back(std::move(cluster));
    }
    return result;
  }();
  return clusters;
}

/// Returns one preset for each device.
std::vector<const Cluster*> known_devices() {
  std::vector<const Cluster*> devices;
  for (const Cluster& cluster : known_clusters()) {
    const bool seen = std::any_of(devices.begin(), devices.end(), [&](const Cluster* other) {
      return device_difference(other->device, cluster.device).empty();
    });
    if (!seen) devices.push_back(&cluster);
  }
  INVARIANT(!devices.empty(), "cluster presets of GPUs");
  return devices;
}

template <class Get>
LogStatistics over(const std::vector<const Cluster*>& devices, Get get) {
  LogStatistics result;
  for (const Cluster* cluster : devices) result.add(get(*cluster));
  return result;
}

LevelEfficiency mean_level(bool within_node) {
  LogStatistics bandwidth, time;
  for (const Cluster& cluster : known_clusters()) {
    for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
      if (is_within_node(cluster, l) != within_node) continue;
      bandwidth.add(cluster.efficiency->levels[l].bandwidth_fraction);
      time.add(cluster.efficiency->levels[l].fixed_time.value());
    }
  }
  return {bandwidth.geometric_mean(), Seconds(time.geometric_mean()), {}};
}

/// Averages the parameters of kernels, which fit_parameters() knows by name, over all devices.
Efficiency mean_kernels(const Cluster& like) {
  const std::vector<const Cluster*> all = known_devices();
  std::vector<const Cluster*> with_fp8;
  for (const Cluster* cluster : all) {
    if (cluster->device.peak_fp8) with_fp8.push_back(cluster);
  }
  Cluster mean = like;
  mean.efficiency.emplace();
  Framework unused;
  for (const FitParameter& parameter : fit_parameters(mean)) {
    if (is_of_the_host(parameter.part)) continue;
    const bool of_fp8 =
        parameter.part == FitPart::products_of_fp8 || parameter.part == FitPart::products_by_rows;
    const LogStatistics found = over(of_fp8 ? with_fp8 : all, [&](const Cluster& cluster) {
      return parameter.get(cluster, unused, parameter.level);
    });
    parameter.set(mean, unused, parameter.level, found.geometric_mean());
  }
  Efficiency& result = *mean.efficiency;
  const auto time = [&](AttentionEfficiency Efficiency::*attention) {
    return Seconds(over(all, [&](const Cluster& cluster) {
                     return ((*cluster.efficiency).*attention).fixed_time.value();
                   }).geometric_mean());
  };
  result.attention_forward.fixed_time = time(&Efficiency::attention_forward);
  result.attention_backward.fixed_time = time(&Efficiency::attention_backward);
  result.matmul.units = std::llround(over(all, [](const Cluster& cluster) {
                                       return double(cluster.efficiency->matmul.units);
                                     }).geometric_mean());
  return result;
}

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

bool is_within_node(const Cluster& cluster, std::size_t level) {
  const std::int64_t devices = cluster.levels[level].devices;
  return devices > 0 && devices <= cluster.devices_per_node;
}

DefaultEfficiency default_efficiency(const Cluster& cluster) {
  DefaultEfficiency result;
  const Cluster* same = nullptr;
  for (const Cluster& known : known_clusters()) {
    if (same == nullptr && device_difference(known.device, cluster.device).empty()) same = &known;
  }
  if (same != nullptr) {
    result.efficiency = *same->efficiency;
    result.words = fmt::format("of the same device in {}", same->name);
  } else {
    const std::vector<const Cluster*> devices = known_devices();
    result.efficiency = mean_kernels(cluster);
    result.open = kNormal90 * over(devices, [](const Cluster& known) {
                                return known.efficiency->matmul.peak_fraction;
                              }).deviation();
    result.words =
        fmt::format("not stated; means over the {} devices of cluster presets", devices.size());
  }
  result.efficiency.levels.clear();
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    const bool known = same != nullptr && l < same->levels.size() &&
                       level_difference(same->levels[l], cluster.levels[l]).empty();
    const NetworkKind* kind = find_network_kind(cluster.levels[l].network);
    result.efficiency.levels.push_back(known ? same->efficiency->levels[l]
                                             : mean_level(is_within_node(cluster, l)));
    if (kind != nullptr)
      result.efficiency.levels.back().bandwidth_fraction = kind->bandwidth_fraction;
  }
  return result;
}

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
