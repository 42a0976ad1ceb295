// Compares devices and levels with those that a fit's runs were on.
#include "predict/fit_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log_statistics.h"
#include "predict/default_efficiency.h"

namespace plimsoll {
namespace {

constexpr double kRounding = 0.01;  // two documents of one device

/// A device's memory is stated in the data sheet's GB, as nvidia-smi prints it, or as the driver
/// leaves it. These differ by up to 7 %.
constexpr double kMemoryRounding = 0.08;

bool agree(double a, double b, double rounding = kRounding) {
  return std::abs(a - b) <= rounding * std::max(a, b);
}

template <class Quantity>
std::string difference(std::string_view what, Quantity fitted, Quantity own) {
  return fmt::format("{} {}, in the runs {}", what, to_text(own), to_text(fitted));
}

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

FittedLevel fitted_level(const Level& level) {
  return {level.name,    level.bandwidth,      level.bandwidth,
          level.latency, level.peer_bandwidth, level.reduces_in_switch};
}

/// Splits "levels.1.fixed_time" into {1, "fixed_time"}. Returns nothing for other names.
std::optional<std::pair<std::size_t, std::string>> of_level(const std::string& name) {
  constexpr std::string_view kStart = "levels.";
  const std::size_t dot = name.find('.', kStart.size());
  if (!name.starts_with(kStart) || dot != kStart.size() + 1 || !std::isdigit(name[dot - 1]))
    return std::nullopt;
  return std::pair(std::size_t(name[dot - 1] - '0'), name.substr(dot + 1));
}

/// Returns for each level of the cluster the level of the fit that is the same, if any.
std::vector<std::optional<std::size_t>> matches(const FittedCalibration& fitted,
                                                const Cluster& cluster, TransferredFit& result) {
  std::vector<std::optional<std::size_t>> found(cluster.levels.size());
  std::vector<bool> taken(fitted.levels.size());
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    for (std::size_t f = 0; f < fitted.levels.size() && !found[l]; ++f) {
      if (taken[f] || !level_difference(fitted.levels[f], cluster.levels[l]).empty()) continue;
      found[l] = f;
      taken[f] = true;
    }
  }
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    if (found[l]) {
      ++result.same_levels;
      continue;
    }
    const Level& own = cluster.levels[l];
    const bool beside = l < fitted.levels.size() && !taken[l];
    result.other_levels.push_back(
        fmt::format("{} {}", printable(own.name),
                    beside ? level_difference(fitted.levels[l], own) : "was not in the runs"));
  }
  return found;
}

const FittedValue* value_of(const FittedCalibration& fitted, const std::string& name) {
  const auto found = std::find_if(fitted.values.begin(), fitted.values.end(),
                                  [&](const FittedValue& value) { return value.name == name; });
  return found == fitted.values.end() ? nullptr : &*found;
}

void check_names(const FittedCalibration& fitted, const Cluster& cluster) {
  const std::vector<FitParameter> known = fit_parameters(cluster);
  for (const FittedValue& value : fitted.values) {
    const auto level = of_level(value.name);
    const bool is_known =
        level ? level->first < fitted.levels.size() &&
                    (level->second == "bandwidth_fraction" || level->second == "fixed_time")
              : std::any_of(known.begin(), known.end(), [&](const FitParameter& parameter) {
                  return parameter.name == value.name;
                });
    if (!is_known) {
      throw InputError("", "/fitted/values",
                       fmt::format("found {}, which {} has no such parameter for",
                                   printable(value.name), printable(cluster.name)));
    }
  }
}

/// Makes an interval wider by an independent error `open`, a logarithm.
void widen(RunSpread& spread, double open) {
  if (spread.interval90_deviations <= 0) return;
  spread.deviation = std::hypot(spread.deviation, open / spread.interval90_deviations);
}

}  // namespace

std::string device_model(const std::string& name) {
  std::string word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const unsigned char c = i < name.size() ? static_cast<unsigned char>(name[i]) : ' ';
    if (std::isalnum(c)) {
      word += char(c);
      continue;
    }
    const bool model = word.size() > 2 && std::isupper(static_cast<unsigned char>(word[0])) &&
                       std::isdigit(static_cast<unsigned char>(word.back())) &&
                       std::count_if(word.begin(), word.end(),
                                     [](unsigned char d) { return std::isdigit(d) != 0; }) >= 2;
    if (model) return word;
    word.clear();
  }
  return "";
}

std::string device_difference(const Device& fitted, const Device& own) {
  const std::string model = device_model(fitted.name);
  if (fitted.name != own.name && (model.empty() || model != device_model(own.name)))
    return fmt::format("name \"{}\", in the runs \"{}\"", printable(own.name),
                       printable(fitted.name));
  if (own.kind != fitted.kind) return "it is of another kind";
  if (!agree(double(own.memory.count()), double(fitted.memory.count()), kMemoryRounding))
    return difference("memory", fitted.memory, own.memory);
  if (!agree(own.memory_bandwidth.value(), fitted.memory_bandwidth.value()))
    return difference("memory bandwidth", fitted.memory_bandwidth, own.memory_bandwidth);
  constexpr std::array<std::pair<const char*, std::optional<FlopsPerSecond> Device::*>, 4> kPeaks =
      {{{"fp32", &Device::peak_fp32},
        {"bf16", &Device::peak_bf16},
        {"fp16", &Device::peak_fp16},
        {"fp8", &Device::peak_fp8}}};
  for (const auto& [name, peak] : kPeaks) {
    if (!(own.*peak) || !(fitted.*peak)) continue;  // one document does not state it
    if (!agree((own.*peak)->value(), (fitted.*peak)->value()))
      return difference(fmt::format("{} peak", name), *(fitted.*peak), *(own.*peak));
  }
  return "";
}

