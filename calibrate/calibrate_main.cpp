// planner-calibrate: measures this machine and writes its calibration and cluster files.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "calibrate/calibrate.h"

namespace plimsoll {
namespace {

struct Arguments {
  std::string backend = "cpu";
  std::string output, cluster_output;
  double budget = 50;
  bool quick = false, json = false;
};

void run(const Arguments& arguments) {
  if (arguments.backend != "cpu") {
    throw UsageError(fmt::format("--backend {}: only cpu can be calibrated", arguments.backend));
  }
  if (!(arguments.budget > 0 && arguments.budget <= 1e5)) {
    throw UsageError("--budget: seconds above 0, at most 100000");
  }
  CalibrationRequest request;
  request.backend = arguments.backend;
  request.size = arguments.quick ? SweepSize::quick : SweepSize::full;
  request.budget = Seconds(arguments.budget);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  request.progress = [&](const std::string& what, std::size_t done, std::size_t of) {
    if (terminal) {
      fmt::print(stderr, "\rcalibrating {}/{} {:24}", done, of, what);
      if (done == of) fmt::print(stderr, "\n");
    } else if (done == of || done * 10 / of != (done - 1) * 10 / of) {
      fmt::print(stderr, "calibrating {}/{} {}\n", done, of, what);
    }
  };
  const MachineCalibration machine = calibrate(request);
  const std::string text = calibration_text(machine.calibration);
  if (!arguments.output.empty()) write_file_atomically(arguments.output, text);
  if (!arguments.cluster_output.empty()) {
    write_file_atomically(arguments.cluster_output, cluster_text(machine.cluster));
  }
  fmt::print("{}", arguments.json ? text : calibration_summary(machine));
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** words) {
  using namespace plimsoll;
  Arguments arguments;
  CLI::App app("Measures this machine: matmuls, memory-bound ops, collectives, dispatch.",
               "planner-calibrate");
  app.add_option("--backend", arguments.backend, "backend to measure: cpu")->capture_default_str();
  app.add_option("-o,--output", arguments.output, "file to write the calibration to");
  app.add_option("--cluster-out", arguments.cluster_output,
                 "file to write this machine's cluster description to");
  app.add_option("--budget", arguments.budget, "seconds to spend at most, roughly")
      ->capture_default_str();
  app.add_flag("--quick", arguments.quick, "few points, for tests: no basis for predictions");
  app.add_flag("--json", arguments.json, "print the calibration as JSON");
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? int(ExitCode::ok) : int(ExitCode::usage);
  }
  try {
    run(arguments);
    return std::fflush(stdout) == 0 ? int(ExitCode::ok) : int(ExitCode::environment);
  } catch (const std::exception& error) {
    fmt::print(stderr, "planner-calibrate: {}\n", error.what());
    return int(exit_code(error));
  }
}
