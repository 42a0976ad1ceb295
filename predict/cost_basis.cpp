// Picks among measured points, fits, typical rates and the cluster's own numbers.
#include "predict/cost_basis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/calibration/measured_framework.h"
#include "models/cluster/gpu_generation.h"
#include "models/framework/framework.h"
#include "models/presets/presets.h"
#include "predict/default_efficiency.h"
#include "predict/fit_transfer.h"

namespace plimsoll {
namespace {

using Rest = CalibrationChoice::Rest;

/// Whose steps are predicted: a document's, or the user's own if both are empty.
struct Steps {
  std::string_view document;
  std::string_view left_out;  ///< `document`, if its runs do not count
};

std::string digest_words(const std::string& digest) { return "digest " + digest.substr(0, 12); }

std::string own_numbers_words(const Cluster& cluster) {
  return cluster.efficiency ? "efficiency of the cluster file" : "datasheet rates";
}

std::string measured_words(const Calibration& calibration) {
  const CommunicatorKind communicator = calibration.communicator;
  const std::string_view ranks = communicator == CommunicatorKind::local ? "ranks are threads"
                                 : communicator == CommunicatorKind::mpi
                                     ? "ranks are processes over MPI"
                                     : "ranks over NCCL";
  const auto& points = calibration.collectives;
  const bool all_imported =
      !points.empty() && calibration.matmuls.empty() && calibration.ops.empty() &&
      std::all_of(points.begin(), points.end(),
                  [](const CollectivePoint& point) { return point.imported.has_value(); });
  if (all_imported) {
    return fmt::format("collectives imported from {} ({}), {}", points[0].imported->file,
                       points[0].imported->date, ranks);
  }
  return fmt::format("calibration measured on {} ({} backend, {})", calibration.device,
                     calibration.backend, ranks);
}

/// Runs of a user's own fit may be the user's own, too.
std::string fitted_words(const TransferredFit& transferred, const std::string& name,
                         const Framework& framework, bool built_in) {
  const FittedCalibration& fitted = transferred.fitted;
  std::string text =
      fitted.learned
          ? fmt::format("calibration {}, learned from {} {} on {}", name, fitted.runs,
                        fitted.runs == 1 ? "run" : "runs", fitted.cluster)
          : fmt::format("calibration fitted on {} {}runs on {}{}", fitted.runs,
                        built_in ? "published " : "", fitted.cluster, left_out_words(fitted));
  if (transferred.other_levels.empty()) return text;
  const bool typical = describes_training(framework);
  return text + fmt::format(" (but {}: {} there, and a wider interval)",
                            fmt::join(transferred.other_levels, ", "),
                            typical ? "rates typical of training" : "the cluster's own rates");
}

void use_fitted(FittedCalibration fitted, CostBasis& basis) {
  apply(fitted, basis.cluster, basis.framework);
  basis.fitted = std::move(fitted);
}

/// Whether a fit is built in, by its name, or as it lies in a file with measurements over it.
bool is_built_in(const std::string& name, const FittedCalibration& fitted) {
  if (find_preset(calibration_presets(), name) || find_preset(fold_presets(), name)) return true;
  return std::ranges::any_of(calibration_presets(), [&](const Preset& preset) {
    return parse_fitted_calibration(preset.text, std::string(preset.name)).sources ==
           fitted.sources;
  });
}

void use_transferred(TransferredFit transferred, const std::string& name, std::string_view text,
                     const Steps& steps, CostBasis& basis) {
  basis.source.name = name;
  basis.source.digest = digest(text);
  const bool built_in = is_built_in(name, transferred.fitted);
  basis.source.words =
      fmt::format("{}, {}", fitted_words(transferred, name, basis.framework, built_in),
                  digest_words(basis.source.digest));
  // Another fit that is given as a file is of the user's own runs.
  FittedCalibration& fitted = transferred.fitted;
  fitted.of_same_people = steps.document.empty() ? !built_in : has_runs_of(fitted, steps.document);
  if (!fitted.of_same_people) shrink(fitted, basis.cluster, basis.framework, steps.left_out);
  use_fitted(std::move(transferred.fitted), basis);
}

/// A built-in fit of a device.
struct BuiltInFit {
  std::string name;
  std::string_view text;
  FittedCalibration fitted;
};

/// Returns the built-in fits of a device, without those that have runs of the document `left_out`.
/// In place of these come the same fits without that document.
std::vector<BuiltInFit> fits_of_device(const Device& device, std::string_view left_out) {
  std::vector<BuiltInFit> known;
  const auto is_known = [&](const FittedCalibration& fitted) {
    return std::ranges::any_of(known, [&](const BuiltInFit& fit) {
      return fit.fitted.cluster == fitted.cluster && fit.fitted.framework == fitted.framework;
    });
  };
  const auto add = [&](const std::vector<Preset>& presets) {
    for (const Preset& preset : presets) {
      const std::string name(preset.name);
      FittedCalibration fitted = parse_fitted_calibration(preset.text, name);
      if (device_difference(fitted.device, device).empty() && !has_runs_of(fitted, left_out) &&
          !is_known(fitted))
        known.push_back({name, preset.text, std::move(fitted)});
    }
  };
  add(calibration_presets());
  if (!left_out.empty()) add(fold_presets());
  return known;
}

std::string nothing_fitted_words(const CostBasis& basis, const std::vector<BuiltInFit>& known) {
  std::string text = fmt::format("nothing was fitted for {} with {}", basis.cluster.device.name,
                                 basis.framework.name);
  std::vector<std::string> others;
  for (const BuiltInFit& fit : known) {
    const std::string other = "--framework " + fit.fitted.framework;
    if (std::find(others.begin(), others.end(), other) == others.end()) others.push_back(other);
  }
  if (others.empty()) return text;
  return text +
         fmt::format("; {} {} a fit", fmt::join(others, ", "), others.size() == 1 ? "has" : "have");
}

/// Uses the fit whose network is most like the cluster's, among equals the one with most runs.
/// Returns false where there is no fit for the framework.
bool use_best_fit(const std::vector<BuiltInFit>& known, const Steps& steps, CostBasis& basis) {
  const BuiltInFit* best = nullptr;
  TransferredFit chosen;
  for (const BuiltInFit& fit : known) {
    if (fit.fitted.framework != calibrated_as(basis.framework)) continue;
    TransferredFit next = transfer(fit.fitted, basis.cluster, basis.framework, steps.left_out);
    const auto rank = [](const TransferredFit& one) {
      return std::tuple(one.other_levels.size(), one.outermost_apart, -one.fitted.runs);
    };
    if (best != nullptr && rank(chosen) <= rank(next)) continue;
    best = &fit;
    chosen = std::move(next);
  }
  if (best == nullptr) return false;
  use_transferred(std::move(chosen), best->name, best->text, steps, basis);
  return true;
}

/// Gives a cluster of GPUs that states no efficiency the default one; returns how open that is.
double fill_efficiency(CostBasis& basis) {
  if (basis.cluster.efficiency || basis.cluster.device.kind != DeviceKind::gpu) return 0;
  DefaultEfficiency known = default_efficiency(basis.cluster);
  basis.cluster.efficiency = std::move(known.efficiency);
  basis.source.efficiency_words = known.words;
  return known.open;
}

void forget_default_efficiency(CostBasis& basis) {
  if (basis.source.efficiency_words.empty()) return;
  basis.cluster.efficiency.reset();
  basis.source.efficiency_words.clear();
}

/// Uses typical rates, with intervals wider by `open`, the error of the efficiency. Returns false
/// where no rates are typical.
bool use_typical(CostBasis& basis, double open, std::string_view left_out, const std::string& why) {
  auto typical = typical_calibration(basis.cluster, basis.framework, left_out);
  if (!typical) return false;
  if (open > 0) widen(*typical, open);
  basis.source.name = kTypicalCalibration;
  basis.source.digest = digest(fitted_calibration_text(*typical));
  basis.source.words =
      fmt::format("rates typical of training, {:.0f} % off runs of fits left out, {}{}",
                  100 * *typical->cross_validated_mean, digest_words(basis.source.digest), why);
  use_fitted(std::move(*typical), basis);
  return true;
}

/// Whether the cluster has GPUs that are all alike. Only such clusters have fits and typical rates.
bool is_of_one_gpu(const Cluster& cluster) {
  return cluster.device.kind == DeviceKind::gpu && cluster.other_devices.empty();
}

void use_built_in(CostBasis& basis, const Steps& steps) {
  if (!is_of_one_gpu(basis.cluster)) {
    basis.source.words = own_numbers_words(basis.cluster);
    return;
  }
  const std::vector<BuiltInFit> known = fits_of_device(basis.cluster.device, steps.left_out);
  const double open = fill_efficiency(basis);
  if (use_best_fit(known, steps, basis)) return;
  const std::string nothing = nothing_fitted_words(basis, known);
  if (use_typical(basis, open, steps.left_out, fmt::format(" ({})", nothing))) return;
  forget_default_efficiency(basis);
  basis.source.words = fmt::format("{} ({})", own_numbers_words(basis.cluster), nothing);
}

void use_typical_alone(CostBasis& basis, std::string_view left_out) {
  const std::string asked(kTypicalCalibration);
  if (!is_of_one_gpu(basis.cluster)) {
    throw InputError(asked, "",
                     fmt::format("nothing is typical of {}: it takes GPUs that are all alike",
                                 printable(basis.cluster.name)));
  }
  if (!use_typical(basis, fill_efficiency(basis), left_out, "")) {
    throw InputError(
        asked, "",
        fmt::format("it does not describe framework {}: --calibration none", basis.framework.name));
  }
}

/// Refuses a fit for another device or framework.
void check_same_target(const FittedCalibration& fitted, const CostBasis& basis,
                       const std::string& file, const std::string& cluster_file) {
  const std::string other = device_difference(fitted.device, basis.cluster.device);
  if (!other.empty()) {
    throw InputError(file, "/fitted/device",
                     fmt::format("fitted on \"{}\"; the device of {} is another: {}",
                                 printable(fitted.device.name), cluster_file, other));
  }
  if (!basis.cluster.other_devices.empty()) {
    throw InputError(
        file, "/fitted/device",
        fmt::format("{} has devices of other kinds, too: --calibration none", cluster_file));
  }
  if (fitted.framework != calibrated_as(basis.framework)) {
    throw InputError(file, "/fitted/framework",
                     fmt::format("found \"{}\"; the framework is {}", printable(fitted.framework),
                                 basis.framework.name));
  }
}

/// Refuses costs that were measured on another device.
void check_same_device(const Calibration& calibration, const Cluster& cluster,
                       const std::string& file, const std::string& cluster_file) {
  if (calibration.device != cluster.device.name) {
    throw InputError(
        file, "/device",
        fmt::format("found \"{}\"; the device of {} is \"{}\"", printable(calibration.device),
                    cluster_file, printable(cluster.device.name)));
  }
  if (!cluster.other_devices.empty()) {
    throw InputError(file, "/device",
                     fmt::format("{} has devices of other kinds, too, and nothing was measured on "
                                 "them: plan with --calibration none",
                                 cluster_file));
  }
}

void use_rest(const CalibrationChoice& choice, const std::string& cluster_file, const Steps& steps,
              CostBasis& basis) {
  switch (choice.rest) {
    case Rest::built_in:
      use_built_in(basis, steps);
      break;
    case Rest::typical:
      use_typical_alone(basis, steps.left_out);
      break;
    case Rest::none:
      basis.source.words = own_numbers_words(basis.cluster);
      break;
    case Rest::given:
      check_same_target(*choice.fitted, basis, choice.fitted_file, cluster_file);
      if (basis.cluster.device.kind != DeviceKind::gpu && !choice.measured) {
        throw InputError(choice.fitted_file, "/fitted/device",
                         "it was learned with a calibration of CPU cores, which is required, too");
      }
      fill_efficiency(basis);
      use_transferred(transfer(*choice.fitted, basis.cluster, basis.framework, steps.left_out),
                      choice.fitted_file, choice.fitted_text, steps, basis);
      break;
  }
}

/// Adds measured costs to a basis that has the costs of the rest.
void add_measured(const CalibrationChoice& choice, CostBasis& basis) {
  const CostBasis rest = basis;
  basis.measured = choice.measured;
  basis.framework = with_measured_memory(basis.framework, *choice.measured);
  basis.source.name = choice.measured_file;
  basis.source.digest = digest(choice.measured_text);
  basis.source.words =
      fmt::format("{}, {}", measured_words(*choice.measured), digest_words(basis.source.digest));
  const bool all_measured = !is_of_one_gpu(basis.cluster);
  if (all_measured && !basis.fitted) return;
  basis.source.words += "; for the rest " + rest.source.words;
  if (rest.source.name.empty() || rest.source.digest == basis.source.digest)
    return;  // nothing, or of the same file
  basis.source.name += ", else " + rest.source.name;
  basis.source.rest_digest = rest.source.digest;
}

/// Lets products in TF32 have their rate on this device, and takes from the framework the attention
/// kernel that the device does not have.
void use_kernels_of(Device& device, CostBasis& basis) {
  const GpuGeneration* generation = generation_named(device.name);
  if (generation == nullptr) return;
  Framework& framework = basis.framework;
  if (framework.kernels.products.tf32 && generation->tf32_of_16_bits && device.peak_bf16)
    device.peak_fp32 = *generation->tf32_of_16_bits * *device.peak_bf16;
  if (!framework.kernels.attention.flash || !generation->without_flash_attention) return;
  framework.kernels.attention.flash = framework.kernels.attention.by_parts = false;
  basis.source.assumed = device.name + " has no flash attention, so scores are kept";
  basis.source.words += "; " + basis.source.assumed;
}

/// Whether all devices multiply 8-bit operands as they lie.
bool multiplies_untransposed_fp8(const Cluster& cluster) {
  const auto does = [](const Device& device) {
    const GpuGeneration* generation = generation_named(device.name);
    return generation != nullptr && generation->untransposed_fp8;
  };
  return does(cluster.device) &&
         std::ranges::all_of(cluster.other_devices,
                             [&](const OtherDevices& others) { return does(others.device); });
}

}  // namespace

CostBasis cost_basis(Cluster cluster, Framework framework, const CalibrationChoice& choice,
                     const std::string& cluster_file, std::string_view document) {
  CostBasis basis;
  basis.cluster = std::move(cluster);
  basis.framework = std::move(framework);
  if (choice.measured)
    check_same_device(*choice.measured, basis.cluster, choice.measured_file, cluster_file);
  const Steps steps{document, choice.leave_out_source ? document : std::string_view()};
  use_rest(choice, cluster_file, steps, basis);
  if (choice.measured) add_measured(choice, basis);
  if (basis.source.name.empty()) basis.source.words = "no calibration, " + basis.source.words;
  use_kernels_of(basis.cluster.device, basis);
  for (OtherDevices& others : basis.cluster.other_devices) use_kernels_of(others.device, basis);
  const SetOf<Fp8>& recipes = basis.framework.can.precision.fp8.value;
  const bool scales_tensors = recipes.has(Fp8::delayed) || recipes.has(Fp8::current);
  if (scales_tensors && multiplies_untransposed_fp8(basis.cluster))
    basis.framework.kernels.products.untransposed_fp8 = true;
  return basis;
}

}  // namespace plimsoll
