// `planner sweep`: the best plan at each of many points, with days and cost of a training.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/command_line.h"
#include "base/file.h"
#include "models/presets/presets.h"
#include "passes/strategy/flag_table.h"
#include "planner/cli/flags.h"
#include "planner/cli/held_choices.h"
#include "planner/commands/commands.h"
#include "planner/sweep/sweep.h"
#include "planner/sweep/sweep_inputs.h"
#include "planner/sweep/sweep_output.h"
#include "planner/terminal/interrupt.h"
#include "planner/terminal/progress.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostBatch = std::int64_t{1} << 24,
                       kMostTokensOfASequence = std::int64_t{1} << 27;

struct SweepOptions {
  TargetOptions target;  ///< job and calibration; the others are lists
  std::vector<std::string> clusters, frameworks, devices, batches, sequences;
  std::string tokens, deadline;
  std::vector<std::string> prices;
  HeldOptions held;
  std::string reserve = kDefaultReserve;
  std::string time_limit, point_time_limit;  ///< empty: none
  std::int64_t threads = 0;
  std::string csv, html;  ///< files
  bool json = false;
};

/// One point, by the words of the command line. 0 devices are all of the cluster.
struct AskedPoint {
  std::string cluster, framework;
  std::int64_t devices = 0, global_batch = 0, sequence = 0;
};

/// Returns the name of a preset as it is, and of a path the file's name alone.
std::string word_of(const std::string& name_or_path) {
  return std::filesystem::path(name_or_path).filename().string();
}

/// Returns the command line that makes the sweep again, without paths and outputs.
std::string command_of(const SweepOptions& options) {
  std::string text = "planner sweep " + shell_word(word_of(options.target.job));
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {} {}", flag, shell_word(value));
  };
  const auto add_all = [&](const char* flag, const std::vector<std::string>& values) {
    for (const std::string& value : values) add(flag, value);
  };
  for (const std::string& cluster : options.clusters) add("--cluster", word_of(cluster));
  for (const std::string& name : options.target.calibration) add("--calibration", word_of(name));
  for (const std::string& framework : options.frameworks) add("--framework", word_of(framework));
  add_all("--devices", options.devices);
  add_all("--global-batch", options.batches);
  add_all("--sequence", options.sequences);
  add("--tokens", options.tokens);
  add_all("--price", options.prices);
  add("--deadline", options.deadline);
  add_all("--fix", options.held.fix);
  add_all("--max", options.held.max);
  add_all("--min", options.held.min);
  add_all("--exclude", options.held.exclude);
  if (options.reserve != kDefaultReserve) add("--reserve", options.reserve);
  add("--time-limit", options.time_limit);
  add("--point-time-limit", options.point_time_limit);
  return text;
}

/// Parses the lists and reads every file once, so that what is wrong is said before any search.
class Inputs {
 public:
  explicit Inputs(const SweepOptions& options)
      : options_(options),
        held_(parse_held(options.held)),
        reserve_(parse_reserve(options.reserve)),
        job_(read_stated_job(options.target)) {
    if (!options.tokens.empty()) goal_.tokens = parse_tokens(options.tokens);
    if (!options.deadline.empty()) goal_.deadline = parse_days("--deadline", options.deadline);
    if (goal_.deadline && !goal_.tokens) throw UsageError("--deadline needs --tokens");
    if (!options.prices.empty() && !goal_.tokens) throw UsageError("--price needs --tokens");
    read_prices();
    list_points();
  }

  const std::vector<AskedPoint>& points() const { return points_; }
  const SweepGoal& goal() const { return goal_; }
  const Job& job() const { return job_; }
  Bytes reserve() const { return reserve_; }

  LoadedPoint load(std::size_t index) const {
    const AskedPoint& asked = points_[index];
    LoadedTarget loaded = load_target(target_of(asked), job_of(asked), reserve_);
    LoadedPoint point{SearchRequest{loaded.target, held_.fixed, held_.limits},
                      {loaded.target.cluster().name, loaded.target.framework().name,
                       loaded.target.devices, asked.global_batch, asked.sequence},
                      loaded.source.words,
                      price_of(asked, loaded.target.cluster().name)};
    point.request.cluster_digest = loaded.cluster_digest;
    point.request.calibration_digest = loaded.source.digest;
    return point;
  }

