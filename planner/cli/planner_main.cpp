// The `planner` executable: its command line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "models/calibration/nccl_rows.h"
#include "planner/cli/commands.h"

namespace plimsoll {
namespace {

/// A hundred times the measured time; more is a slip of the pen.
constexpr double kMostTolerance = 100;

constexpr std::int64_t kMostThreads = 1024;

/// The action that the parsed command line asks for; set by the callback of the chosen command.
using Action = std::function<ExitCode()>;

/// CLI11's check for an integer option.
auto integers(std::int64_t least, std::int64_t most) {
  return [=](const std::string& text) { return refuse_integer(text, least, most); };
}

void add_job(CLI::App& command, TargetOptions& target, bool required = true) {
  command.add_option("JOB", target.job, "job file, or the name of a preset (gpt3-175b, say)")
      ->required(required);
  command
      .add_option("--global-batch", target.global_batch, "sequences per step, instead of the job's")
      ->check(integers(1, std::int64_t{1} << 24));
}

void add_framework(CLI::App& command, TargetOptions& target) {
  command.add_option("--framework", target.framework,
                     "how ops run: a built-in name or a file; default: the bundled runtime on CPU "
                     "cores, else megatron-lm");
}

void add_devices(CLI::App& command, TargetOptions& target) {
  command
      .add_option("--devices", target.devices,
                  "ranks: mp x pp x dp x sharding degree; default: all of the cluster file, where "
                  "it states its nodes")
      ->check(integers(1, kMostDevices));
}

CLI::Option* add_calibration(CLI::App& command, std::vector<std::string>& calibration) {
  return command
      .add_option(
          "--calibration", calibration,
          "built-in (the default: what was fitted for device and framework, else typical), typical "
          "(rates typical of training), none (the cluster's own numbers), a fit's name "
          "(dgx-h100-80gb--megatron-lm, say) or a file; twice: a file that was measured, and what "
          "answers for what it did not measure (default: built-in)")
      ->allow_extra_args(false);
}

void add_machine(CLI::App& command, TargetOptions& target) {
  command.add_option("--cluster", target.cluster, "cluster file, or the name of a preset")
      ->required();
  add_calibration(command, target.calibration);
  add_devices(command, target);
  add_framework(command, target);
}

void add_fix(CLI::App& command, std::vector<std::string>& fix) {
  command.add_option("--fix", fix, "KEY=VALUE: only strategies with this choice; repeatable")
      ->allow_extra_args(false);
}

void add_reserve(CLI::App& command, std::string& reserve) {
  command.add_option("--reserve", reserve, "memory kept free on each device")
      ->capture_default_str();
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "JSON on stdout"); }

void add_plan(CLI::App& app, PlanOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("plan", "find the best strategy for a job");
  add_job(command, options.target);
  add_machine(command, options.target);
  add_fix(command, options.fix);
  add_reserve(command, options.reserve);
  command.add_option("-o,--output", options.output, "write the plan file here");
  command.add_option("--time-limit", options.time_limit,
                     "stop after this time (\"30 s\") with the best so far, exit 5");
  command.add_option("--threads", options.threads, "default: all cores; the plan is the same")
      ->check(integers(1, kMostThreads));
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_plan(options); }; });
}

void add_space(CLI::App& app, SpaceOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("space", "show the strategies that a plan chooses from");
  add_job(command, options.target);
  command.add_option("--cluster", options.target.cluster,
                     "cluster file or preset: count also what cannot fit");
  add_calibration(command, options.target.calibration)->needs("--cluster");
  add_devices(command, options.target);
  add_framework(command, options.target);
  add_fix(command, options.fix);
  add_reserve(command, options.reserve);
  command.add_flag("--list", options.list, "every legal strategy, in canonical order");
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_space(options); }; });
}

