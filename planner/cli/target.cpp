// Target: reads the job, cluster and calibration that a command names.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/file.h"
#include "models/presets/presets.h"
#include "planner/cli/commands.h"
#include "planner/search/search.h"
#include "predict/cost_basis.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

/// Without --framework: the runtime that can run the plan here, or the usual one for GPUs.
Framework default_framework(DeviceKind kind) {
  return kind == DeviceKind::cpu_core ? bundled_framework() : framework_by_name("megatron-lm");
}

/// As its file has it.
Job read_stated_job(const TargetOptions& options) {
  Job job = read_job(options.job);
  if (options.global_batch) {
    job.global_batch = *options.global_batch;
    check_job(job, "--global-batch");
  }
  return job;
}

/// Where --devices was left out.
std::int64_t all_devices(const Cluster& cluster, const TargetOptions& options) {
  if (!cluster.nodes) {
    throw UsageError(fmt::format(
        "--devices is required: {} does not state how many nodes there are", options.cluster));
  }
  const std::int64_t devices = *cluster.nodes * cluster.devices_per_node;
  if (devices <= kMostDevices) return devices;
  throw UsageError(fmt::format("--devices is required: {} has more than {} devices",
                               options.cluster, kMostDevices));
}

}  // namespace

Job load_job(const TargetOptions& options, const Framework& framework) {
  Job job = read_stated_job(options);
  job.vocab = padded_vocabulary(job.vocab, framework, 1);
  return job;
}

Framework load_framework(const TargetOptions& options) {
  if (!options.framework.empty()) return read_framework(options.framework);
  if (options.cluster.empty()) return bundled_framework();
  return default_framework(read_cluster(options.cluster).device.kind);
}

Target load_target(const TargetOptions& options) {
  Target target;
  target.job = read_stated_job(options);
  const std::string cluster = read_file_or_preset(options.cluster, cluster_presets());
  target.cluster = parse_cluster(cluster, options.cluster);
  target.cluster_digest = digest(cluster);
  Framework framework = options.framework.empty() ? default_framework(target.cluster.device.kind)
                                                  : read_framework(options.framework);
  CostBasis basis = cost_basis(std::move(target.cluster), std::move(framework),
                               read_calibration_choice(options.calibration), options.cluster);
  target.cluster = std::move(basis.cluster);
  target.framework = std::move(basis.framework);
  target.calibration = std::move(basis.measured);
  target.fitted = std::move(basis.fitted);
  target.calibration_words = basis.words;
  target.calibration_name = basis.name;
  target.efficiency_words = basis.efficiency_words;
  target.calibration_digest = basis.digest;
  target.calibration_rest_digest = basis.rest_digest;
  target.stated_vocabulary = target.job.vocab;
  target.job.vocab = padded_vocabulary(target.job.vocab, target.framework, 1);
  target.devices = options.devices > 0 ? options.devices : all_devices(target.cluster, options);
  peak_rate(target.cluster, target.job.precision, target.devices, options.cluster);
  return target;
}

Strategy legal_strategy(const Job& job, const Framework& framework, const std::string& text,
                        std::int64_t devices) {
  const Strategy strategy = parse_strategy(text);
  Verdict verdict = legal(job, strategy, devices);
  if (verdict) verdict = legal(framework, job, strategy);
  if (!verdict) {
    throw InfeasibleError(fmt::format("{} cannot run as {}: {}", job.name,
                                      strategy_summary(strategy), verdict.reason()));
  }
  return strategy;
}

Job stated_job(const Target& target) {
  Job job = target.job;
  job.vocab = target.stated_vocabulary;
  return job;
}

CostModel cost_model(const Target& target) {
  return CostModel(target.cluster, target.calibration, target.framework, target.fitted);
}

std::string headline(const Target& target, std::int64_t devices, bool oversubscribed) {
  const bool padded = target.job.vocab != target.stated_vocabulary;
  return fmt::format("{} on {} of {}{}; framework {}{}; {}", target.job.name, devices_text(devices),
                     target.cluster.name,
                     oversubscribed ? " (oversubscribed: makes no timing claim)" : "",
                     target.framework.name,
                     padded ? fmt::format(", vocabulary padded to {}", target.job.vocab) : "",
                     target.calibration_words);
}

std::string efficiency_line(const Target& target) {
  const bool of_runs = target.fitted && target.fitted->runs > 0;
  const bool measured = target.calibration && !target.calibration->matmuls.empty();
  if (of_runs || measured || !target.cluster.efficiency) return "";
  return fmt::format("  efficiency  {}\n", target.efficiency_words.empty()
                                               ? fits_of(target.cluster)
                                               : target.efficiency_words);
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