  SweepPoint name(std::size_t index) const {
    const AskedPoint& asked = points_[index];
    return {word_of(asked.cluster), asked.framework, asked.devices, asked.global_batch,
            asked.sequence};
  }

 private:
  TargetOptions target_of(const AskedPoint& asked) const {
    TargetOptions target = options_.target;
    target.cluster = asked.cluster;
    target.framework = asked.framework;
    target.devices = asked.devices;
    return target;
  }

  Job job_of(const AskedPoint& asked) const {
    Job job = job_;
    job.global_batch = asked.global_batch;
    job.sequence = asked.sequence;
    check_job(job, "--sequence");
    return job;
  }

  /// Whether a price's cluster is one of the sweep, as the command line or its file names it.
  bool is_swept(const std::string& name) const {
    return std::ranges::any_of(options_.clusters, [&](const std::string& cluster) {
      if (cluster == name) return true;
      return parse_cluster(read_file_or_preset(cluster, cluster_presets()), cluster).name == name;
    });
  }

  void read_prices() {
    for (const std::string& text : options_.prices) {
      Price price = parse_price(text);
      if (!price.cluster.empty() && !is_swept(price.cluster))
        throw UsageError(fmt::format("--price {}: no --cluster {}", text, price.cluster));
      for (const Price& other : prices_) {
        if (other.cluster == price.cluster)
          throw UsageError(fmt::format("--price {}: the price is given twice", text));
      }
      prices_.push_back(std::move(price));
    }
  }

  /// Returns the price of a cluster itself, else that of all clusters.
  std::optional<double> price_of(const AskedPoint& asked, const std::string& name) const {
    std::optional<double> found;
    for (const Price& price : prices_) {
      if (price.cluster.empty() && !found) found = price.per_hour;
      if (price.cluster == asked.cluster || price.cluster == name) found = price.per_hour;
    }
    if (!found && !prices_.empty())
      throw UsageError(fmt::format("--price: none is given for --cluster {}", asked.cluster));
    return found;
  }

  void list_points() {
    const auto list = [](const char* flag, const std::vector<std::string>& lists, std::int64_t most,
                         std::int64_t usual) {
      return lists.empty() ? std::vector{usual} : parse_numbers(flag, lists, 1, most);
    };
    const auto devices = list("--devices", options_.devices, kMostDevices, 0);
    const auto batches = list("--global-batch", options_.batches, kMostBatch, job_.global_batch);
    const auto sequences =
        list("--sequence", options_.sequences, kMostTokensOfASequence, job_.sequence);
    const auto frameworks =
        options_.frameworks.empty() ? std::vector<std::string>{""} : options_.frameworks;
    const std::size_t count = options_.clusters.size() * frameworks.size() * devices.size() *
                              batches.size() * sequences.size();
    if (count > kMostSweepPoints)
      throw UsageError(fmt::format("{} points, more than {}", count, kMostSweepPoints));
    for (const std::string& cluster : options_.clusters) {
      for (const std::string& framework : frameworks) {
        check({cluster, framework, devices.front(), batches.front(), sequences.front()});
        for (const std::int64_t batch : batches) {
          for (const std::int64_t sequence : sequences) {
            for (const std::int64_t number : devices)
              points_.push_back({cluster, framework, number, batch, sequence});
          }
        }
      }
    }
  }

  /// Reads the files of a point and finds its price.
  void check(const AskedPoint& asked) const {
    const LoadedTarget loaded = load_target(target_of(asked), job_of(asked), reserve_);
    price_of(asked, loaded.target.cluster().name);
  }

  const SweepOptions& options_;
  const Held held_;
  const Bytes reserve_;
  const Job job_;
  SweepGoal goal_;
  std::vector<Price> prices_;
  std::vector<AskedPoint> points_;
};

void write_outputs(const SweepOptions& options, const Sweep& sweep) {
  const auto write = [](const std::string& file, const std::string& text) {
    if (file.empty()) return;
    write_file_atomically(file, text);
    print_note(fmt::format("wrote {}\n", file));
  };
  if (!options.csv.empty()) write(options.csv, sweep_csv(sweep));
  if (!options.html.empty()) write(options.html, sweep_page(sweep));
  print_result(options.json ? sweep_json(sweep) : sweep_text(sweep));
}