void add_simulate(CLI::App& app, SimulateOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("simulate", "predict one strategy");
  add_job(command, options.target);
  command.add_option("STRATEGY", options.strategy, "\"mp=2,pp=2\" or a JSON file")->required();
  add_machine(command, options.target);
  add_reserve(command, options.reserve);
  command.add_flag("--unfolded", options.unfolded, "simulate every rank, not one per class");
  command.add_option("--trace", options.trace,
                     "write the step here, as Chrome's and Perfetto's trace viewers read it");
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_simulate(options); }; });
}

void add_validate(CLI::App& app, ValidateOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("validate", "predict published runs: how far off");
  command
      .add_option(
          "CASES", options.cases,
          "files of published runs, or of PyTorch allocator traces, which are replayed; exit "
          "7 where a replay is not exact")
      ->required();
  command.add_option("--goals", options.goals, "file of bounds; exit 7 where one is missed");
  add_calibration(command, options.calibration);
  command.add_flag("--leave-out-sources", options.leave_out_sources,
                   "predict each run without the built-in fits that have runs of its document");
  command.add_option("--inputs", options.inputs,
                     "write the job and the cluster of each run that is predicted into this "
                     "folder, as plan and simulate take them");
  command.add_option("--stated", options.stated,
                     "write each file of runs into this folder once more, with all that is known "
                     "of each run and where each fact is from");
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_validate(options); }; });
}

void add_fit(CLI::App& app, FitCommandOptions& options, Action& action) {
  CLI::App& command =
      *app.add_subcommand("fit", "fit a cluster's and a framework's numbers on published runs");
  command
      .add_option("CASES", options.cases,
                  "files of published runs, of timed ops alone, or of timed collectives alone")
      ->required();
  command.add_option("--cluster", options.cluster, "name of a cluster preset")->required();
  command.add_option("--framework", options.framework, "name of a framework preset")->required();
  command.add_option("-o,--output", options.output, "write the fitted calibration here");
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_fit(options); }; });
}

void add_passes(CLI::App& app, PassesOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("passes", "show what each pass makes of a job");
  add_job(command, options.target, false);
  command.add_option("STRATEGY", options.strategy, "\"mp=2,pp=2\" or a JSON file");
  CLI::Option* before =
      command.add_option("--before", options.before, "print the text form before this stage");
  command.add_option("--after", options.after, "print the text form after this stage")
      ->excludes(before);
  command.add_option("--rank", options.rank, "print the Program of this rank's class only")
      ->check(integers(0, kMostDevices - 1));
  command.add_flag("--list", options.list, "name the stages and leave");
  command.add_option("--cluster", options.target.cluster,
                     "cluster file or preset: for its framework only");
  add_framework(command, options.target);
  command.callback([&] {
    if (!options.list && options.strategy.empty()) {
      throw CLI::RequiredError("JOB and STRATEGY (or --list)");
    }
    action = [&] { return run_passes(options); };
  });
}

void add_check(CLI::App& app, CheckOptions& options, Action& action) {
  CLI::App& command =
      *app.add_subcommand("check", "check a plan file by rules, without timing anything");
  command.add_option("PLAN", options.plan, "plan file")->required();
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_check(options); }; });
}

void add_tolerance(CLI::App& command, double& tolerance) {
  command
      .add_option("--tolerance", tolerance, "largest |predicted - measured| / measured step time")
      ->check([](const std::string& text) { return refuse_number(text, 0, kMostTolerance); })
      ->capture_default_str();
}

void add_compare(CLI::App& app, CompareOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("compare", "predicted against measured");
  command.add_option("PLAN", options.plan, "plan file")->required();
  command.add_option("MEASURED", options.measured, "what planner run wrote")->required();
  add_tolerance(command, options.tolerance);
  CLI::Option* refit =
      command.add_flag("--refit", options.refit,
                       "correct the calibration by what was measured, and say by how much");
  command.add_option("--cluster", options.cluster, "with --refit: the plan's cluster file")
      ->needs(refit);
  command
      .add_option("--calibration", options.calibration,
                  "with --refit: the plan's calibration, given as to plan")
      ->allow_extra_args(false)
      ->needs(refit);
  command.add_option("-o,--output", options.output, "with --refit: write the new calibration here")
      ->needs(refit);
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_compare(options); }; });
}

