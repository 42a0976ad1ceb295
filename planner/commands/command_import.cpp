// `planner import`: what other tools measured, as points of a calibration, and what they know of a
// node, as a cluster. A file that describes a training run becomes a job.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "base/command_line.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "interop/hardware/nccl_rows.h"
#include "interop/hardware/nccl_tests.h"
#include "interop/hardware/topology.h"
#include "interop/imports/imported.h"
#include "models/calibration/calibration_file.h"
#include "models/framework/framework_json.h"
#include "models/job/job_words.h"
#include "planner/api/target.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/space/space.h"
#include "predict/calibration_choice.h"
#include "predict/fit_transfer.h"

namespace plimsoll {
namespace {

struct ImportNcclOptions {
  std::vector<std::string> files;  ///< text or JSON of nccl-tests
  std::string cluster;             ///< whose devices were measured
  /// The calibration that the points join: measured, fitted or both. Empty: a new one holds them
  /// alone.
  std::string calibration;
  std::string output;  ///< calibration file; empty: none is written
  NcclGiven given;
  bool json = false;
};

struct ImportTopologyOptions {
  std::string file;    ///< nvidia-smi topo -m, or NCCL's dump
  std::string device;  ///< cluster file that has the device
  std::string name;    ///< of the cluster; empty: of the file
  std::string date;
  std::optional<std::int64_t> nodes;
  std::string nic_bandwidth, nvlink_bandwidth, pcie_bandwidth, socket_bandwidth;  ///< "25 GB/s"
  std::string output;  ///< cluster file; empty: stdout
};

/// Refuses runs of another cluster than the one they are imported for.
void check_cluster(const NcclRun& run, const Cluster& cluster, const std::string& file) {
  const std::string found = device_model(run.device), wanted = device_model(cluster.device.name);
  if (!found.empty() && !wanted.empty() && found != wanted) {
    throw InputError(run.file, run.where,
                     fmt::format("measured on \"{}\"; the device of {} is \"{}\"", run.device, file,
                                 printable(cluster.device.name)));
  }
  if (run.ranks / run.nodes * run.groups > cluster.devices_per_node) {
    throw InputError(
        run.file, run.where,
        fmt::format("{} ranks on a node; {} has {} devices on each",
                    run.ranks / run.nodes * run.groups, file, cluster.devices_per_node));
  }
  if (cluster.nodes && run.nodes > *cluster.nodes) {
    throw InputError(run.file, run.where,
                     fmt::format("{} nodes; {} has {}", run.nodes, file, *cluster.nodes));
  }
}

/// Adds points. A new point replaces one of the same kind, size and ranks.
void merge(Calibration& calibration, const std::vector<CollectivePoint>& points) {
  auto& known = calibration.collectives;
  const auto same = [](const CollectivePoint& a, const CollectivePoint& b) {
    return a.kind == b.kind && a.ranks == b.ranks && a.payload == b.payload && a.nodes == b.nodes &&
           a.groups_per_node == b.groups_per_node && a.communicator == b.communicator &&
           a.dtype == b.dtype;
  };
  const auto replaced = [&](const CollectivePoint& old) {
    return std::any_of(points.begin(), points.end(),
                       [&](const CollectivePoint& point) { return same(old, point); });
  };
  known.erase(std::remove_if(known.begin(), known.end(), replaced), known.end());
  known.insert(known.end(), points.begin(), points.end());
  calibration.communicator = CommunicatorKind::nccl;
}

/// Refuses to join points of another device.
void check_device(const CalibrationFile& calibration, const ImportNcclOptions& options,
                  const Cluster& cluster) {
  if (calibration.measured && calibration.measured->device != cluster.device.name) {
    throw InputError(options.calibration, "/device",
                     fmt::format("found \"{}\"; the device of {} is \"{}\"",
                                 printable(calibration.measured->device), options.cluster,
                                 printable(cluster.device.name)));
  }
  if (!calibration.fitted) return;
  const std::string other = device_difference(calibration.fitted->device, cluster.device);
  if (other.empty()) return;
  throw InputError(options.calibration, "/fitted/device",
                   fmt::format("fitted on \"{}\"; the device of {} is another: {}",
                               printable(calibration.fitted->device.name), options.cluster, other));
}

/// Returns the calibration that the points join: an empty one, or that of `options.calibration`.
CalibrationFile base_calibration(const ImportNcclOptions& options, const Cluster& cluster) {
  if (options.calibration.empty()) return {};
  CalibrationChoice choice = read_calibration_choice({options.calibration});
  if (!choice.measured && !choice.fitted) {
    throw UsageError(
        fmt::format("--calibration {}: points join a file or a fit; what answers for the rest can "
                    "be named when the calibration is used: planner plan --calibration FILE "
                    "--calibration {}",
                    options.calibration, options.calibration));
  }
  CalibrationFile calibration{std::move(choice.measured), std::move(choice.fitted)};
  check_device(calibration, options, cluster);
  return calibration;
}

Calibration nothing_measured(const Cluster& cluster) {
  Calibration calibration;
  calibration.device = cluster.device.name;
  calibration.backend = "cuda";
  return calibration;
}

void add_versions(Calibration& calibration, const std::vector<NcclRun>& runs) {
  for (const NcclRun& run : runs) {
    for (const std::string& version : run.versions) {
      auto& known = calibration.versions;
      if (std::find(known.begin(), known.end(), version) == known.end()) known.push_back(version);
    }
  }
}

std::string shape_of(const NcclRun& run) {
  std::string text = fmt::format("{} of {}", run.collective, run.ranks);
  if (run.nodes > 1) text += fmt::format(" over {} nodes", run.nodes);
  if (run.groups > 1) text += fmt::format(", {} groups per node", run.groups);
  return text;
}

std::string import_text(const std::vector<NcclRun>& runs,
                        const std::vector<CollectivePoint>& points) {
  std::string text;
  for (const NcclRun& run : runs) {
    text += fmt::format("{}: {}: {}, {} rows", printable(run.file), run.where, shape_of(run),
                        run.rows.size());
    if (!run.device.empty()) text += fmt::format(", {}", run.device);
    if (!run.date.empty()) text += fmt::format(", {}", run.date);
    text += '\n';
    for (const std::string& note : run.notes) text += fmt::format("  {}\n", note);
  }
  text +=
      fmt::format("\n{:<40}{:>14}{:>14}{:>16}\n", "collective", "payload", "median", "payload/s");
  for (const CollectivePoint& point : points) {
    text += fmt::format("{:<40}{:>14}{:>14}{:>16}\n", describe(point), to_text(point.payload),
                        to_text(point.time.median), to_text(point.payload / point.time.median));
  }
  return text;
}

std::string import_json(const std::vector<NcclRun>& runs,
                        const std::vector<CollectivePoint>& points, const std::string& output) {
  Json list = Json::array();
  for (const NcclRun& run : runs) {
    list.push_back({{"file", run.file},
                    {"where", run.where},
                    {"collective", run.collective},
                    {"ranks", run.ranks},
                    {"nodes", run.nodes},
                    {"groups_per_node", run.groups},
                    {"host_time", run.host_time},
                    {"device", run.device},
                    {"date", run.date},
                    {"versions", run.versions},
                    {"rows", run.rows.size()},
                    {"notes", run.notes}});
  }
  return json_text({{"runs", list},
                    {"points", points.size()},
                    {"output", output.empty() ? Json(nullptr) : Json(output)}});
}

/// Returns the value of a flag, if it was given.
std::optional<BytesPerSecond> stated(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return parse_bytes_per_second(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  }
}

ExitCode run_import_topology(const ImportTopologyOptions& options) {
  check_output("-o", options.output, std::array{options.file, options.device});
  TopologyGiven given;
  given.name =
      options.name.empty() ? std::filesystem::path(options.file).stem().string() : options.name;
  given.date = options.date;
  given.nodes = options.nodes;
  given.nic_bandwidth = stated("--nic-bandwidth", options.nic_bandwidth);
  given.link_bandwidth = stated("--nvlink-bandwidth", options.nvlink_bandwidth);
  given.pcie_bandwidth = stated("--pcie-bandwidth", options.pcie_bandwidth);
  given.socket_bandwidth = stated("--socket-bandwidth", options.socket_bandwidth);
  const Topology topology = read_topology(options.file);
  const Cluster like = read_cluster(options.device);
  if (like.device.kind != DeviceKind::gpu) {
    throw InputError(options.device, "/device/kind", "found \"cpu_core\"; a GPU is required");
  }
  std::vector<std::string> notes;
  const Cluster cluster = cluster_from(topology, like, options.device, given, notes);
  const std::string text = cluster_text(cluster);
  parse_cluster(text, options.file);  // what is written can be read
  for (const std::string& note : notes) print_note(in_columns(note + "\n"));
  if (options.output.empty()) {
    print_result(text);
  } else {
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  return ExitCode::ok;
}

ExitCode run_import_nccl(const ImportNcclOptions& options) {
  std::vector<std::string> inputs = options.files;
  inputs.push_back(options.cluster);
  check_output("-o", options.output, inputs);
  const Cluster cluster = read_cluster(options.cluster);
  if (cluster.device.kind != DeviceKind::gpu) {
    throw InputError(options.cluster, "/device/kind",
                     "found \"cpu_core\"; nccl-tests measure clusters of GPUs");
  }
  CalibrationFile whole = base_calibration(options, cluster);
  std::vector<NcclRun> runs;
  for (const std::string& file : options.files) {
    for (NcclRun& run : read_nccl_tests(file, options.given)) runs.push_back(std::move(run));
  }
  for (const NcclRun& run : runs) check_cluster(run, cluster, options.cluster);
  const std::vector<CollectivePoint> points = nccl_points(runs);
  if (!options.output.empty()) {
    if (points.empty()) {
      std::string reasons;
      for (const NcclRun& run : runs) {
        for (const std::string& note : run.notes) reasons += "; " + note;
      }
      throw InputError(options.files.front(), "", "nothing to import" + reasons);
    }
    const bool joins = whole.measured.has_value();
    if (!joins) whole.measured = nothing_measured(cluster);
    Calibration& calibration = *whole.measured;
    for (const NcclRun& run : runs) {
      if (run.date.empty()) {
        throw InputError(run.file, run.where,
                         "the file does not say when this was measured: --date can");
      }
      // Points say themselves when they were measured: what is there already keeps its date.
      if (!joins) calibration.date = std::max(calibration.date, run.date);
    }
    merge(calibration, points);
    add_versions(calibration, runs);
    const std::string text = calibration_file_text(whole);
    parse_calibration_file(text, options.output);  // what is written can be read
    write_file_atomically(options.output, text);
  }
  print_result(options.json ? import_json(runs, points, options.output)
                            : in_columns(import_text(runs, points)));
  if (!options.output.empty()) print_note(fmt::format("wrote {}\n", options.output));
  return ExitCode::ok;
}

// --- planner import FILE ---

struct ImportFileOptions {
  std::string file;
  std::string job;                                            ///< of the model; empty: the file's
  std::string job_output, strategy_output, framework_output;  ///< empty: not written
  std::string precision;                                      ///< word of a job file
  ImportGiven given;
  bool json = false;
};

/// Refuses an output for which the file has nothing, before any is written.
template <class Value>
void check_there(const std::optional<Value>& value, const char* flag, const std::string& output,
                 const Imported& imported, const std::string& file) {
  if (output.empty() || value) return;
  throw InputError(file, "", fmt::format("a {} says nothing for {}", imported.kind, flag));
}

void write(const std::string& output, const std::string& text) {
  if (output.empty()) return;
  write_file_atomically(output, text);
  print_note(fmt::format("wrote {}\n", output));
}

/// Reads the job that a trainer's file is for: a job file, a preset or a model's config, whose
/// notes are returned.
std::vector<std::string> read_base(ImportFileOptions& options) {
  if (!takes_job(read_file(options.file))) {
    throw UsageError(fmt::format("found JOB {}; {} describes the model itself",
                                 printable(options.job), printable(options.file)));
  }
  const std::string text = read_file_or_preset(options.job, job_presets());
  if (!is_importable(text)) {
    options.given.job = parse_job(text, options.job);
    return {};
  }
  ImportGiven of_base = options.given;
  of_base.devices.reset();
  of_base.vocab.reset();
  options.given.family.clear();
  Imported base = import_text(text, options.job, of_base);
  if (!base.job) throw InputError(options.job, "", fmt::format("a {} has no job", base.kind));
  options.given.job = std::move(base.job);
  options.given.joined = joined_products(text);
  return std::move(base.notes);
}

ExitCode run_import_file(ImportFileOptions options) {
  if (options.file.empty()) {
    throw UsageError("import: FILE is required, or one of nccl-tests and topology");
  }
  const std::vector<std::string> commands = {"nccl-tests", "topology"};
  const std::string meant = nearest(options.file, commands);
  if (!meant.empty() && !std::filesystem::exists(options.file)) {
    throw UsageError(fmt::format("import: {} is no file and no command; {}?", options.file, meant));
  }
  const std::string outputs[] = {options.job_output, options.strategy_output,
                                 options.framework_output};
  const char* flags[] = {"-o", "--strategy-out", "--framework-out"};
  for (std::size_t i = 0; i < std::size(outputs); ++i) {
    std::vector<std::string> others = {options.file, options.job};
    others.insert(others.end(), outputs, outputs + i);
    std::erase(others, "");
    check_output(flags[i], outputs[i], others);
  }
  const auto word = std::ranges::find(kPrecisions, options.precision);
  if (word != kPrecisions.end())
    options.given.precision = kPrecisionTypes[std::size_t(word - kPrecisions.begin())];
  const std::vector<std::string> notes =
      options.job.empty() ? std::vector<std::string>() : read_base(options);
  Imported imported = import_file(options.file, options.given);
  imported.notes.insert(imported.notes.begin(), notes.begin(), notes.end());
  if (!outputs[0].empty() && !imported.job && takes_job(read_file(options.file)))
    throw InputError(options.file, "",
                     fmt::format("the file states no model ({}); state a JOB, too", imported.kind));
  check_there(imported.job, flags[0], outputs[0], imported, options.file);
  check_there(imported.strategy, flags[1], outputs[1], imported, options.file);
  check_there(imported.framework, flags[2], outputs[2], imported, options.file);
  if (imported.job) {
    parse_job(job_text(*imported.job), options.file);  // what is written can be read
    write(outputs[0], job_text(*imported.job));
  }
  if (imported.strategy) write(outputs[1], strategy_text(*imported.strategy));
  if (imported.framework) {
    write(outputs[2],
          framework_text(*imported.framework, fmt::format("{} {}", imported.kind, options.file)));
  }
  print_result(options.json
                   ? import_summary_json(imported)
                   : in_columns(import_summary(
                         imported, imported.job ? describe_parameters(*imported.job) : "")));
  return ExitCode::ok;
}

CLI::Option* add_date(CLI::App& command, std::string& date) {
  return command.add_option("--date", date, "of the measurement, as 2026-11-20")
      ->check([](const std::string& text) -> std::string {
        const bool fits = is_date(text) && text.size() == 10;
        return fits ? "" : "found \"" + text + "\"; a date as 2026-11-20 is allowed";
      });
}

void add_import_nccl(CLI::App& imports, Action& action) {
  const auto options = std::make_shared<ImportNcclOptions>();
  CLI::App& command = *imports.add_subcommand("nccl-tests", "collectives that nccl-tests measured");
  command.add_option("FILE", options->files, "what its programs printed, or wrote with -J")
      ->required();
  command.add_option("--cluster", options->cluster, "cluster file of the machine, or a preset")
      ->required();
  command.add_option("--calibration", options->calibration,
                     "what the points join: a file, or a fit's name, which then answers for what "
                     "was not measured; default: a new calibration of them alone");
  command.add_option("-o,--output", options->output, "write the calibration here");
  command.add_option("--collective", options->given.collective, "if a file does not name it")
      ->check([](const std::string& text) -> std::string {
        const auto names = nccl_collectives();
        if (std::find(names.begin(), names.end(), text) != names.end()) return "";
        return fmt::format("found \"{}\"; {} are allowed", text, fmt::join(names, ", "));
      });
  CLI::Option* ranks =
      command
          .add_option("--ranks", options->given.ranks, "if a file does not list all of its devices")
          ->check(integers(2, kMostDevices));
  command.add_option("--ranks-per-node", options->given.ranks_per_node, "default: all")
      ->check(integers(1, 4096))
      ->needs(ranks);
  add_date(command, options->given.date);
  add_json(command, options->json);
  command.callback(
      [options, &action] { action = [options] { return run_import_nccl(*options); }; });
}

void add_import_topology(CLI::App& imports, Action& action) {
  const auto options = std::make_shared<ImportTopologyOptions>();
  CLI::App& command = *imports.add_subcommand("topology", "how a node is wired, as a cluster file");
  command
      .add_option("FILE", options->file,
                  "what nvidia-smi topo -m printed, or NCCL wrote to NCCL_TOPO_DUMP_FILE")
      ->required();
  command.add_option("--device", options->device, "cluster file, or preset, with the same device")
      ->required();
  add_date(command, options->date)->required();
  command.add_option("--name", options->name, "of the cluster; default: of the file");
  command.add_option("--nodes", options->nodes, "default: as many as --devices needs")
      ->check(integers(1, std::int64_t{1} << 20));
  command.add_option("--nic-bandwidth", options->nic_bandwidth, "of each NIC: \"400 Gbit/s\"");
  command.add_option("--nvlink-bandwidth", options->nvlink_bandwidth, "of one NVLink: \"25 GB/s\"");
  command.add_option("--pcie-bandwidth", options->pcie_bandwidth, "of a GPU: \"31.5 GB/s\"");
  command.add_option("--socket-bandwidth", options->socket_bandwidth,
                     "of a GPU to those of other NUMA nodes");
  command.add_option("-o,--output", options->output, "write the cluster here instead of to stdout");
  command.callback(
      [options, &action] { action = [options] { return run_import_topology(*options); }; });
}

void add_import_file(CLI::App& imports, Action& action) {
  const auto options = std::make_shared<ImportFileOptions>();
  imports.add_option("FILE", options->file,
                     "a Hugging Face config.json; its content tells the kind");
  imports.add_option(
      "JOB", options->job,
      "the model that a trainer's file or an adapter is for: a job file, a preset or "
      "a config.json");
  imports.add_option("-o,--output", options->job_output, "write the job here");
  imports.add_option("--strategy-out", options->strategy_output,
                     "write the strategy here, if the file states one");
  imports.add_option("--framework-out", options->framework_output,
                     "write the framework here, if the file states one");
  imports
      .add_option("--sequence", options->given.sequence,
                  "tokens per sequence; default: what the model allows, with rotary embeddings "
                  "at most 4096")
      ->check(integers(1, kMostSequence));
  imports
      .add_option("--global-batch", options->given.global_batch,
                  "sequences per step, if the file does not state it; default: 256")
      ->check(integers(1, kMostGlobalBatch));
  imports
      .add_option("--precision", options->precision,
                  "fp32, bf16 or fp16, if the file does not state it; default: bf16")
      ->check([](const std::string& text) -> std::string {
        if (std::ranges::find(kPrecisions, text) != kPrecisions.end()) return "";
        return fmt::format("found \"{}\"; {} are allowed", text, fmt::join(kPrecisions, ", "));
      });
  imports
      .add_option("--devices", options->given.devices,
                  "of a script that leaves their number to its launcher")
      ->check(integers(1, kMostDevices));
  imports
      .add_option("--vocab", options->given.vocab,
                  "tokens of the vocabulary, where a framework's file does not state them")
      ->check(integers(1, kMostVocabulary));
  imports.add_option("--dropout", options->given.dropout, "of the job, instead of the file's")
      ->check([](const std::string& text) { return refuse_number(text, 0, kMostDropout); });
  imports.add_option("--name", options->given.name, "of the job; default: of the file");
  imports.add_option("--family", options->given.family,
                     "model_type as which a config.json is read, instead of the file's");
  add_json(imports, options->json);
  imports.callback([&imports, options, &action] {
    if (imports.get_subcommands().empty()) action = [options] { return run_import_file(*options); };
  });
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  CLI::App& imports = *app.add_subcommand("import", "files of other tools");
  imports.require_subcommand(0, 1);
  add_import_file(imports, action);
  add_import_nccl(imports, action);
  add_import_topology(imports, action);
}

}  // namespace plimsoll