/// Says what is missing, and returns the code to exit with.
ExitCode verdict_of(const Sweep& sweep, std::size_t points, bool interrupted) {
  if (sweep.left > 0) {
    print_note(
        fmt::format("planner: {} after {} of {} points\n",
                    interrupted ? "stopped by an interrupt" : "the time limit ended the sweep",
                    sweep.rows.size(), points));
    return ExitCode::stopped_early;
  }
  const auto is_open = [](const SweepRow& row) {
    return row.plan ? !row.plan->proven : row.unfinished;
  };
  const auto open = std::ranges::count_if(sweep.rows, is_open);
  if (open > 0) {
    print_note(
        fmt::format("planner: at {} of {} points the best plan is not proven\n", open, points));
    return ExitCode::stopped_early;
  }
  if (answer_of(sweep).fastest) return ExitCode::ok;
  print_note("planner: no point has a plan\n");
  return ExitCode::infeasible;
}

ExitCode run_sweep_command(const SweepOptions& options) {
  std::vector<std::string> files = options.clusters;
  files.push_back(options.target.job);
  check_output("--csv", options.csv, files);
  files.push_back(options.csv);
  check_output("--html", options.html, files);
  SweepRequest request;
  if (!options.time_limit.empty()) request.time_limit = parse_time_limit(options.time_limit);
  if (!options.point_time_limit.empty())
    request.point_limit = parse_days("--point-time-limit", options.point_time_limit);
  const Inputs inputs(options);
  const InterruptNotice interrupt;
  request.points = inputs.points().size();
  request.load = [&](std::size_t i) { return inputs.load(i); };
  request.name = [&](std::size_t i) { return inputs.name(i); };
  request.goal = inputs.goal();
  request.threads = options.threads;
  request.stop = [&] { return interrupt.asked(); };
  Sweep sweep;
  {
    Progress progress("points done:");
    request.progress = [&](std::size_t done, std::size_t of) {
      progress.update(std::int64_t(done), std::int64_t(of));
    };
    sweep = run_sweep(request);
  }
  sweep.job = inputs.job().name;
  sweep.command = command_of(options);
  sweep.reserve = inputs.reserve();
  write_outputs(options, sweep);
  return verdict_of(sweep, request.points, interrupt.asked());
}

void add_list(CLI::App& command, const char* flag, std::vector<std::string>& values,
              const char* help) {
  command.add_option(flag, values, help)->allow_extra_args(false);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SweepOptions>();
  CLI::App& command = *app.add_subcommand(
      "sweep", "plan a job over many clusters, devices and batches: days, device-hours and cost");
  command.add_option("JOB", options->target.job, "job file, preset or Hugging Face config.json")
      ->required();
  command.add_option("--cluster", options->clusters, "cluster file or preset; repeatable")
      ->required()
      ->allow_extra_args(false);
  add_list(command, "--devices", options->devices,
           "64,96,128, 64..1024x2 (doubled) or 64..256+64; repeatable; default: all of a cluster "
           "that states its nodes");
  add_list(command, "--framework", options->frameworks, "as of plan; repeatable");
  add_list(command, "--global-batch", options->batches, "sequences per step, as --devices");
  add_list(command, "--sequence", options->sequences, "tokens of a sequence, as --devices");
  add_calibration(command, options->target.calibration);
  command.add_option("--tokens", options->tokens, "what is trained on: 15T, 300B");
  add_list(command, "--price", options->prices,
           "2.5/h for each device, or CLUSTER=2.5/h; repeatable");
  command.add_option("--deadline", options->deadline, "30d, 12h: the cheapest within this time");
  add_held(command, options->held);
  add_reserve(command, options->reserve);
  command.add_option("--time-limit", options->time_limit,
                     "end the sweep after this time (\"10 s\") with the rows so far, exit 5");
  command.add_option("--point-time-limit", options->point_time_limit,
                     "end the search of each point after this time with the best so far, exit 5");
  add_threads(command, options->threads, "the table");
  command.add_option("--csv", options->csv, "write the table here");
  command.add_option("--html", options->html, "write a page with table and charts here");
  add_json(command, options->json);
  command.callback(
      [options, &action] { action = [options] { return run_sweep_command(*options); }; });
}

}  // namespace plimsoll