void add_report(CLI::App& app, ReportOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("report", "one self-contained HTML page");
  command.add_option("PLAN", options.plan, "plan file")->required();
  command.add_option("MEASURED", options.measured, "what planner run wrote");
  command.add_option("-o,--output", options.output, "write the page here")->required();
  add_tolerance(command, options.tolerance);
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_report(options); }; });
}

void add_export(CLI::App& app, ExportOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("export", "a plan as a job script");
  command.add_option("PLAN", options.plan, "plan file")->required();
  command.add_option("--to", "slurm")->required()->check(CLI::IsMember({"slurm"}));
  command.add_option("--data", options.data, "file whose bytes are trained on")->required();
  command.add_option("--steps", options.steps, "training steps, the last one traced")
      ->capture_default_str()
      ->check(integers(4, 1'000'000));
  command.add_option("--measured", options.measured,
                     "file that the job writes; default: PLAN's name with .measured.json");
  command.add_option("--time", options.time, "limit, as sbatch takes it: \"30\", \"1:00:00\"")
      ->check([](const std::string& text) {
        const bool fits = !text.empty() && text.find_first_not_of("0123456789:-") == text.npos;
        return fits ? "" : "found \"" + text + "\"; minutes, h:m:s or days-hours are allowed";
      });
  command.add_option("-o,--output", options.output, "write the script here instead of to stdout");
  command.callback([&] { action = [&] { return run_export(options); }; });
}

CLI::Option* add_date(CLI::App& command, std::string& date) {
  return command.add_option("--date", date, "of the measurement, as 2026-11-20")
      ->check([](const std::string& text) -> std::string {
        const bool fits = is_date(text) && text.size() == 10;
        return fits ? "" : "found \"" + text + "\"; a date as 2026-11-20 is allowed";
      });
}

void add_import_nccl(CLI::App& imports, ImportNcclOptions& options, Action& action) {
  CLI::App& command = *imports.add_subcommand("nccl-tests", "collectives that nccl-tests measured");
  command.add_option("FILE", options.files, "what its programs printed, or wrote with -J")
      ->required();
  command.add_option("--cluster", options.cluster, "cluster file of the machine, or a preset")
      ->required();
  command.add_option("--calibration", options.calibration,
                     "what the points join: a file, or a fit's name, which then answers for what "
                     "was not measured; default: a new calibration of them alone");
  command.add_option("-o,--output", options.output, "write the calibration here");
  command.add_option("--collective", options.given.collective, "where a file does not name it")
      ->check([](const std::string& text) -> std::string {
        const auto names = nccl_collectives();
        if (std::find(names.begin(), names.end(), text) != names.end()) return "";
        return fmt::format("found \"{}\"; {} are allowed", text, fmt::join(names, ", "));
      });
  CLI::Option* ranks =
      command.add_option("--ranks", options.given.ranks, "where a file does not list its devices")
          ->check(integers(2, kMostDevices));
  command.add_option("--ranks-per-node", options.given.ranks_per_node, "default: all")
      ->check(integers(1, 4096))
      ->needs(ranks);
  add_date(command, options.given.date);
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_import_nccl(options); }; });
}

void add_import_topology(CLI::App& imports, ImportTopologyOptions& options, Action& action) {
  CLI::App& command = *imports.add_subcommand("topology", "how a node is wired, as a cluster file");
  command
      .add_option("FILE", options.file,
                  "what nvidia-smi topo -m printed, or NCCL wrote to NCCL_TOPO_DUMP_FILE")
      ->required();
  command.add_option("--device", options.device, "cluster file, or preset, with the same device")
      ->required();
  add_date(command, options.date)->required();
  command.add_option("--name", options.name, "of the cluster; default: of the file");
  command.add_option("--nodes", options.nodes, "default: as many as --devices needs")
      ->check(integers(1, std::int64_t{1} << 20));
  command.add_option("--nic-bandwidth", options.nic_bandwidth, "of each NIC: \"400 Gbit/s\"");
  command.add_option("--nvlink-bandwidth", options.nvlink_bandwidth, "of one NVLink: \"25 GB/s\"");
  command.add_option("--pcie-bandwidth", options.pcie_bandwidth, "of a GPU: \"31.5 GB/s\"");
  command.add_option("--socket-bandwidth", options.socket_bandwidth,
                     "of a GPU to those of other NUMA nodes");
  command.add_option("-o,--output", options.output, "write the cluster here instead of to stdout");
  command.callback([&] { action = [&] { return run_import_topology(options); }; });
}

