// Reads the job, cluster and calibration that a command names.
#include "planner/api/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "interop/imports/imported.h"
#include "models/framework/framework_json.h"
#include "models/kinds/file_kind.h"
#include "models/presets/preset_names.h"
#include "passes/strategy/strategy_fields.h"
#include "plan/plan.h"
#include "planner/api/learned_files.h"
#include "planner/explore/search_request.h"
#include "predict/default_efficiency.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

/// Returns the framework without --framework: the bundled runtime on CPU cores, else the usual one.
/// Jobs with experts get a dispatcher that sends a token once to each node, as the recipes of
/// Megatron Core for such models have it (--moe-token-dispatcher-type flex).
Framework default_framework(DeviceKind kind, bool experts) {
  if (kind == DeviceKind::cpu_core) return bundled_framework();
  return framework_by_name(experts ? "megatron-lm-flex" : "megatron-lm");
}

/// Notes how a file was read. Throws InputError for unknown flags, unless they are to be ignored.
void note_import(const TargetOptions& options, const Imported& imported, const std::string& file) {
  if (!options.ignore_unknown) refuse_unknown(imported, file);
  for (const std::string& note : imported.notes)
    options.note(in_columns(fmt::format("{}: {}\n", file, note)));
  for (const UnknownFlag& unknown : imported.unknown) {
    options.note(
        fmt::format("{}: {} is not known and left out; it may change model, memory and "
                    "time\n",
                    file, text_of(unknown)));
  }
  if (!imported.unread.empty()) {
    options.note(in_columns(
        fmt::format("{}: no part of the job: {}\n", file, fmt::join(imported.unread, ", "))));
  }
}

/// Notes which preset a name was taken for.
void note_preset(const TargetOptions& options, const char* what, const std::string& word,
                 const std::vector<Preset>& presets) {
  std::error_code unknown;
  if (options.texts.contains(word) || std::filesystem::exists(word, unknown) || unknown) return;
  const auto meant = preset_meant(word, presets);
  if (meant && *meant != word)
    options.note(fmt::format("{} {}: the preset {}\n", what, printable(word), *meant));
}

/// Reads a job file, a preset, or a file of another tool that has a job.
Job read_job_or_import(const TargetOptions& options) {
  const std::string& name = options.job;
  const std::string text = given_text(options.texts, name, job_presets());
  note_preset(options, "job", name, job_presets());
  if (!is_importable(text)) return parse_job(text, name);
  ImportGiven given;
  if (options.from.empty()) given.vocab = options.vocab;
  const Imported imported = import_text(text, name, given);
  if (!options.ignore_unknown) refuse_unknown(imported, name);
  if (!imported.job) {
    const char* missing = imported.framework ? "model; give it with --from, and a JOB" : "job";
    throw InputError(name, "", fmt::format("a {} has no {}", imported.kind, missing));
  }
  options.note(fmt::format("{}: {}, as planner import reads it\n", name, imported.kind));
  for (const std::string& note : imported.notes)
    options.note(in_columns(fmt::format("  {}\n", note)));
  return *imported.job;
}

/// Returns the framework that is named, else the one of a script, else the usual one.
Framework framework_of(const TargetOptions& options, DeviceKind kind, bool experts) {
  const auto given = options.texts.find(options.framework);
  if (given != options.texts.end()) return framework_of_text(given->second, given->first);
  if (!options.framework.empty()) return read_framework(options.framework);
  return options.imported ? *options.imported->framework : default_framework(kind, experts);
}

/// A script is of one strategy, whose mp the vocabulary is padded for.
std::int64_t padded_for(const TargetOptions& options) {
  return options.imported && options.imported->strategy ? options.imported->strategy->mp : 1;
}

/// Returns all devices of the cluster, for commands without --devices.
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

/// Splits "8xh100" into 8 and "h100". Returns nothing for other words.
std::optional<std::pair<std::int64_t, std::string>> split_count(const std::string& word) {
  const std::size_t times = word.find_first_not_of("0123456789");
  if (times == word.npos || times == 0 || word[times] != 'x') return std::nullopt;
  const std::string count = word.substr(0, times);
  if (const std::string why = refuse_integer(count, 1, kMostDevices); !why.empty())
    throw UsageError(fmt::format("--cluster: the number in front of \"x\": {}", why));
  return std::pair(std::stoll(count), word.substr(times + 1));
}

std::int64_t devices_per_node(const TargetOptions& options, const std::string& name) {
  return parse_cluster(given_text(options.texts, name, cluster_presets()), name).devices_per_node;
}

