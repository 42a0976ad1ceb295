// `planner learn`: the numbers of a cluster and of a framework, moved towards what one's own runs
// took.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/command_line.h"
#include "base/file.h"
#include "base/log_statistics.h"
#include "base/text.h"
#include "fitting/learn.h"
#include "planner/api/own_run.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"

namespace plimsoll {
namespace {

struct LearnOptions {
  LearnQuestion question;
  std::string output;  ///< file; empty: none is written
  bool json = false;
};

std::string left_out_text(const SteadyPart& steady) {
  std::array<std::int64_t, 5> counts{};
  for (const LeftOutStep& step : steady.left_out) ++counts[std::size_t(step.reason)];
  std::vector<std::string> words;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) words.push_back(fmt::format("{} {}", counts[i], kLeftOutReasons[i]));
  }
  return words.empty() ? "" : fmt::format("; left out: {}", fmt::join(words, ", "));
}

/// "-12.3 %" of a predicted step.
std::string error_text(Seconds predicted, Seconds measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

std::string runs_text(const std::vector<OwnRun>& own, const Learned& learned) {
  std::string text;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LearnedRun& run = learned.runs[i];
    const SteadyPart& steady = own[i].steady;
    text += fmt::format("{}: {}, {} of {} steps{}\n", own[i].file, own[i].log.trainer, steady.steps,
                        own[i].log.distinct_steps, left_out_text(steady));
    text += fmt::format(
        "  step {} (half of them {} to {}); predicted before {} ({}), now {} ({})\n",
        to_text(run.measured), to_text(steady.lower_quartile), to_text(steady.upper_quartile),
        to_text(run.before), error_text(run.before, run.measured), to_text(run.after),
        error_text(run.after, run.measured));
    if (run.left_out) {
      text += fmt::format(
          "  by the other runs {:+.1f} %, expected within +-{:.1f} %{}\n",
          100 * std::expm1(-run.left_out->error),
          100 * std::expm1(kNormal90 * run.left_out->deviation),
          run.contradicts ? ": they contradict it, and nothing was learned from it" : "");
    }
    if (run.unlikely)
      text += "  this is unlikely: check that the log is of this script and this cluster\n";
    for (const std::string& doubt : own[i].log.doubts) text += fmt::format("  {}\n", doubt);
  }
  return text;
}

std::string values_text(const std::vector<OwnRun>& own, const FittedCalibration& fitted) {
  std::string text = fmt::format("{:36}{:>11}{:>11}  90 %\n", "learned", "before", "now");
  std::vector<std::string> open;
  for (const FittedValue& value : fitted.values) {
    if (!value.determined) {
      open.push_back(value.name);
      continue;
    }
    text += fmt::format("  {:34}{:>11.4g}{:>11.4g}  {:.4g} to {:.4g}\n", value.name, value.prior,
                        value.value, value.low, value.high);
  }
  std::vector<LayerShape> known;
  for (const OwnRun& one : own) {
    const LayerShape& shape = one.run.shape;
    if (std::ranges::find(known, shape) != known.end()) continue;
    known.push_back(shape);
    text += fmt::format("  {:34}{:>11.3f}{:>11.3f}\n",
                        fmt::format("layers, {} tokens, mp {}", shape.tokens, shape.mp),
                        one.run.layer_factor,
                        std::ranges::find(fitted.layers, shape, &LayerPoint::shape)->factor);
  }
  if (!open.empty())
    text +=
        fmt::format("  hardly moved, since no run depends much on it: {}\n", fmt::join(open, ", "));
  return text;
}

std::string learned_text(const std::vector<OwnRun>& own, const Learned& learned) {
  const PublishedTarget& target = own[0].run.target;
  return fmt::format(
      "{} {} on {} with {}; before: {}\n{}\n{}\nother steps like these: +-{:.0f} % (90 %), before "
      "+-{:.0f} %\n",
      own.size(), own.size() == 1 ? "run" : "runs", target.cluster.name, target.framework.name,
      own[0].basis, runs_text(own, learned), values_text(own, learned.fitted),
      100 * learned.half_width, 100 * learned.half_width_before);
}

