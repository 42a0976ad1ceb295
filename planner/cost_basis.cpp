#include "planner/cost_basis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/presets.h"
#include "planner/published_target.h"
#include "planner/typical_calibration.h"

namespace plimsoll {
namespace {

using Rest = CalibrationChoice::Rest;

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
    return fmt::format("collectives imported from {} ({}) and nothing else measured, {}",
                       points[0].imported->file, points[0].imported->date, ranks);
  }
  return fmt::format("calibration measured on {} ({} backend, {})", calibration.device,
                     calibration.backend, ranks);
}

std::string fitted_words(const FittedCalibration& fitted) {
  return fmt::format("calibration fitted on {} published runs on {}, {:.1f} % off runs left out",
                     fitted.runs, fitted.cluster, 100 * fitted.cross_validated_mean);
}

void use_fitted(FittedCalibration fitted, CostBasis& basis) {
  apply(fitted, basis.cluster, basis.framework);
  basis.fitted = std::move(fitted);
}

/// Names of the frameworks with a fit of this cluster, as --framework takes them.
std::vector<std::string> frameworks_with_a_fit(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Preset& preset : calibration_presets()) {
    const std::string start = cluster.name + "--";
    if (preset.name.starts_with(start)) names.emplace_back(preset.name.substr(start.size()));
  }
  return names;
}

std::string nothing_fitted_words(const Cluster& cluster, const Framework& framework) {
  std::string text =
      fmt::format("nothing was fitted for {} with {}", cluster.name, framework.name);
  const std::vector<std::string> others = frameworks_with_a_fit(cluster);
  if (others.empty()) return text;
  return text + fmt::format(", for it there is --framework {}", fmt::join(others, ", "));
}

bool use_typical(CostBasis& basis, const std::string& why) {
  auto typical = typical_calibration(basis.cluster, basis.framework);
  if (!typical) return false;
  basis.name = kTypicalCalibration;
  basis.digest = digest(fitted_calibration_text(*typical));
  basis.words = fmt::format("rates typical of training, {:.0f} % off runs of fits left out, {}{}",
                            100 * typical->cross_validated_mean, digest_words(basis.digest), why);
  use_fitted(std::move(*typical), basis);
  return true;
}

void use_built_in(CostBasis& basis) {
  const std::string name = basis.cluster.name + "--" + calibrated_as(basis.framework);
  if (const auto text = find_preset(calibration_presets(), name)) {
    FittedCalibration fitted = parse_fitted_calibration(*text, name);
    basis.name = name;
    basis.digest = digest(*text);
    basis.words = fmt::format("{}, {}", fitted_words(fitted), digest_words(basis.digest));
    return use_fitted(std::move(fitted), basis);
  }
  const std::string nothing = nothing_fitted_words(basis.cluster, basis.framework);
  if (use_typical(basis, fmt::format(" ({})", nothing))) return;
  if (basis.cluster.device.kind == DeviceKind::cpu_core) {
    basis.words = fmt::format("no calibration, {}", own_numbers_words(basis.cluster));
  } else {
    basis.words =
        fmt::format("no calibration, {} ({})", own_numbers_words(basis.cluster), nothing);
  }
}

/// What was fitted for one cluster and framework says nothing about others.
void check_same_target(const FittedCalibration& fitted, const CostBasis& basis,
                       const std::string& file, const std::string& cluster_file) {
  if (fitted.cluster != basis.cluster.name) {
    throw InputError(file, "/fitted/cluster",
                     fmt::format("found \"{}\"; {} is \"{}\"", printable(fitted.cluster),
                                 cluster_file, printable(basis.cluster.name)));
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

}  // namespace

CalibrationChoice own_numbers() {
  CalibrationChoice choice;
  choice.rest = Rest::none;
  return choice;
}

CalibrationChoice read_calibration_choice(const std::string& name) {
  CalibrationChoice choice;
  if (name.empty() || name == kBuiltInCalibration) return choice;
  if (name == kTypicalCalibration || name == kNoCalibration) {
    choice.rest = name == kTypicalCalibration ? Rest::typical : Rest::none;
    return choice;
  }
  std::error_code unknown;  // of a name too long, say: reading it tells
  if (!std::filesystem::exists(name, unknown) && !unknown &&
      !find_preset(calibration_presets(), name)) {
    std::vector<std::string_view> names;
    for (const Preset& preset : calibration_presets()) names.push_back(preset.name);
    throw InputError(name, "",
                     fmt::format("no such file; nor is it {}, {}, {} or a fit that is built in, "
                                 "which are {}",
                                 kBuiltInCalibration, kTypicalCalibration, kNoCalibration,
                                 fmt::join(names, ", ")));
  }
  choice.file = name;
  choice.text = read_file_or_preset(name, calibration_presets());
  if (is_fitted_calibration(choice.text, name)) {
    choice.rest = Rest::given;
    choice.fitted = parse_fitted_calibration(choice.text, name);
  } else {
    choice.rest = Rest::none;
    choice.measured = parse_calibration(choice.text, name);
  }
  return choice;
}

CostBasis cost_basis(Cluster cluster, Framework framework, const CalibrationChoice& choice,
                     const std::string& cluster_file) {
  CostBasis basis;
  basis.cluster = std::move(cluster);
  basis.framework = std::move(framework);
  if (choice.measured) {
    check_same_device(*choice.measured, basis.cluster, choice.file, cluster_file);
    basis.framework = with_measured_memory(basis.framework, *choice.measured);
    basis.measured = choice.measured;
    basis.name = choice.file;
    basis.digest = digest(choice.text);
    basis.words =
        fmt::format("{}, {}", measured_words(*choice.measured), digest_words(basis.digest));
    return basis;
  }
  switch (choice.rest) {
    case Rest::built_in:
      use_built_in(basis);
      break;
    case Rest::typical:
      if (!use_typical(basis, "")) {
        throw InputError(
            std::string(kTypicalCalibration), "",
            fmt::format("nothing is typical of {} with framework {}: it takes a cluster "
                        "with efficiency and one of megatron-lm, "
                        "megatron-core-deterministic, megatron-deepspeed, pytorch-fsdp "
                        "and torchtitan's",
                        printable(basis.cluster.name), basis.framework.name));
      }
      break;
    case Rest::none:
      basis.words = fmt::format("no calibration, {}", own_numbers_words(basis.cluster));
      break;
    case Rest::given:
      check_same_target(*choice.fitted, basis, choice.file, cluster_file);
      basis.name = choice.file;
      basis.digest = digest(choice.text);
      basis.words = fmt::format("{}, {}", fitted_words(*choice.fitted), digest_words(basis.digest));
      use_fitted(*choice.fitted, basis);
      break;
  }
  return basis;
}

}  // namespace plimsoll
