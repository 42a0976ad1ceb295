// The arguments of planner-run are parsed here, and its results printed and written.
#include "runtime/command/run_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "base/command_line.h"
#include "base/file.h"
#include "command_line/answer_shell.h"
#include "command_line/parse.h"
#include "graph/text.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "runtime/command/launch.h"
#include "runtime/command/placement.h"
#include "runtime/command/train.h"

namespace plimsoll {
namespace {

struct Arguments {
  std::string plan, data, output;
  std::string backend = "cpu";
  std::string launcher = "local";
  std::int64_t steps = 20;
  double deadline = 60;
  bool any_hosts = false;
  bool check = false;
  bool no_graphs = false;
  bool json = false;
};

constexpr std::int64_t kWarmUpSteps = 2;
/// Two warm-up steps, one that is timed, one that is traced.
constexpr std::int64_t kLeastSteps = kWarmUpSteps + 2;
/// Every step's loss is in the measurement.
constexpr std::int64_t kMostSteps = 1'000'000;
constexpr double kLeastDeadline = 1e-3, kMostDeadline = 1e6;  // seconds

/// Programs for CPU cores run everywhere; Programs for GPUs have kernels there only.
void check_framework(const Plan& plan, const Arguments& arguments) {
  const Framework& framework = plan.framework;
  const bool for_gpus = lowers_alike(framework, bundled_cuda_framework());
  if (!for_gpus && !lowers_alike(framework, bundled_framework())) {
    throw InputError(arguments.plan, "/framework/name",
                     fmt::format("found \"{}\"; only plans for the bundled runtime can run here, "
                                 "others are simulated",
                                 framework.name));
  }
  if (for_gpus && arguments.backend == "cpu") {
    throw UsageError(
        fmt::format("the plan is for framework {}, whose kernels GPUs have; run it "
                    "with --backend cuda",
                    framework.name));
  }
}

/// The plan's Programs, rebuilt; another version of the passes would run something else than what
/// was predicted, so their digests must agree.
std::vector<Program> rebuild(const Plan& plan, const std::string& file) {
  std::vector<Program> programs = lower({plan.job, plan.strategy, plan.framework});
  bool same = programs.size() == plan.program_digests.size();
  for (std::size_t i = 0; same && i < programs.size(); ++i) {
    same = digest(print(programs[i])) == plan.program_digests[i];
  }
  if (!same) {
    throw InputError(
        file, "/programs",
        "the Programs of this plan differ from those this version builds from its job, "
        "strategy and framework; plan again");
  }
  return programs;
}

std::string read_text(const Arguments& arguments, const Job& job) {
  std::string text = read_file(arguments.data);
  if (std::int64_t(text.size()) <= job.sequence + 1) {
    throw InputError(
        arguments.data, "",
        fmt::format("found {} bytes; one sequence and its last target need more than {}",
                    text.size(), job.sequence + 1));
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto token = std::int64_t(static_cast<unsigned char>(text[i]));
    if (token < job.vocab) continue;
    throw InputError(arguments.data, fmt::format("/{}", i),
                     fmt::format("found byte {}; the job's vocabulary is {}", token, job.vocab));
  }
  return text;
}

/// Waits are counted in whole milliseconds; a deadline is kept, and named, exactly.
std::chrono::milliseconds deadline_of(double seconds) {
  const double count = std::round(seconds * 1e3);
  if (std::abs(seconds * 1e3 - count) > 1e-6) {
    throw UsageError(fmt::format("--deadline: found {}; whole milliseconds are required", seconds));
  }
  return std::chrono::milliseconds(std::int64_t(count));
}

std::string experts_text(const std::vector<MeasuredExperts>& experts) {
  if (experts.empty()) return "";
  std::string text = "  layer   dropped choices  load of experts\n";
  for (const MeasuredExperts& one : experts) {
    text += fmt::format("{:7}  {:7} {:6.1f} %  {:>15}\n", one.layer, one.dropped,
                        100 * double(one.dropped) / double(one.choices),
                        one.load > 0 ? fmt::format("{:.3f}", one.load) : "all on a rank");
  }
  return text;
}

std::string summary(const Plan& plan, const Measured& measured) {
  std::string text =
      fmt::format("{}: {} on {} ranks, backend {}, {} steps\n", plan.job.name,
                  strategy_summary(plan.strategy), plan.devices, measured.backend, measured.steps);
  text += "  step        loss   gradient norm\n";
  for (std::size_t step = 0; step < measured.losses.size(); ++step) {
    const double norm = measured.gradient_norms[step];
    const bool skipped = !measured.loss_scales.empty() && !std::isfinite(norm);
    text += fmt::format("{:6}  {:10.6f}  {:>14}\n", step + 1, measured.losses[step],
                        skipped ? "skipped" : fmt::format("{:.6f}", norm));
  }
  if (measured.skipped_steps > 0) {
    text += fmt::format("{} of {} steps skipped: gradients overflowed at their loss scale\n",
                        measured.skipped_steps, measured.steps);
  }
  text += experts_text(measured.experts);
  text += "  rank      peak bytes\n";
  for (const RankMemory& memory : measured.timeline.memory) {
    text += fmt::format("{:6}  {:14}\n", memory.rank, memory.peak.count());
  }
  return text;
}

void run(const Arguments& arguments, Processes* processes) {
  const auto deadline = deadline_of(arguments.deadline);
  const bool reports = processes == nullptr || processes->index() == 0;
  if (reports) check_output("-o", arguments.output, std::array{arguments.plan, arguments.data});
  const Plan plan = read_legal_plan(arguments.plan);
  if (processes != nullptr && processes->size() != plan.devices) {
    throw UsageError(fmt::format("{} processes were started; {} is for {} devices",
                                 processes->size(), arguments.plan, plan.devices));
  }
  if (processes != nullptr && !plan.oversubscribed && !arguments.any_hosts) {
    const Verdict fits = fits_placement(plan.devices_per_node, processes->hosts());
    if (!fits) throw UsageError(fits.reason() + "; --any-hosts runs it all the same");
  }
  check_framework(plan, arguments);
  const std::string text = read_text(arguments, plan.job);
  const std::vector<Program> programs = rebuild(plan, arguments.plan);

  TrainOptions options;
  options.backend = arguments.backend;
  options.steps = arguments.steps;
  options.warm_up_steps = kWarmUpSteps;
  options.deadline = deadline;
  options.checking = arguments.check;
  options.replay = !arguments.no_graphs;
  options.progress = [&](std::int64_t step, double loss, Seconds time) {
    print_note(fmt::format("step {}/{}  loss {:.4f}  {}\n", step + 1, arguments.steps, loss,
                           to_text(time)));
  };
  options.processes = processes;
  Measured measured =
      train(programs, plan.job, plan.framework, std::as_bytes(std::span(text)), options).measured;
  if (!reports) return;
  measured.plan_digest = digest(plan_text(plan));
  if (!arguments.output.empty()) write_file_atomically(arguments.output, measured_text(measured));
  print_note(fmt::format("median step time {} over {} steps\n", to_text(measured.median_step_time),
                         measured.step_times.size()));
  print_result(arguments.json ? measured_text(measured) : summary(plan, measured));
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("PLAN", arguments.plan, "plan to run (planner plan -o)")->required();
  app.add_option("--data", arguments.data, "file whose bytes are trained on")->required();
  app.add_option("--steps", arguments.steps, "training steps, the last one traced")
      ->capture_default_str()
      ->check(
          [](const std::string& text) { return refuse_integer(text, kLeastSteps, kMostSteps); });
  app.add_option("-o,--output", arguments.output, "file to write the measurement to");
  app.add_option("--backend", arguments.backend,
                 fmt::format("where ops run: {} (null computes nothing)", backend_names()))
      ->capture_default_str();
  app.add_option(
         "--launcher", arguments.launcher,
         "local (ranks are threads of one process), mpirun or srun (a process each; options "
         "of theirs may follow: \"mpirun --hostfile FILE\")")
      ->capture_default_str();
  app.add_flag("--any-hosts", arguments.any_hosts,
               "allow hosts that do not match the plan's nodes; step times are then not comparable "
               "with the plan's");
  app.add_option("--deadline", arguments.deadline, "seconds a rank waits for others")
      ->capture_default_str()
      ->check([](const std::string& text) {
        return refuse_number(text, kLeastDeadline, kMostDeadline);
      });
  app.add_flag("--no-graphs", arguments.no_graphs,
               "cuda: launch kernels one by one in every step; else they are captured once and "
               "replayed");
  app.add_flag("--check", arguments.check, "guard zones and poisoned memory (slower)");
  app.add_flag("--json", arguments.json, "print the measurement as JSON");
}

}  // namespace

ExitCode run_command(int argc, char** argv, Processes* processes) {
  Arguments arguments;
  CLI::App app("Trains the job of a plan on this machine and measures it.", "planner-run");
  add_options(app, arguments);
  if (answer_shell(app, argc, argv)) return ExitCode::ok;
  if (!parse(app, argc, argv)) return ExitCode::ok;
  if (arguments.launcher != "local" && processes == nullptr) {
    launch(arguments.launcher, read_legal_plan(arguments.plan).devices, "planner-run-mpi",
           without_launcher(argc, argv));
  }
  run(arguments, processes);
  return ExitCode::ok;
}

int run_program_and_exit(const char* name, int argc, char** argv, Processes* processes) {
  const int code = run_program(name, [&] { return run_command(argc, argv, processes); });
  if (code == int(ExitCode::ok)) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace plimsoll