/// Replaces the bandwidth between nodes.
void set_network(Cluster& cluster, BytesPerSecond network, const std::string& name) {
  if (cluster.levels.empty() || is_within_node(cluster, cluster.levels.size() - 1))
    throw InputError(name, "/levels", "no network between nodes is stated, as --network needs");
  cluster.levels.back().bandwidth = network;
}

/// Reads a script. A plan of this project states as much as a script does.
Imported read_script(const std::string& file, const ImportGiven& given) {
  const std::string text = read_file(file);
  if (file_kind(Json::parse(text, nullptr, false)) != FileKind::plan)
    return import_text(text, file, given);
  Plan plan = parse_plan(text, file);
  if (given.job) throw UsageError("found JOB and --from; the plan that --from names has the job");
  if (given.devices.value_or(plan.devices) != plan.devices)
    throw UsageError(fmt::format("{} is for {} devices", file, plan.devices));
  if (plan.stated_vocabulary > 0) plan.job.vocab = plan.stated_vocabulary;
  Imported imported;
  imported.kind = "plan";
  imported.job = std::move(plan.job);
  imported.strategy = std::move(plan.strategy);
  imported.framework = std::move(plan.framework);
  imported.devices = plan.devices;
  return imported;
}

}  // namespace

NamedCluster named_cluster(const TargetOptions& options) {
  const std::string& word = options.cluster;
  if (word.empty()) {
    throw UsageError(
        "--cluster is required: a file, or a name such as h100 or 8xh100; planner list clusters "
        "prints the names");
  }
  std::error_code unknown;  // of a name too long, say: reading it tells
  const bool is_file = std::filesystem::exists(word, unknown) || unknown;
  const auto counted = options.texts.contains(word) || is_file ? std::nullopt : split_count(word);
  if (!counted) return {word, options.devices};
  auto [devices, name] = *counted;
  if (const auto node = split_count(name)) {  // 2x8xh100: nodes, devices of each
    const std::int64_t per_node = devices_per_node(options, node->second);
    if (node->first != per_node) {
      throw UsageError(fmt::format("--cluster {}: nodes of {} have {} devices, not {}", word,
                                   node->second, per_node, node->first));
    }
    name = node->second;
    devices *= per_node;
  } else if (names_node(name)) {
    devices *= devices_per_node(options, name);
  }
  if (devices > kMostDevices)
    throw UsageError(
        fmt::format("--cluster {} has {} devices, more than {}", word, devices, kMostDevices));
  if (options.devices > 0 && options.devices != devices) {
    throw UsageError(fmt::format("--cluster {} has {} devices, and {} are required", word, devices,
                                 options.devices));
  }
  return {name, devices};
}

std::string cluster_file(const std::string& word, std::int64_t devices, const GivenTexts& texts) {
  TargetOptions options;
  options.cluster = word;
  options.devices = devices;
  options.texts = texts;
  return named_cluster(options).name;
}

std::string given_text(const GivenTexts& texts, const std::string& name,
                       const std::vector<Preset>& presets) {
  const auto given = texts.find(name);
  return given == texts.end() ? read_file_or_preset(name, presets) : given->second;
}

Job read_stated_job(const TargetOptions& options) {
  Job job = options.imported ? *options.imported->job : read_job_or_import(options);
  if (options.global_batch) {
    job.global_batch = *options.global_batch;
    check_job(job, "--global-batch");
  }
  if (options.sequence) {
    job.sequence = *options.sequence;
    check_job(job, "--sequence");
  }
  return job;
}

void read_from(TargetOptions& options) {
  if (options.from.empty()) {
    if (options.job.empty()) throw UsageError("JOB is required");
    return;
  }
  ImportGiven given;
  if (!options.job.empty()) {
    given.job = read_stated_job(options);
    given.joined = joined_products(given_text(options.texts, options.job, job_presets()));
  }
  given.vocab = options.vocab;
  const bool named = !options.cluster.empty();
  if (const std::int64_t asked = named ? named_cluster(options).devices : options.devices;
      asked > 0)
    given.devices = asked;
  Imported imported = read_script(options.from, given);
  if (imported.framework && !imported.strategy && named) {
    const std::string name = named_cluster(options).name;
    const Cluster cluster = parse_cluster(given_text(options.texts, name, cluster_presets()), name);
    if (cluster.nodes) given.devices = all_devices(cluster, options);
    if (cluster.nodes) imported = read_script(options.from, given);
  }
  if (imported.framework && !imported.strategy) {
    throw UsageError(
        fmt::format("--devices is required: {} does not state their number", options.from));
  }
  if (!imported.job && imported.framework) {
    throw InputError(
        options.from, "",
        fmt::format("a {} has no model; state a JOB in addition to --from", imported.kind));
  }
  if (!imported.job || !imported.strategy || !imported.framework) {
    throw InputError(options.from, "",
                     fmt::format("a {} has no strategy; name it as JOB", imported.kind));
  }
  if (imported.devices) options.devices = *imported.devices;
  note_import(options, imported, options.from);
  options.imported = std::move(imported);
}