void add_import(CLI::App& app, ImportNcclOptions& nccl, ImportTopologyOptions& topology,
                Action& action) {
  CLI::App& imports = *app.add_subcommand("import", "files of other tools");
  imports.require_subcommand(1);
  add_import_nccl(imports, nccl, action);
  add_import_topology(imports, topology, action);
}

void add_doctor(CLI::App& app, DoctorOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("doctor", "whether this machine can measure and train");
  add_json(command, options.json);
  command.callback([&] { action = [&] { return run_doctor(options); }; });
}

/// Options of every command; they must outlive the parse.
struct AllOptions {
  PlanOptions plan;
  SpaceOptions space;
  ValidateOptions validate;
  FitCommandOptions fit;
  SimulateOptions simulate;
  PassesOptions passes;
  CheckOptions check;
  CompareOptions compare;
  ReportOptions report;
  ExportOptions exported;
  ImportNcclOptions nccl;
  ImportTopologyOptions topology;
  DoctorOptions doctor;
};

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

void add_commands(CLI::App& app, AllOptions& options, Action& action) {
  // These two are other executables, started before this command line is parsed.
  app.add_subcommand("calibrate", "measure this machine (planner-calibrate --help)");
  add_plan(app, options.plan, action);
  app.add_subcommand("run", "train by a plan and measure (planner-run --help)");
  add_compare(app, options.compare, action);
  add_report(app, options.report, action);
  add_simulate(app, options.simulate, action);
  add_space(app, options.space, action);
  add_validate(app, options.validate, action);
  add_fit(app, options.fit, action);
  add_passes(app, options.passes, action);
  add_check(app, options.check, action);
  add_export(app, options.exported, action);
  add_import(app, options.nccl, options.topology, action);
  add_doctor(app, options.doctor, action);
  // Flags that they do not know are refused by refuse_unknown, which can name the nearest.
  app.allow_extras();
  for (CLI::App* command : commands_of(app)) {
    command->allow_extras();
    for (CLI::App* one : commands_of(*command)) one->allow_extras();
  }
}

/// Throws UsageError for the first word that nobody knows, or an empty value.
void refuse_unknown(CLI::App& app) {
  std::vector<std::string> commands;
  for (const CLI::App* command : commands_of(app)) commands.push_back(command->get_name());
  refuse_leftovers(app, commands);
  for (CLI::App* command : app.get_subcommands()) refuse_unknown(*command);
}

/// Parses and runs; CLI11's own errors become UsageError.
ExitCode dispatch(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  if (argc > 1 && std::string(argv[1]) == "calibrate") exec_beside("planner-calibrate", arguments);
  if (argc > 1 && std::string(argv[1]) == "run") exec_beside("planner-run", arguments);

  CLI::App app("Plimsoll: how heavily a training cluster can be loaded, and how fast it will run.",
               "planner");
  app.set_version_flag("--version", fmt::format("planner {}", kProductVersion));
  app.require_subcommand(1);
  AllOptions options;
  Action action;
  add_commands(app, options, action);
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return ExitCode::usage;
  }
  refuse_empty_values(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    app.exit(success, text, text);
    print_result(text.str());
    return ExitCode::ok;
  } catch (const CLI::ParseError& error) {
    refuse_unknown(app);  // a misspelt flag is the likelier cause of a missing one
    throw UsageError(error.what());
  }
  refuse_unknown(app);
  if (!action) throw UsageError("calibrate and run must be the first word");
  return action();
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  return plimsoll::run_program("planner", [&] { return plimsoll::dispatch(argc, argv); });
}
