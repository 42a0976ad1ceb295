// The arguments of planner-run are parsed here, and its results printed and written.
#include "runtime/command/run_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "command_line/completion.h"
#include "command_line/interrupt.h"
#include "command_line/parse.h"
#include "graph/text.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "runtime/checkpoint/saved.h"
#include "runtime/command/launch.h"
#include "runtime/command/train.h"

namespace plimsoll {
namespace {

struct Arguments {
  std::string plan, data, held_out, output;
  std::string backend = "cpu";
  std::string launcher = "local";
  std::int64_t steps = 20;
  std::string checkpoint, resume;
  std::int64_t checkpoint_every = 0, checkpoint_keep = 2;
  std::int64_t eval_every = 100, eval_batches = 1;
  std::int64_t warmup_steps = 0, decay_steps = 0;
  std::string decay_style = "constant";
  double least_rate = 0;
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

std::string read_text(const std::string& file, const Job& job) {
  std::string text = read_file(file);
  if (std::int64_t(text.size()) <= job.sequence + 1) {
    throw InputError(
        file, "",
        fmt::format("found {} bytes; one sequence and its last target need more than {}",
                    text.size(), job.sequence + 1));
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto token = std::int64_t(static_cast<unsigned char>(text[i]));
    if (token < job.vocab) continue;
    throw InputError(file, fmt::format("/{}", i),
                     fmt::format("found byte {}; the job's vocabulary is {}", token, job.vocab));
  }
  return text;
}

constexpr std::string_view kDecayStyles[] = {"constant", "linear", "cosine"};

RateSchedule schedule_of(const Arguments& arguments, const Job& job) {
  RateSchedule rates;
  const auto* const style = std::ranges::find(kDecayStyles, arguments.decay_style);
  rates.shape = RateDecay(style - std::begin(kDecayStyles));
  rates.warmup = arguments.warmup_steps;
  if (rates.shape == RateDecay::constant) {
    if (arguments.decay_steps > 0 || arguments.least_rate > 0)
      throw UsageError("--lr-decay-steps and --min-lr go with --lr-decay-style linear or cosine");
    return rates;
  }
  rates.decay = arguments.decay_steps > 0 ? arguments.decay_steps : arguments.steps;
  if (rates.decay <= rates.warmup) {
    throw UsageError(
        fmt::format("--lr-decay-steps: found {}; more than the {} steps of the warm-up "
                    "are required",
                    rates.decay, rates.warmup));
  }
  const double rate = job.optimizer.learning_rate;
  if (arguments.least_rate > rate) {
    throw UsageError(
        fmt::format("--min-lr: found {}; at most the job's learning rate of {} is "
                    "allowed",
                    arguments.least_rate, rate));
  }
  rates.least = rate > 0 ? arguments.least_rate / rate : 0;
  return rates;
}

/// "warm-up of 10 steps, cosine to 0.1 of the rate at step 100".
std::string to_words(const RateSchedule& rates) {
  std::string text = rates.warmup > 0 ? fmt::format("warm-up of {} steps, ", rates.warmup) : "";
  text += kDecayStyles[std::size_t(rates.shape)];
  if (rates.shape != RateDecay::constant)
    text += fmt::format(" to {} of the rate at step {}", rates.least, rates.decay);
  return text;
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

/// `steps_before` were made in earlier runs.
std::string summary(const Plan& plan, const Measured& measured, std::int64_t steps_before) {
  std::string text =
      fmt::format("{}: {} on {} ranks, backend {}, {} steps\n", plan.job.name,
                  strategy_summary(plan.strategy), plan.devices, measured.backend, measured.steps);
  text += "  step        loss   gradient norm\n";
  for (std::size_t step = 0; step < measured.losses.size(); ++step) {
    const double norm = measured.gradient_norms[step];
    const bool skipped = !measured.loss_scales.empty() && !std::isfinite(norm);
    const std::string norm_text = plan.strategy.gradients.release ? "-"
                                  : skipped                       ? "skipped"
                                                                  : fmt::format("{:.6f}", norm);
    text += fmt::format("{:6}  {:10.6f}  {:>14}\n", std::size_t(steps_before) + step + 1,
                        measured.losses[step], norm_text);
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

/// The run's own part of each checkpoint.
SaveOptions save_options(const Arguments& arguments, const Plan& plan, const std::string& text) {
  SaveOptions save;
  save.folder = arguments.checkpoint;
  save.every = arguments.checkpoint_every;
  save.keep = arguments.checkpoint_keep;
  save.record.plan_digest = digest(plan_text(plan));
  save.record.data_bytes = std::int64_t(text.size());
  save.record.data_digest = digest(text);
  save.record.rates = to_words(schedule_of(arguments, plan.job));
  save.record.job = plan.job;
  save.saved = [](const std::filesystem::path& checkpoint) {
    print_note(fmt::format("checkpoint {}\n", checkpoint.string()));
  };
  return save;
}

/// Finds the checkpoint from which a run goes on. Process 0 reads its values, and says what is not
/// as it was; the others wait.
std::shared_ptr<const SavedCheckpoint> find_resumed(const Arguments& arguments, const Plan& plan,
                                                    const std::string& text,
                                                    std::span<const Program> programs,
                                                    Processes* processes,
                                                    std::chrono::milliseconds deadline) {
  auto saved = std::make_shared<SavedCheckpoint>(arguments.resume);
  const std::vector<std::string> changes = saved->check_job(plan.job);
  saved->check_tensors(programs);
  if (processes == nullptr || processes->index() == 0) {
    saved->check_values();
    const CheckpointRecord& record = saved->record();
    std::string note =
        fmt::format("goes on behind step {} of {}", record.step, saved->folder().string());
    if (record.plan_digest != digest(plan_text(plan))) note += ", by another plan";
    if (record.data_digest != digest(text)) note += ", on another text";
    const std::string rates = to_words(schedule_of(arguments, plan.job));
    if (record.rates != rates)
      note += fmt::format("; the schedule of the learning rate was: {}", printable(record.rates));
    for (const std::string& change : changes) note += "; " + change;
    print_note(note + "\n");
  }
  constexpr int kDeadlines = 10;
  if (processes != nullptr) processes->barrier(kDeadlines * deadline);
  return saved;
}

/// "step 7/20  loss 4.1234  step time 12.3 ms  41532 tokens/s  3.1 s left", of which
/// models/presets/readers/training-logs.json has the labels.
std::string step_line(const Job& job, std::int64_t step, std::int64_t steps, double loss,
                      Seconds time, Seconds mean, double held_out) {
  const double tokens = double(job.global_batch * job.sequence);
  const bool timed = time.value() > 0;
  const std::int64_t left = steps - step - 1;
  return fmt::format(
      "step {}/{}  loss {:.4f}  step time {}{}{}{}\n", step + 1, steps, loss, to_text(time),
      timed ? fmt::format("  {:.0f} tokens/s", tokens / time.value()) : "",
      left > 0 ? fmt::format("  {} left", to_text(Seconds(double(left) * mean.value()))) : "",
      std::isnan(held_out) ? "" : fmt::format("  held-out loss {:.4f}", held_out));
}

/// Says on process 0 that a signal has ended the run, and what was written. Returns the code with
/// which shells end where a signal does.
ExitCode stopped(const Arguments& arguments, std::int64_t step, bool reports) {
  if (reports) {
    const std::string kept = arguments.checkpoint.empty()
                                 ? "the training was not saved, since there is no --checkpoint"
                                 : fmt::format("--resume {} goes on", arguments.checkpoint);
    print_note(fmt::format("stopped by {} behind step {} of {}; {}{}\n", InterruptNotice::name(),
                           step, arguments.steps, kept,
                           arguments.output.empty()
                               ? ""
                               : fmt::format("; {} is not written, since the last step was not "
                                             "traced",
                                             arguments.output)));
  }
  return InterruptNotice::code();
}

ExitCode run(const Arguments& arguments, Processes* processes) {
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
  const std::string text = read_text(arguments.data, plan.job);
  const std::vector<Program> programs = rebuild(plan, arguments.plan);

  TrainOptions options;
  options.rates = schedule_of(arguments, plan.job);
  options.backend = arguments.backend;
  options.deadline = deadline;
  options.checking = arguments.check;
  options.replay = !arguments.no_graphs;
  options.processes = processes;
  if (!arguments.held_out.empty()) {
    const std::string held_out = read_text(arguments.held_out, plan.job);
    const auto bytes = std::as_bytes(std::span(held_out));
    options.held_out =
        HeldOut{{bytes.begin(), bytes.end()}, arguments.eval_every, arguments.eval_batches};
  }
  std::int64_t before = 0;  // steps of earlier runs
  if (!arguments.resume.empty()) {
    options.resume = find_resumed(arguments, plan, text, programs, processes, deadline);
    before = options.resume->record().step;
  }
  options.steps = arguments.steps - before;
  if (options.steps < 1) {
    if (reports) print_note(fmt::format("all {} steps are made: nothing is left\n", before));
    return ExitCode::ok;
  }
  // A run that goes on may have few steps left; then nothing is timed.
  const bool measures = options.steps >= kLeastSteps;
  options.warm_up_steps = measures ? kWarmUpSteps : options.steps;
  if (!arguments.checkpoint.empty()) options.save = save_options(arguments, plan, text);
  const InterruptNotice interrupt;
  options.stop = [] { return InterruptNotice::signal() != 0; };
  Seconds sum;
  options.progress = [&](std::int64_t step, double loss, Seconds time, double held_out) {
    sum += time;
    const Seconds mean = sum / double(step - before + 1);
    print_note(step_line(plan.job, step, arguments.steps, loss, time, mean, held_out));
  };
  TrainResult result =
      train(programs, plan.job, plan.framework, std::as_bytes(std::span(text)), options);
  if (result.steps < options.steps) return stopped(arguments, before + result.steps, reports);
  if (!reports) return ExitCode::ok;
  Measured& measured = result.measured;
  measured.plan_digest = digest(plan_text(plan));
  if (measures) {
    if (!arguments.output.empty()) write_file_atomically(arguments.output, measured_text(measured));
    print_note(fmt::format("median step time {} over {} steps\n",
                           to_text(measured.median_step_time), measured.step_times.size()));
  } else {
    print_note(fmt::format("too few steps were left to time them{}{}\n",
                           arguments.output.empty() ? "" : "; not written: ", arguments.output));
  }
  print_result(arguments.json ? measured_text(measured) : summary(plan, measured, before));
  return ExitCode::ok;
}

void add_held_out_options(CLI::App& app, Arguments& arguments) {
  const auto count = [](const std::string& text) { return refuse_integer(text, 1, kMostSteps); };
  CLI::Option* const file = app.add_option(
      "--eval-data", arguments.held_out,
      "file whose bytes are not trained on; its loss is printed, at the cost of a step for each "
      "batch");
  app.add_option("--eval-interval", arguments.eval_every, "steps between these losses")
      ->capture_default_str()
      ->check(count)
      ->needs(file);
  app.add_option("--eval-iters", arguments.eval_batches, "global batches that each is the mean of")
      ->capture_default_str()
      ->check(count)
      ->needs(file);
}

void add_rate_options(CLI::App& app, Arguments& arguments) {
  const auto count = [](const std::string& text) { return refuse_integer(text, 0, kMostSteps); };
  app.add_option("--lr-warmup-steps", arguments.warmup_steps,
                 "number of steps in which the learning rate rises to the job's")
      ->capture_default_str()
      ->check(count);
  app.add_option("--lr-decay-style", arguments.decay_style,
                 "how it falls after the warm-up: constant, linear or cosine")
      ->capture_default_str()
      ->check([](const std::string& text) {
        const bool known = std::ranges::find(kDecayStyles, text) != std::end(kDecayStyles);
        return known ? "" : "found " + printable(text) + "; constant, linear or cosine is required";
      });
  app.add_option("--lr-decay-steps", arguments.decay_steps,
                 "the step at which it has fallen; default: --steps")
      ->check(count);
  app.add_option("--min-lr", arguments.least_rate, "the learning rate then")
      ->capture_default_str()
      ->check([](const std::string& text) { return refuse_number(text, 0, 1e3); });
}

void add_checkpoint_options(CLI::App& app, Arguments& arguments) {
  CLI::Option* const folder =
      app.add_option("--checkpoint,--save", arguments.checkpoint,
                     "folder to save the training in when it ends, and at Ctrl-C and SIGTERM");
  app.add_option("--checkpoint-every,--save-interval", arguments.checkpoint_every,
                 "save also after every N steps")
      ->check([](const std::string& text) { return refuse_integer(text, 1, kMostSteps); })
      ->needs(folder);
  app.add_option("--checkpoint-keep", arguments.checkpoint_keep,
                 "number of the latest checkpoints that stay")
      ->capture_default_str()
      ->check([](const std::string& text) { return refuse_integer(text, 1, kMostSteps); })
      ->needs(folder);
  app.add_option("--resume,--load", arguments.resume,
                 "checkpoint from which training goes on, or a folder with some: then the latest. "
                 "The plan may be another one of the same job");
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("PLAN", arguments.plan, "plan to run (planner plan -o)")->required();
  app.add_option("--data", arguments.data, "file whose bytes are trained on")->required();
  app.add_option("--steps", arguments.steps,
                 "training steps, with those of earlier runs; the last one is traced")
      ->capture_default_str()
      ->check(
          [](const std::string& text) { return refuse_integer(text, kLeastSteps, kMostSteps); });
  app.add_option("-o,--output", arguments.output, "file to write the measurement to");
  add_held_out_options(app, arguments);
  add_rate_options(app, arguments);
  add_checkpoint_options(app, arguments);
  app.add_option("--backend", arguments.backend,
                 fmt::format("backend of the ops: {} (null computes nothing)", backend_names()))
      ->capture_default_str();
  app.add_option(
         "--launcher", arguments.launcher,
         "local (ranks are threads of one process), mpirun or srun (a process each; options "
         "of theirs may follow: \"mpirun --hostfile FILE\")")
      ->capture_default_str();
  app.add_flag("--any-hosts", arguments.any_hosts,
               "allow hosts that do not match the plan's nodes; step times are then not comparable "
               "with the plan's");
  add_deadline(app, arguments.deadline, "seconds a rank waits for others");
  app.add_flag("--no-graphs", arguments.no_graphs,
               "cuda: launch kernels one by one in every step; else they are captured once and "
               "replayed");
  app.add_flag("--check", arguments.check, "guard zones and poisoned memory (slower)");
  app.add_flag("--json", arguments.json, "print the measurement as JSON");
}

}  // namespace

ExitCode run_command(int argc, char** argv, const StartProcesses& start) {
  Arguments arguments;
  CLI::App app("Trains the job of a plan on this machine and measures it.", "planner-run");
  add_options(app, arguments);
  if (answer_shell(app, argc, argv)) return ExitCode::ok;
  if (!parse(app, argc, argv)) return ExitCode::ok;
  if (arguments.launcher != "local" && !start) {
    return launch(arguments.launcher, read_legal_plan(arguments.plan).devices, "planner-run-mpi",
                  without_launcher(argc, argv));
  }
  return run(arguments, start ? &start(deadline_of(arguments.deadline)) : nullptr);
}

int run_program_and_exit(const char* name, int argc, char** argv, const StartProcesses& start) {
  const auto body = [&] { return run_command(argc, argv, start); };
  const int code = run_program(name, std::cref(body));
  if (code == int(ExitCode::ok)) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}

void add_deadline(CLI::App& app, double& seconds, const std::string& description) {
  constexpr double kLeast = 1e-3, kMost = 1e6;
  app.add_option("--deadline", seconds, description)
      ->capture_default_str()
      ->check([](const std::string& text) { return refuse_number(text, kLeast, kMost); });
}

std::chrono::milliseconds deadline_of(double seconds) {
  const double count = std::round(seconds * 1e3);
  if (std::abs(seconds * 1e3 - count) > 1e-6) {
    throw UsageError(fmt::format("--deadline: found {}; whole milliseconds are required", seconds));
  }
  return std::chrono::milliseconds(std::int64_t(count));
}

}  // namespace plimsoll
