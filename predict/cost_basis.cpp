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
#include "models/framework/framework.h"
#include "models/presets/presets.h"
#include "predict/default_efficiency.h"
#include "predict/fit_transfer.h"
#include "predict/typical_calibration.h"

namespace plimsoll {
namespace {

using Rest = CalibrationChoice::Rest;

const std::string kOwnNumbers = "no calibration, ";

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

std::string fitted_words(const TransferredFit& transferred, const Framework& framework) {
  const FittedCalibration& fitted = transferred.fitted;
  std::string text =
      fmt::format("calibration fitted on {} published runs on {}, {:.1f} % off runs left out",
                  fitted.runs, fitted.cluster, 100 * fitted.cross_validated_mean);
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

void use_transferred(TransferredFit transferred, const std::string& name, std::string_view text,
                     CostBasis& basis) {
  basis.name = name;
  basis.digest = digest(text);
  basis.words =
      fmt::format("{}, {}", fitted_words(transferred, basis.framework), digest_words(basis.digest));
  use_fitted(std::move(transferred.fitted), basis);
}

/// A built-in fit of a device.
struct Known {
  std::string name;
  std::string_view text;
  FittedCalibration fitted;
};

/// But for those with runs of the document `left_out`.
std::vector<Known> fits_of_device(const Device& device, std::string_view left_out) {
  std::vector<Known> known;
  for (const Preset& preset : calibration_presets()) {
    const std::string name(preset.name);
    FittedCalibration fitted = parse_fitted_calibration(preset.text, name);
    if (device_difference(fitted.device, device).empty() && !has_runs_of(fitted, left_out))
      known.push_back({name, preset.text, std::move(fitted)});
  }
  return known;
}

std::string nothing_fitted_words(const CostBasis& basis, const std::vector<Known>& known) {
  std::string text = fmt::format("nothing was fitted for {} with {}", basis.cluster.device.name,
                                 basis.framework.name);
  std::vector<std::string> others;
  for (const Known& fit : known) {
    const std::string other = "--framework " + fit.fitted.framework;
    if (std::find(others.begin(), others.end(), other) == others.end()) others.push_back(other);
  }
  if (others.empty()) return text;
  return text +
         fmt::format("; {} {} a fit", fmt::join(others, ", "), others.size() == 1 ? "has" : "have");
}

/// The fit whose network is most like the cluster's; of equals the one with most runs.
bool use_best_fit(const std::vector<Known>& known, CostBasis& basis) {
  const Known* best = nullptr;
  TransferredFit chosen;
  for (const Known& fit : known) {
    if (fit.fitted.framework != calibrated_as(basis.framework)) continue;
    TransferredFit next = transfer(fit.fitted, basis.cluster, basis.framework);
    const auto rank = [](const TransferredFit& one) {
      return std::tuple(one.other_levels.size(), one.outermost_apart, -one.fitted.runs);
    };
    if (best != nullptr && rank(chosen) <= rank(next)) continue;
    best = &fit;
    chosen = std::move(next);
  }
  if (best == nullptr) return false;
  use_transferred(std::move(chosen), best->name, best->text, basis);
  return true;
}

/// Gives a cluster that states no efficiency the default one; returns how open that is.
double fill_efficiency(CostBasis& basis) {
  if (basis.cluster.efficiency) return 0;
  DefaultEfficiency known = default_efficiency(basis.cluster);
  basis.cluster.efficiency = std::move(known.efficiency);
  basis.efficiency_words = known.words;
  return known.open;
}

void forget_default_efficiency(CostBasis& basis) {
  if (basis.efficiency_words.empty()) return;
  basis.cluster.efficiency.reset();
  basis.efficiency_words.clear();
}

/// `open`: of the efficiency, beside what is open of what is typical.
bool use_typical(CostBasis& basis, double open, std::string_view left_out, const std::string& why) {
  auto typical = typical_calibration(basis.cluster, basis.framework, left_out);
  if (!typical) return false;
  if (open > 0) widen(*typical, open);
  basis.name = kTypicalCalibration;
  basis.digest = digest(fitted_calibration_text(*typical));
  basis.words = fmt::format("rates typical of training, {:.0f} % off runs of fits left out, {}{}",
                            100 * typical->cross_validated_mean, digest_words(basis.digest), why);
  use_fitted(std::move(*typical), basis);
  return true;
}

/// Fits, and what they have in common, are of GPUs that are all alike.
bool is_of_one_gpu(const Cluster& cluster) {
  return cluster.device.kind == DeviceKind::gpu && cluster.other_devices.empty();
}

void use_built_in(CostBasis& basis, std::string_view left_out) {
  if (!is_of_one_gpu(basis.cluster)) {
    basis.words = kOwnNumbers + own_numbers_words(basis.cluster);
    return;
  }
  const std::vector<Known> known = fits_of_device(basis.cluster.device, left_out);
  const double open = fill_efficiency(basis);
  if (use_best_fit(known, basis)) return;
  const std::string nothing = nothing_fitted_words(basis, known);
  if (use_typical(basis, open, left_out, fmt::format(" ({})", nothing))) return;
  forget_default_efficiency(basis);
  basis.words = fmt::format("{}{} ({})", kOwnNumbers, own_numbers_words(basis.cluster), nothing);
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

/// A fit for one device and framework says nothing about others.
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

/// Costs measured on one device say nothing about another.
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

void use_rest(const CalibrationChoice& choice, const std::string& cluster_file,
              std::string_view left_out, CostBasis& basis) {
  switch (choice.rest) {
    case Rest::built_in:
      use_built_in(basis, left_out);
      break;
    case Rest::typical:
      use_typical_alone(basis, left_out);
      break;
    case Rest::none:
      basis.words = kOwnNumbers + own_numbers_words(basis.cluster);
      break;
    case Rest::given:
      check_same_target(*choice.fitted, basis, choice.fitted_file, cluster_file);
      fill_efficiency(basis);
      use_transferred(transfer(*choice.fitted, basis.cluster, basis.framework), choice.fitted_file,
                      choice.fitted_text, basis);
      break;
  }
}

/// To a basis that has the rest.
void add_measured(const CalibrationChoice& choice, CostBasis& basis) {
  const CostBasis rest = basis;
  basis.measured = choice.measured;
  basis.framework = with_measured_memory(basis.framework, *choice.measured);
  basis.name = choice.measured_file;
  basis.digest = digest(choice.measured_text);
  basis.words = fmt::format("{}, {}", measured_words(*choice.measured), digest_words(basis.digest));
  if (!is_of_one_gpu(basis.cluster)) return;  // all that its ops and transfers are was measured
  const bool own = rest.words.starts_with(kOwnNumbers);
  basis.words += "; for the rest " + rest.words.substr(own ? kOwnNumbers.size() : 0);
  if (rest.name.empty() || rest.digest == basis.digest) return;  // nothing, or of the same file
  basis.name += ", else " + rest.name;
  basis.rest_digest = rest.digest;
}

}  // namespace

CostBasis cost_basis(Cluster cluster, Framework framework, const CalibrationChoice& choice,
                     const std::string& cluster_file, std::string_view left_out) {
  CostBasis basis;
  basis.cluster = std::move(cluster);
  basis.framework = std::move(framework);
  if (choice.measured)
    check_same_device(*choice.measured, basis.cluster, choice.measured_file, cluster_file);
  use_rest(choice, cluster_file, left_out, basis);
  if (choice.measured) add_measured(choice, basis);
  return basis;
}

}  // namespace plimsoll
