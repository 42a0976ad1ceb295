#include "calibrate/calibrate_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <sstream>
#include <string>

#include "base/command_line.h"
#include "base/file.h"
#include "calibrate/calibrate.h"
#include "runtime/launch.h"

namespace plimsoll {
namespace {

struct Arguments {
  std::string backend = "cpu";
  std::string output, cluster_output;
  std::string precision = "fp32";
  double budget = 50;
  std::string launcher = "local";
  std::int64_t devices = 0;
  bool quick = false, json = false;
};

constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;

DType precision_from(const std::string& text) {
  if (text == "fp32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  if (text == "fp16") return DType::f16;
  throw UsageError(fmt::format("--precision {}: known are fp32, bf16, fp16", text));
}

void run(const Arguments& arguments, Processes* processes) {
  const bool reports = processes == nullptr || processes->index() == 0;
  if (arguments.backend != "cpu") {
    throw UsageError(fmt::format("--backend {}: only cpu can be calibrated", arguments.backend));
  }
  if (reports) {
    check_output("-o", arguments.output, std::array{arguments.cluster_output});
    check_output("--cluster-out", arguments.cluster_output, {});
  }
  CalibrationRequest request;
  request.backend = arguments.backend;
  request.size = arguments.quick ? SweepSize::quick : SweepSize::full;
  request.budget = Seconds(arguments.budget);
  request.precision = precision_from(arguments.precision);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  request.progress = [&](const std::string& what, std::size_t done, std::size_t of) {
    if (terminal) {
      print_note(
          fmt::format("\rcalibrating {}/{} {:24}{}", done, of, what, done == of ? "\n" : ""));
    } else if (done == of || done * 10 / of != (done - 1) * 10 / of) {
      print_note(fmt::format("calibrating {}/{} {}\n", done, of, what));
    }
  };
  const MachineCalibration machine =
      processes == nullptr ? calibrate(request) : calibrate_processes(request, *processes);
  if (!reports) return;
  const std::string text = calibration_text(machine.calibration);
  if (!arguments.output.empty()) write_file_atomically(arguments.output, text);
  if (!arguments.cluster_output.empty()) {
    write_file_atomically(arguments.cluster_output, cluster_text(machine.cluster));
  }
  print_note(fmt::format("measured on {}\n", machine.calibration.date));
  print_result(arguments.json ? text : calibration_summary(machine));
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--backend", arguments.backend, "backend to measure: cpu")->capture_default_str();
  app.add_option("-o,--output", arguments.output, "file to write the calibration to");
  app.add_option("--cluster-out", arguments.cluster_output,
                 "file to write this machine's cluster description to");
  app.add_option("--budget", arguments.budget, "seconds to spend at most, roughly")
      ->capture_default_str()
      ->check([](const std::string& text) { return refuse_number(text, 0.001, 1e5); });
  app.add_option("--precision", arguments.precision,
                 "fp32, or bf16 or fp16: what jobs of that precision run, beside fp32")
      ->capture_default_str();
  app.add_option("--launcher", arguments.launcher,
                 "local (threads of this process), mpirun or srun (a process per rank; options of "
                 "theirs may follow: \"mpirun --hostfile FILE\")")
      ->capture_default_str();
  app.add_option("--devices", arguments.devices, "with a launcher: processes to start")
      ->check([](const std::string& text) { return refuse_integer(text, 2, kMostDevices); });
  app.add_flag("--quick", arguments.quick, "few points, for tests: no basis for predictions");
  app.add_flag("--json", arguments.json, "print the calibration as JSON");
  app.allow_extras();  // refused by refuse_leftovers, which can name the nearest
}

}  // namespace

ExitCode calibrate_command(int argc, char** argv, Processes* processes) {
  Arguments arguments;
  CLI::App app("Measures this machine: matmuls, memory-bound ops, collectives, dispatch.",
               "planner-calibrate");
  add_options(app, arguments);
  refuse_empty_values(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app.exit(success, text, text);
    print_result(text.str());
    return ExitCode::ok;
  } catch (const CLI::ParseError& error) {
    refuse_leftovers(app);
    throw UsageError(error.what());
  }
  refuse_leftovers(app);
  if (arguments.launcher != "local" && processes == nullptr) {
    if (arguments.devices == 0)
      throw UsageError("--launcher: --devices must say how many to start");
    launch(arguments.launcher, arguments.devices, "planner-calibrate-mpi",
           without_launcher(argc, argv));
  }
  run(arguments, processes);
  return ExitCode::ok;
}

}  // namespace plimsoll