std::string level_difference(const FittedLevel& fitted, const Level& own) {
  if (lower(fitted.name) != lower(own.name))
    return fmt::format("is \"{}\" in the runs", printable(fitted.name));
  const double bandwidth = own.bandwidth.value();
  if (bandwidth < fitted.least_bandwidth.value() * (1 - kRounding) ||
      bandwidth > fitted.most_bandwidth.value() * (1 + kRounding)) {
    const bool apart = !(fitted.least_bandwidth == fitted.most_bandwidth);
    return fmt::format(
        "has {} per device, in the runs {}{}", to_text(own.bandwidth),
        to_text(fitted.least_bandwidth),
        apart ? fmt::format(" to {}", to_text(fitted.most_bandwidth)) : std::string());
  }
  if (!agree(own.latency.value(), fitted.latency.value()))
    return "has " + difference("a latency of", fitted.latency, own.latency);
  const auto peer = [](const std::optional<BytesPerSecond>& rate) {
    return rate ? rate->value() : 0;
  };
  if (!agree(peer(own.peer_bandwidth), peer(fitted.peer_bandwidth)))
    return "has another peer_bandwidth than in the runs";
  if (own.reduces_in_switch != fitted.reduces_in_switch)
    return fmt::format("{} in its switches, unlike in the runs",
                       own.reduces_in_switch ? "reduces" : "does not reduce");
  return "";
}

std::string level_difference(const Level& other, const Level& own) {
  return level_difference(fitted_level(other), own);
}

void widen(FittedCalibration& fitted, double open) {
  widen(fitted.within_node, open);
  widen(fitted.across_nodes, open);
  if (fitted.learned) fitted.learned->noise = std::hypot(fitted.learned->noise, open / kNormal90);
}

void add_cluster(const Cluster& cluster, FittedCalibration& fitted) {
  if (fitted.levels.empty()) {
    fitted.device = cluster.device;
    for (const Level& level : cluster.levels) fitted.levels.push_back(fitted_level(level));
    return;
  }
  for (std::size_t l = 0; l < fitted.levels.size(); ++l) {
    FittedLevel& known = fitted.levels[l];
    known.least_bandwidth = std::min(known.least_bandwidth, cluster.levels[l].bandwidth);
    known.most_bandwidth = std::max(known.most_bandwidth, cluster.levels[l].bandwidth);
  }
}

TransferredFit transfer(const FittedCalibration& fitted, const Cluster& cluster,
                        const Framework& framework, std::string_view left_out) {
  check_names(fitted, cluster);
  TransferredFit result;
  result.fitted = fitted;
  const auto found = matches(fitted, cluster, result);
  const auto typical = result.other_levels.empty()
                           ? std::optional<FittedCalibration>()
                           : typical_calibration(cluster, framework, left_out);
  result.fitted.values.clear();
  for (const FitParameter& parameter : fit_parameters(cluster)) {
    const auto level = of_level(parameter.name);
    const FittedValue* value = nullptr;
    if (!level) {
      value = value_of(fitted, parameter.name);
    } else if (const auto from = found[level->first]) {
      value = value_of(fitted, fmt::format("levels.{}.{}", *from, level->second));
    } else if (typical) {
      value = value_of(*typical, parameter.name);
    }
    if (value == nullptr) continue;
    result.fitted.values.push_back(*value);
    result.fitted.values.back().name = parameter.name;
  }
  const bool outer_differs = result.same_levels < cluster.levels.size();
  if (outer_differs) widen(result.fitted.across_nodes, kOtherNetwork);
  if (!found.empty() && !found[0]) widen(result.fitted.within_node, kOtherNetwork);
  if (!cluster.levels.empty() && !fitted.levels.empty()) {
    const FittedLevel& outermost = fitted.levels.back();
    const double own = cluster.levels.back().bandwidth.value();
    result.outermost_apart = std::max({0.0, std::log(outermost.least_bandwidth.value() / own),
                                       std::log(own / outermost.most_bandwidth.value())});
  }
  return result;
}

void shrink(FittedCalibration& fitted, const Cluster& cluster, const Framework& framework,
            std::string_view left_out) {
  const auto typical = typical_calibration(cluster, framework, left_out);
  if (!typical) return;
  std::set<std::string> documents;
  for (const std::string& source : fitted.sources) documents.insert(document_of(source));
  const double weight = double(documents.size()) / double(documents.size() + 1);
  for (const FitParameter& parameter : fit_parameters(cluster)) {
    const auto value = std::ranges::find(fitted.values, parameter.name, &FittedValue::name);
    if (value == fitted.values.end() || parameter.part == FitPart::level) continue;
    const FittedValue* known = value_of(*typical, parameter.name);
    const double towards =
        known != nullptr ? known->value : parameter.get(cluster, framework, parameter.level);
    if (towards <= 0 || value->value <= 0) continue;
    const bool of_host = parameter.part == FitPart::host_op;
    const double moved = std::pow(towards / value->value, of_host ? 1 : 1 - weight);
    value->value *= moved;
    value->low *= moved;
    value->high *= moved;
  }
  for (LayerPoint& point : fitted.layers) point.factor = std::pow(point.factor, weight);
}

}  // namespace plimsoll