Framework load_framework(const TargetOptions& options, const Job& job) {
  if (!options.framework.empty()) return read_framework(options.framework);
  if (options.cluster.empty()) return bundled_framework();
  return default_framework(read_cluster(named_cluster(options).name).device.kind,
                           job.experts.has_value());
}

LoadedTarget load_target(const TargetOptions& options, Bytes reserve) {
  LoadedTarget loaded = load_point(options, read_stated_job(options), reserve);
  check_devices(loaded.target);
  return loaded;
}

LoadedTarget load_point(const TargetOptions& options, Job job, Bytes reserve) {
  const std::int64_t stated_vocabulary = job.vocab;
  const auto [name, asked_devices] = named_cluster(options);
  const std::string text = given_text(options.texts, name, cluster_presets());
  note_preset(options, "cluster", name, cluster_presets());
  Cluster cluster = parse_cluster(text, name);
  if (options.network) set_network(cluster, *options.network, name);
  Framework framework = framework_of(options, cluster.device.kind, job.experts.has_value());
  const std::vector<std::string> calibration =
      options.calibration.empty() ? learned_calibration(cluster, framework) : options.calibration;
  CostBasis basis = cost_basis(std::move(cluster), std::move(framework),
                               read_calibration_choice(calibration), name);
  job.vocab = padded_vocabulary(job.vocab, basis.framework, padded_for(options));
  const std::int64_t devices =
      asked_devices > 0 ? asked_devices : all_devices(basis.cluster, options);
  check_peak_rate(basis.cluster, job.precision, devices, name);
  CostModel costs(std::move(basis.cluster), std::move(basis.measured), std::move(basis.framework),
                  std::move(basis.fitted));
  return {Target(std::move(job), std::move(costs), devices, reserve), std::move(basis.source),
          stated_vocabulary, digest(text)};
}

Strategy legal_strategy(const Job& job, const Framework& framework, const std::string& text,
                        std::int64_t devices) {
  return legal_strategy(job, framework, parse_strategy(text), devices);
}

Strategy legal_strategy(const Job& job, const Framework& framework, const Strategy& strategy,
                        std::int64_t devices) {
  Verdict verdict = legal(job, strategy, devices);
  if (verdict) verdict = legal(framework, job, strategy);
  if (!verdict) {
    throw InfeasibleError(fmt::format("{} cannot run as {}: {}", job.name,
                                      fields_text(differing_fields(strategy, Strategy())),
                                      verdict.reason()));
  }
  return strategy;
}

Job stated_job(const LoadedTarget& loaded) {
  Job job = loaded.target.job;
  job.vocab = loaded.stated_vocabulary;
  return job;
}

std::string headline(const LoadedTarget& loaded, bool oversubscribed) {
  const Target& target = loaded.target;
  const bool padded = target.job.vocab != loaded.stated_vocabulary;
  return fmt::format("{} on {} of {}{}; framework {}{}; {}", target.job.name,
                     devices_text(target.devices), target.cluster().name,
                     oversubscribed ? " (oversubscribed: makes no timing claim)" : "",
                     target.framework().name,
                     padded ? fmt::format(", vocabulary padded to {}", target.job.vocab) : "",
                     loaded.source.words);
}

std::string efficiency_line(const LoadedTarget& loaded) {
  const CostModel& costs = *loaded.target.costs;
  const bool of_runs = costs.fitted() && costs.fitted()->runs > 0;
  const bool measured = costs.calibration() && !costs.calibration()->matmuls.empty();
  if (of_runs || measured || !costs.cluster().efficiency) return "";
  const std::string& words = loaded.source.efficiency_words;
  return fmt::format("  efficiency  {}\n", words.empty() ? fits_of(costs.cluster()) : words);
}

}  // namespace plimsoll
