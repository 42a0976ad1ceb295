// The arguments of planner-calibrate are parsed here, and its files written.
#include "calibrate/sessions/calibrate_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <string>

#include "base/command_line.h"
#include "base/file.h"
#include "base/json.h"
#include "calibrate/measure/group_bench.h"
#include "calibrate/schedule/schedule_cost.h"
#include "calibrate/sessions/calibrate.h"
#include "calibrate/sessions/device_calibration.h"
#include "calibrate/sessions/journal.h"
#include "command_line/completion.h"
#include "command_line/interrupt.h"
#include "command_line/parse.h"
#include "runtime/command/launch.h"
#include "runtime/command/run_command.h"

namespace plimsoll {
namespace {

struct Arguments {
  std::string backend = "cpu";
  std::string output, cluster_output;
  std::string precision = "fp32";
  std::string budget = "50 s";
  std::string launcher = "local";
  std::int64_t devices = 0;
  double deadline = 120;
  std::string plan;
  bool quick = false, json = false, resume = false;
  // The schedule is shown, and not run.
  std::int64_t schedule = 0, ranks_per_node = 0;
  std::string cluster;
};

constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

DType precision_from(const std::string& text) {
  if (text == "fp32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  if (text == "fp16") return DType::f16;
  throw UsageError(fmt::format("--precision {}: known are fp32, bf16, fp16", text));
}

/// "300", "90 s", "5m", "5 min", "2 h".
Seconds budget_from(const std::string& text) {
  const std::size_t end = text.find_last_of("0123456789.");
  const std::string number = text.substr(0, end == text.npos ? 0 : end + 1);
  std::string unit = text.substr(number.size());
  unit.erase(0, unit.find_first_not_of(' '));
  const double factor = unit.empty() || unit == "s"    ? 1
                        : unit == "m" || unit == "min" ? 60
                        : unit == "h"                  ? 3600
                                                       : 0;
  const std::string wrong = refuse_number(number, 1e-6, 1e5);
  const double seconds = wrong.empty() ? std::stod(number) * factor : 0;
  if (!(seconds >= 0.001 && seconds <= 1e5)) {
    throw UsageError(fmt::format(
        "--budget: found \"{}\"; 0.001 s to 1e5 s, as \"90 s\", \"5m\", \"2 h\"", printable(text)));
  }
  return Seconds(seconds);
}

/// `--schedule`: nothing is measured.
void show_schedule(const Arguments& arguments) {
  if (arguments.backend != "cpu" && arguments.backend != "cuda") {
    throw UsageError(
        fmt::format("--backend {}: cpu and cuda can be calibrated", printable(arguments.backend)));
  }
  if (!arguments.plan.empty()) {
    throw UsageError("--plan: changes the order of tests, which --schedule does not show");
  }
  if (arguments.ranks_per_node == 0 || arguments.cluster.empty()) {
    throw UsageError("--schedule: --ranks-per-node and --cluster are required");
  }
  if (arguments.schedule % arguments.ranks_per_node != 0) {
    throw UsageError(fmt::format("--schedule {}: not a multiple of --ranks-per-node {}",
                                 arguments.schedule, arguments.ranks_per_node));
  }
  const ClusterShape shape{arguments.schedule / arguments.ranks_per_node, arguments.ranks_per_node};
  Cluster cluster = read_cluster(arguments.cluster);
  if (shape.ranks_per_node > cluster.devices_per_node) {
    throw InputError(arguments.cluster, "/devices_per_node",
                     fmt::format("found {}; fewer than --ranks-per-node {}",
                                 cluster.devices_per_node, shape.ranks_per_node));
  }
  if (shape.nodes > cluster.nodes.value_or(shape.nodes)) {
    throw InputError(arguments.cluster, "/nodes",
                     fmt::format("found {}; {} are asked for", *cluster.nodes, shape.nodes));
  }
  cluster.nodes = shape.nodes;
  const SweepSize size = arguments.quick ? SweepSize::quick : SweepSize::full;
  const DType precision = precision_from(arguments.precision);
  const Seconds budget = budget_from(arguments.budget);
  const auto communicator =
      arguments.backend == "cuda" ? CommunicatorKind::nccl : CommunicatorKind::mpi;
  print_result(arguments.json
                   ? schedule_json(shape, cluster, size, precision, budget, communicator)
                   : schedule_text(shape, cluster, size, precision, budget, communicator));
}

/// On this process's device or cores, or on a cluster's.
MachineCalibration measure(const CalibrationRequest& request, Processes* processes,
                           FactsOfDevice facts) {
  if (request.backend == "cpu") {
    return processes == nullptr ? calibrate(request) : calibrate_processes(request, *processes);
  }
  if (processes == nullptr) {
    const auto backend = make_backend(request.backend);
    return calibrate_device(request, *backend, facts(0));
  }
  const std::int64_t local_rank = processes->index() % shape_of(*processes).ranks_per_node;
  const auto backend = make_backend(request.backend, local_rank);
  const DeviceOfRank device{*backend, facts(local_rank)};
  return calibrate_processes(request, *processes, &device);
}

/// Says on process 0 that a signal has ended the calibration, and what was written.
ExitCode stopped(const Arguments& arguments, const CalibrationRequest& request, bool reports) {
  if (!reports) return InterruptNotice::code();
  const std::string kept =
      arguments.output.empty()
          ? "nothing was written; with -o the finished tests are kept"
          : fmt::format("{} is not written; {} has the finished tests, and --resume goes on",
                        arguments.output, request.journal.string());
  print_note(fmt::format("stopped by {}; {}\n", InterruptNotice::name(), kept));
  return InterruptNotice::code();
}

ExitCode run(const Arguments& arguments, Processes* processes, FactsOfDevice facts) {
  const bool reports = processes == nullptr || processes->index() == 0;
  if (arguments.backend != "cpu" && (facts == nullptr || arguments.backend != "cuda")) {
    throw UsageError(fmt::format("--backend {}: {} can be calibrated", arguments.backend,
                                 facts == nullptr ? "only cpu" : "cpu and cuda"));
  }
  if (arguments.backend != "cpu" && processes == nullptr && !arguments.plan.empty()) {
    throw UsageError("--plan: one GPU is measured in a fixed order");
  }
  if (reports) {
    check_output("-o", arguments.output, std::array{arguments.cluster_output, arguments.plan});
    check_output("--cluster-out", arguments.cluster_output, std::array{arguments.plan});
  }
  CalibrationRequest request;
  request.backend = arguments.backend;
  request.size = arguments.quick ? SweepSize::quick : SweepSize::full;
  request.budget = budget_from(arguments.budget);
  if (!arguments.output.empty()) {
    request.journal = journal_of(arguments.output);
  } else if (arguments.resume) {
    throw UsageError("--resume: only a calibration with -o is resumed");
  }
  request.resume = arguments.resume;
  request.deadline = deadline_of(arguments.deadline);
  request.precision = precision_from(arguments.precision);
  if (reports && !arguments.plan.empty()) {  // process 0 says what is next
    request.workload = workload_of(read_legal_plan(arguments.plan));
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  request.progress = [&](const std::string& what, std::size_t done, std::size_t of) {
    if (terminal) {
      // A terminal that was closed takes no line, which is no reason to end.
      std::fputs(fmt::format("\rcalibrating {}/{} {:24}{}", done, of, what, done == of ? "\n" : "")
                     .c_str(),
                 stderr);
    } else if (done == of || done * 10 / of != (done - 1) * 10 / of) {
      print_note(fmt::format("calibrating {}/{} {}\n", done, of, what));
    }
  };
  const InterruptNotice interrupt;
  request.stop = [] { return InterruptNotice::signal() != 0; };
  MachineCalibration machine;
  try {
    machine = measure(request, processes, facts);
  } catch (const CalibrationStopped&) {
    if (terminal && reports) std::fputs("\n", stderr);  // behind the line of the progress
    return stopped(arguments, request, reports);
  }
  if (!reports) return ExitCode::ok;
  const std::string text = calibration_text(machine.calibration);
  if (!arguments.output.empty()) {
    write_file_atomically(arguments.output, text);
  }
  if (!arguments.cluster_output.empty()) {
    write_file_atomically(arguments.cluster_output, cluster_text(machine.cluster));
  }
  if (!arguments.output.empty()) {
    std::error_code gone;  // what it held is in both files
    std::filesystem::remove(request.journal, gone);
  }
  print_note(fmt::format("measured on {}\n", machine.calibration.date));
  print_result(arguments.json ? text : calibration_summary(machine));
  return ExitCode::ok;
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--backend", arguments.backend,
                 "backend to measure: cpu, or cuda if it is built in")
      ->capture_default_str();
  app.add_option("-o,--output", arguments.output, "file to write the calibration to");
  app.add_option("--cluster-out", arguments.cluster_output,
                 "file to write this machine's cluster description to");
  app.add_option("--budget", arguments.budget,
                 "time to spend at most, roughly: \"90 s\", \"5 min\"")
      ->capture_default_str();
  app.add_flag("--resume", arguments.resume, "continue an earlier run with the same -o");
  CLI::Option* schedule =
      app.add_option(
             "--schedule", arguments.schedule,
             "show the tests for this number of ranks and their duration, without measuring")
          ->check([](const std::string& text) { return refuse_integer(text, 2, kMostDevices); });
  app.add_option("--ranks-per-node", arguments.ranks_per_node,
                 "with --schedule: ranks of each node")
      ->check([](const std::string& text) { return refuse_integer(text, 1, 4096); })
      ->needs(schedule);
  app.add_option("--cluster", arguments.cluster,
                 "with --schedule: cluster file or preset, for its rates")
      ->needs(schedule);
  app.add_option("--plan", arguments.plan,
                 "measure first the ops that this plan and its runners-up run most");
  app.add_option("--precision", arguments.precision,
                 "fp32, bf16 or fp16: also measure the ops of jobs in this precision")
      ->capture_default_str();
  app.add_option("--launcher", arguments.launcher,
                 "local (threads of this process), mpirun or srun (a process per rank; options of "
                 "theirs may follow: \"mpirun --hostfile FILE\")")
      ->capture_default_str();
  app.add_option("--devices", arguments.devices, "with a launcher: processes to start")
      ->check([](const std::string& text) { return refuse_integer(text, 2, kMostDevices); });
  add_deadline(app, arguments.deadline, "with a launcher: seconds a process waits for others");
  app.add_flag("--quick", arguments.quick, "few points, for tests: no basis for predictions");
  app.add_flag("--json", arguments.json, "print the calibration as JSON");
}

}  // namespace

ExitCode calibrate_command(int argc, char** argv, const StartProcesses& start,
                           FactsOfDevice facts) {
  Arguments arguments;
  CLI::App app("Measures this machine: matmuls, memory-bound ops, collectives, dispatch.",
               "planner-calibrate");
  add_options(app, arguments);
  if (answer_shell(app, argc, argv)) return ExitCode::ok;
  if (!parse(app, argc, argv)) return ExitCode::ok;
  if (arguments.schedule > 0) {
    show_schedule(arguments);
    return ExitCode::ok;
  }
  if (arguments.launcher == "local" && arguments.devices > 0 && !start) {
    throw UsageError("--devices: goes with --launcher mpirun or srun");
  }
  if (arguments.launcher != "local" && !start) {
    if (arguments.devices == 0)
      throw UsageError("--launcher: --devices must say how many to start");
    return launch(arguments.launcher, arguments.devices, "planner-calibrate-mpi",
                  without_launcher(argc, argv));
  }
  return run(arguments, start ? &start(deadline_of(arguments.deadline)) : nullptr, facts);
}

}  // namespace plimsoll
