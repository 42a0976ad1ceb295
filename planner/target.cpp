// Target: reads the job, cluster and calibration that a command names.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/file.h"
#include "base/json.h"
#include "models/presets.h"
#include "planner/commands.h"
#include "planner/evaluate.h"
#include "planner/published_target.h"
#include "planner/search.h"
#include "planner/typical_calibration.h"

namespace plimsoll {
namespace {

/// Without --framework: the runtime that can run the plan here, or the usual one for GPUs.
Framework default_framework(DeviceKind kind) {
  return kind == DeviceKind::cpu_core ? bundled_framework() : framework_by_name("megatron-lm");
}

std::string calibration_provenance(const Target& target) {
  if (target.fitted && target.fitted->runs == 0) {
    return fmt::format("rates typical of training, {:.0f} % off runs of fits left out, digest {}",
                       100 * target.fitted->cross_validated_mean,
                       target.calibration_digest.substr(0, 12));
  }
  if (target.fitted) {
    return fmt::format(
        "calibration fitted on {} published runs, {:.1f} % off runs left out, digest {}",
        target.fitted->runs, 100 * target.fitted->cross_validated_mean,
        target.calibration_digest.substr(0, 12));
  }
  if (!target.calibration) {
    if (target.cluster.efficiency) {
      return "no calibration, efficiency of the cluster file";
    }
    return "no calibration, datasheet rates";
  }
  const CommunicatorKind communicator = target.calibration->communicator;
  const std::string_view ranks = communicator == CommunicatorKind::local ? "ranks are threads"
                                 : communicator == CommunicatorKind::mpi
                                     ? "ranks are processes over MPI"
                                     : "ranks over NCCL";
  const auto& points = target.calibration->collectives;
  const bool all_imported =
      !points.empty() && target.calibration->matmuls.empty() && target.calibration->ops.empty() &&
      std::all_of(points.begin(), points.end(),
                  [](const CollectivePoint& point) { return point.imported.has_value(); });
  if (all_imported) {
    return fmt::format("collectives imported from {} ({}) and nothing else measured, {}, digest {}",
                       points[0].imported->file, points[0].imported->date, ranks,
                       target.calibration_digest.substr(0, 12));
  }
  return fmt::format("calibration measured on {} ({} backend, {}), digest {}",
                     target.calibration->device, target.calibration->backend, ranks,
                     target.calibration_digest.substr(0, 12));
}

/// Costs measured on one device say nothing about another.
void check_same_device(const Calibration& calibration, const Cluster& cluster,
                       const TargetOptions& options) {
  if (calibration.device == cluster.device.name) return;
  throw InputError(
      options.calibration, "/device",
      fmt::format("found \"{}\"; the device of {} is \"{}\"", printable(calibration.device),
                  options.cluster, printable(cluster.device.name)));
}

/// What was fitted for one cluster and framework says nothing about others.
void check_same_target(const FittedCalibration& fitted, const Target& target,
                       const TargetOptions& options) {
  if (fitted.cluster != target.cluster.name) {
    throw InputError(options.calibration, "/fitted/cluster",
                     fmt::format("found \"{}\"; {} is \"{}\"", printable(fitted.cluster),
                                 options.cluster, printable(target.cluster.name)));
  }
  if (fitted.framework != calibrated_as(target.framework)) {
    throw InputError(options.calibration, "/fitted/framework",
                     fmt::format("found \"{}\"; the framework is {}", printable(fitted.framework),
                                 target.framework.name));
  }
}

void load_typical(const TargetOptions& options, Target& target) {
  target.fitted = typical_calibration(target.cluster, target.framework);
  if (!target.fitted) {
    throw InputError(options.calibration, "",
                     fmt::format("nothing is typical of {} with framework {}: it takes a cluster "
                                 "with efficiency and one of megatron-lm, "
                                 "megatron-core-deterministic, megatron-deepspeed, pytorch-fsdp "
                                 "and torchtitan's",
                                 printable(target.cluster.name), target.framework.name));
  }
  target.calibration_digest = digest(fitted_calibration_text(*target.fitted));
  apply(*target.fitted, target.cluster, target.framework);
}

void load_calibration(const TargetOptions& options, Target& target) {
  if (options.calibration == kTypicalCalibration) return load_typical(options, target);
  const std::string text = read_file_or_preset(options.calibration, calibration_presets());
  target.calibration_digest = digest(text);
  if (is_fitted_calibration(text, options.calibration)) {
    target.fitted = parse_fitted_calibration(text, options.calibration);
    check_same_target(*target.fitted, target, options);
    apply(*target.fitted, target.cluster, target.framework);
    return;
  }
  target.calibration = parse_calibration(text, options.calibration);
  target.framework = with_measured_memory(target.framework, *target.calibration);
  check_same_device(*target.calibration, target.cluster, options);
  if (!target.cluster.other_devices.empty()) {
    throw InputError(options.calibration, "/device",
                     fmt::format("{} has devices of other kinds, too, and nothing was measured on "
                                 "them: plan without a calibration",
                                 options.cluster));
  }
}

/// As its file has it.
Job stated_job(const TargetOptions& options) {
  Job job = read_job(options.job);
  if (options.global_batch) {
    job.global_batch = *options.global_batch;
    check_job(job, "--global-batch");
  }
  return job;
}

}  // namespace

Job load_job(const TargetOptions& options, const Framework& framework) {
  Job job = stated_job(options);
  job.vocab = padded_vocabulary(job.vocab, framework, 1);
  return job;
}

Framework load_framework(const TargetOptions& options) {
  if (!options.framework.empty()) return framework_by_name(options.framework);
  if (options.cluster.empty()) return bundled_framework();
  return default_framework(read_cluster(options.cluster).device.kind);
}

Target load_target(const TargetOptions& options) {
  Target target;
  target.job = stated_job(options);
  const std::string cluster = read_file_or_preset(options.cluster, cluster_presets());
  target.cluster = parse_cluster(cluster, options.cluster);
  target.cluster_digest = digest(cluster);
  target.framework = options.framework.empty() ? default_framework(target.cluster.device.kind)
                                               : framework_by_name(options.framework);
  target.stated_vocabulary = target.job.vocab;
  target.job.vocab = padded_vocabulary(target.job.vocab, target.framework, 1);
  if (!options.calibration.empty()) load_calibration(options, target);
  peak_rate(target.cluster, target.job.precision, options.devices, options.cluster);
  return target;
}

Strategy legal_strategy(const Job& job, const Framework& framework, const std::string& text,
                        std::int64_t devices) {
  const Strategy strategy = parse_strategy(text);
  Verdict verdict = legal(job, strategy, devices);
  if (verdict) verdict = legal(framework, strategy);
  if (!verdict) {
    throw InfeasibleError(fmt::format("{} cannot run as {}: {}", job.name,
                                      strategy_summary(strategy), verdict.reason()));
  }
  return strategy;
}

CostModel cost_model(const Target& target) {
  if (target.fitted) return CostModel(target.cluster, target.framework, *target.fitted);
  return CostModel(target.cluster, target.calibration, target.framework);
}

std::string headline(const Target& target, std::int64_t devices, bool oversubscribed) {
  const bool padded = target.job.vocab != target.stated_vocabulary;
  return fmt::format("{} on {} of {}{}; framework {}{}; {}", target.job.name, devices_text(devices),
                     target.cluster.name,
                     oversubscribed ? " (oversubscribed: makes no timing claim)" : "",
                     target.framework.name,
                     padded ? fmt::format(", vocabulary padded to {}", target.job.vocab) : "",
                     calibration_provenance(target));
}

std::string efficiency_line(const Target& target) {
  if (target.calibration || !target.cluster.efficiency) return "";
  const std::string name = target.cluster.name + "--" + calibrated_as(target.framework);
  std::string hint;
  if (!target.fitted && find_preset(calibration_presets(), name)) {
    hint = fmt::format("; --calibration {} was fitted on published runs", name);
  } else if (!target.fitted && typical_calibration(target.cluster, target.framework)) {
    hint = fmt::format("; --calibration {} has rates typical of training", kTypicalCalibration);
  }
  return fmt::format("  efficiency  {}{}\n", fits_of(target.cluster), hint);
}

Fixed parse_fixed(const std::vector<std::string>& pairs) {
  Fixed fixed;
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("--fix {}: expected KEY=VALUE", pair));
    }
    const std::string key = pair.substr(0, equals);
    const bool again = std::any_of(fixed.begin(), fixed.end(),
                                   [&](const auto& known) { return known.first == key; });
    if (again) throw UsageError(fmt::format("--fix {} is given twice", key));
    fixed.emplace_back(key, pair.substr(equals + 1));
  }
  return fixed;
}

Bytes parse_reserve(const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--reserve: {}", error.what()));
  }
}

Seconds parse_time_limit(const std::string& text) {
  Seconds limit;
  try {
    limit = parse_seconds(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--time-limit: {}", error.what()));
  }
  if (limit.value() > 0 && limit <= kLongestTimeLimit) return limit;
  throw UsageError(
      fmt::format("--time-limit: found \"{}\"; it must be above 0 s and at most 1e6 s", text));
}

}  // namespace plimsoll
