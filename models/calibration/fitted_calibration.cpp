// Fitted calibrations are read, written and applied.
#include "models/calibration/fitted_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/field_list.h"

namespace plimsoll {
namespace {

constexpr double kLeastValue = 1e-12, kMostValue = 1e12, kMostInteger = 0x1p40, kMostError = 1e6;
constexpr double kMostRate = 1e21;  // of a device: bytes or operations per second

constexpr std::array<std::string_view, 2> kRepeated = {"none", "full"};

constexpr auto kValue = [](auto& fields, auto& value) {
  fields.required("name", value.name);
  fields.required("value", value.value, {kLeastValue, kMostValue});
  fields.required("low", value.low, {kLeastValue, value.value});
  fields.required("high", value.high, {value.value, kMostValue});
  fields.required("prior", value.prior, {kLeastValue, kMostValue});
  fields.required("determined", value.determined);
  fields.optional("typical", value.typical);
};

constexpr auto kLayer = [](auto& fields, auto& point) {
  fields.required("tokens", point.shape.tokens, {1, kMostInteger});
  fields.required("sequence", point.shape.sequence, {1, kMostInteger});
  fields.required("hidden", point.shape.hidden, {1, kMostInteger});
  fields.required("mp", point.shape.mp, {1, kMostInteger});
  fields.required("operand_bytes", point.shape.operand_bytes, {1, 4});
  fields.required("factor", point.factor, {0.01, 100});
  fields.required("deviation", point.deviation, {0, 10});
  fields.required("runs", point.runs, {1, kMostInteger});
  fields.optional("routed", point.shape.routed, {0, kMostInteger});
};

constexpr auto kSize = [](auto& fields, auto& size) {
  fields.required("layers", size.layers, {1, kMostInteger});
  fields.required("hidden", size.hidden, {1, kMostInteger});
  fields.optional("experts", size.experts, {1, kMostInteger});
};

constexpr auto kSpread = [](auto& fields, auto& spread) {
  fields.required("deviation", spread.deviation, {0, 10});
  fields.required("interval90_deviations", spread.interval90_deviations, {0, kMostError});
};

constexpr auto kAssumed = [](auto& fields, auto& assumed) {
  fields.optional("within_node", assumed.within_node, kRepeated);
  fields.optional("across_nodes", assumed.across_nodes, kRepeated);
};

constexpr auto kDevice = [](auto& fields, auto& device) {
  fields.required("name", device.name);
  fields.unless(DeviceKind::gpu, "kind", device.kind, kDeviceKinds);
  fields.required("memory_bytes", device.memory, {1, 0x1p50});
  fields.required("memory_bandwidth_bytes_per_s", device.memory_bandwidth, {1, kMostRate});
  fields.optional("peak_fp32_flops_per_s", device.peak_fp32, {1, kMostRate});
  fields.optional("peak_bf16_flops_per_s", device.peak_bf16, {1, kMostRate});
  fields.optional("peak_fp16_flops_per_s", device.peak_fp16, {1, kMostRate});
  fields.optional("peak_fp8_flops_per_s", device.peak_fp8, {1, kMostRate});
};

constexpr auto kLevel = [](auto& fields, auto& level) {
  const auto& least = level.least_bandwidth;
  fields.required("name", level.name);
  fields.required("least_bandwidth_bytes_per_s", level.least_bandwidth, {1, kMostRate});
  fields.required("most_bandwidth_bytes_per_s", level.most_bandwidth, {least.value(), kMostRate});
  fields.required("latency_s", level.latency, {0, 1});
  fields.optional("peer_bandwidth_bytes_per_s", level.peer_bandwidth, {1, kMostRate});
  fields.required("reduces_in_switch", level.reduces_in_switch);
};

constexpr auto kStep = [](auto& fields, auto& step) {
  fields.required("log", step.log);
  fields.required("layout", step.layout);
  fields.required("job_digest", step.job_digest);
  fields.required("strategy_digest", step.strategy_digest);
  fields.required("measured_s", step.measured, {kLeastValue, kMostValue});
  fields.required("before_s", step.before, {kLeastValue, kMostValue});
  fields.required("after_s", step.after, {kLeastValue, kMostValue});
  fields.optional("by_others_s", step.by_others, {kLeastValue, kMostValue});
  fields.optional("contradicts", step.contradicts);
};

constexpr auto kLearnedMemory = [](auto& fields, auto& memory) {
  fields.required("factor", memory.factor, {0.01, 100});
  fields.required("half_width", memory.half_width, {0, 10});
};

constexpr auto kLearned = [](auto& fields, auto& learned) {
  fields.required("noise", learned.noise, {1e-6, 10});
  fields.required("names", learned.names);
  fields.required("covariance", learned.covariance);
  fields.required("runs", learned.runs, kStep);
  fields.check(learned.covariance.size() == learned.names.size() * learned.names.size(),
               "covariance", "found {} numbers; the square of the {} names is required",
               learned.covariance.size(), learned.names.size());
  fields.optional("memory", learned.memory, kLearnedMemory);
  for (std::size_t i = 0; i < learned.names.size(); ++i) {
    fields.check(learned.covariance[i * (learned.names.size() + 1)] >= 0, "covariance",
                 "found {}; a variance is not negative",
                 learned.covariance[i * (learned.names.size() + 1)]);
  }
};

constexpr auto kFit = [](auto& fields, auto& fitted) {
  fields.required("cluster", fitted.cluster);
  fields.required("framework", fitted.framework);
  fields.required("device", fitted.device, kDevice);
  fields.required("levels", fitted.levels, kLevel);
  fields.required("sources", fitted.sources);
  fields.required("runs", fitted.runs, {0, kMostInteger});
  fields.required("sizes", fitted.sizes, kSize);
  fields.optional("cross_validated_mean", fitted.cross_validated_mean, {0, kMostError});
  fields.optional("cross_validated_p90", fitted.cross_validated_p90, {0, kMostError});
  fields.optional("unseen_sizes_mean", fitted.unseen_sizes_mean, {0, kMostError});
  fields.required("within_node", fitted.within_node, kSpread);
  fields.required("across_nodes", fitted.across_nodes, kSpread);
  fields.required("assumed_recompute", fitted.assumed_recompute, kAssumed);
  fields.required("values", fitted.values, kValue);
  fields.required("layers", fitted.layers, kLayer);
  fields.optional("learned", fitted.learned, kLearned);
};

/// The fit is one member of a file, which may hold measurements, too.
constexpr auto kFile = [](auto& fields, auto& fitted) { fields.required("fitted", fitted, kFit); };

/// The field that says what the group of a parameter rests on; null where the parameter labels no
/// time of an op.
RestsOn* basis_of_group(const FitParameter& parameter, Efficiency& efficiency) {
  switch (parameter.part) {
    case FitPart::level:
      return &efficiency.levels[parameter.level].rests_on;
    case FitPart::memory:
      return &efficiency.memory.rests_on;
    case FitPart::attention_forward:
      return &efficiency.attention_forward.rests_on;
    case FitPart::attention_backward:
      return &efficiency.attention_backward.rests_on;
    case FitPart::products_of_fp8:
      return &efficiency.matmul.fp8_rests_on;
    case FitPart::products:
    case FitPart::products_of_16_bits:
      return &efficiency.matmul.rests_on;
    case FitPart::products_by_rows:
    case FitPart::overlap:
    case FitPart::host_op:
    case FitPart::host:
      break;
  }
  return nullptr;
}

}  // namespace

std::string document_of(std::string_view source) {
  return std::string(source.substr(0, source.find_first_of("@, (")));
}

bool has_runs_of(const FittedCalibration& fitted, std::string_view document) {
  return !document.empty() &&
         std::any_of(fitted.sources.begin(), fitted.sources.end(),
                     [&](const std::string& source) { return document_of(source) == document; });
}

bool has_runs_of(const FittedCalibration& fitted, const ModelSize& size) {
  return std::ranges::find(fitted.sizes, size) != fitted.sizes.end();
}

std::string left_out_words(const FittedCalibration& fitted) {
  const auto mean = fitted.cross_validated_mean;
  return mean ? fmt::format(", {:.1f} % off runs left out", 100 * *mean) : "";
}

void apply(const FittedCalibration& fitted, Cluster& cluster, Framework& framework) {
  const std::vector<FitParameter> known = fit_parameters(cluster);
  for (const FittedValue& value : fitted.values) {
    const auto parameter = std::find_if(known.begin(), known.end(), [&](const FitParameter& other) {
      return other.name == value.name;
    });
    if (parameter == known.end()) {
      throw InputError("", "/fitted/values",
                       fmt::format("found {}, which {} has no such parameter for",
                                   printable(value.name), printable(cluster.name)));
    }
    parameter->set(cluster, framework, parameter->level, value.value);
    if (!value.determined) continue;
    RestsOn* group = basis_of_group(*parameter, *cluster.efficiency);
    if (group != nullptr) *group = value.typical ? RestsOn::typical : RestsOn::runs;
  }
}

FittedCalibration parse_fitted_calibration(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  return read_listed<FittedCalibration>(JsonObject(json, file), kFile);
}

std::string fitted_calibration_text(const FittedCalibration& fitted) {
  return json_text(listed_json(fitted, kFile));
}

}  // namespace plimsoll