Json learned_json(const std::vector<OwnRun>& own, const Learned& learned,
                  const std::string& output) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LearnedRun& run = learned.runs[i];
    const SteadyPart& steady = own[i].steady;
    Json json = {{"script", own[i].script},
                 {"log", own[i].file},
                 {"trainer", own[i].log.trainer},
                 {"steps", steady.steps},
                 {"left_out_steps", steady.left_out.size()},
                 {"measured_s", run.measured.value()},
                 {"lower_quartile_s", steady.lower_quartile.value()},
                 {"upper_quartile_s", steady.upper_quartile.value()},
                 {"before_s", run.before.value()},
                 {"after_s", run.after.value()}};
    if (run.left_out) {
      json["by_others"] = {{"error", std::expm1(-run.left_out->error)},
                           {"half_width", std::expm1(kNormal90 * run.left_out->deviation)}};
    }
    json["unlikely"] = run.unlikely;
    json["contradicts"] = run.contradicts;
    json["doubts"] = own[i].log.doubts;
    runs.push_back(std::move(json));
  }
  Json values = Json::array();
  for (const FittedValue& value : learned.fitted.values) {
    values.push_back({{"name", value.name},
                      {"before", value.prior},
                      {"value", value.value},
                      {"low", value.low},
                      {"high", value.high},
                      {"determined", value.determined}});
  }
  return {{"cluster", learned.fitted.cluster},
          {"framework", learned.fitted.framework},
          {"basis", own[0].basis},
          {"runs", std::move(runs)},
          {"values", std::move(values)},
          {"noise", learned.fitted.learned->noise},
          {"half_width", learned.half_width},
          {"half_width_before", learned.half_width_before},
          {"output", output.empty() ? Json(nullptr) : Json(output)}};
}

/// Makes the folder in which commands look.
void make_learned_folder(const std::filesystem::path& output) {
  const std::filesystem::path folder = output.parent_path();
  std::error_code unmade;  // writing the file names the fault
  if (folder.filename() == ".plimsoll") std::filesystem::create_directory(folder, unmade);
}

ExitCode run_learn(const LearnOptions& options) {
  std::vector<std::string> inputs = options.question.scripts;
  inputs.insert(inputs.end(), options.question.logs.begin(), options.question.logs.end());
  inputs.push_back(options.question.target.cluster);
  make_learned_folder(options.output);
  check_output("-o", options.output, inputs);
  const std::vector<OwnRun> own = read_runs(options.question);
  std::vector<FitRun> runs;
  for (const OwnRun& one : own) runs.push_back(one.run);
  Learned learned = learn(std::move(runs), own[0].run.target.fitted);
  for (const OwnRun& one : own) learned.fitted.sources.push_back(one.file);
  if (!options.output.empty()) {
    const std::string text = fitted_calibration_text(learned.fitted);
    parse_fitted_calibration(text, options.output);  // what is written can be read
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  print_result(options.json ? json_text(learned_json(own, learned, options.output))
                            : in_columns(learned_text(own, learned)));
  return ExitCode::ok;
}

}  // namespace

void add_learn(CLI::App& app, Action& action) {
  const auto options = std::make_shared<LearnOptions>();
  CLI::App& command =
      *app.add_subcommand("learn", "learn a cluster's numbers from scripts of runs and their logs");
  command
      .add_option("--from", options->question.scripts,
                  "launch script or settings of a run; once for each run, in the order of --log")
      ->allow_extra_args(false)
      ->required();
  command.add_option("--log", options->question.logs, "what the trainer of that run printed")
      ->allow_extra_args(false)
      ->required();
  add_job(command, options->question.target, false);
  add_machine(command, options->question.target);
  command.add_option("-o,--output", options->output, "write the calibration here");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_learn(*options); }; });
}

}  // namespace plimsoll
