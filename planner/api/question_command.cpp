// Writes questions as command lines. Printed commands and the origins of plans are made here.
#include "planner/api/question_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "interop/flags/flag_table.h"
#include "models/calibration/calibration_file.h"
#include "models/presets/presets.h"
#include "planner/sweep/sweep_inputs.h"
#include "predict/calibration_choice.h"

namespace plimsoll {
namespace {

/// A CommandLine takes words and flags. It leaves out empty ones.
class CommandLine {
 public:
  explicit CommandLine(std::string command) : text_(std::move(command)) {}

  void word(const std::string& value) {
    if (!value.empty()) text_ += " " + shell_word(value);
  }
  void flag(std::string_view name, const std::string& value) {
    if (!value.empty()) text_ += fmt::format(" {} {}", name, shell_word(value));
  }
  void flag(const char* name, std::optional<std::int64_t> value) {
    if (value) text_ += fmt::format(" {} {}", name, *value);
  }
  void toggle(const char* name, bool is_set) {
    if (is_set) text_ += fmt::format(" {}", name);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

/// Adds what states job and machine.
void add_target(CommandLine& line, const TargetOptions& target) {
  line.flag("--from", target.from);
  line.flag("--vocab", target.vocab);
  line.toggle("--ignore-unknown", target.ignore_unknown);
  line.flag("--global-batch", target.global_batch);
  line.flag("--sequence", target.sequence);
  line.flag("--cluster", target.cluster);
  for (const std::string& calibration : target.calibration) line.flag("--calibration", calibration);
  if (target.devices > 0) line.flag("--devices", target.devices);
  line.flag("--framework", target.framework);
}

/// Returns "15T" for 15e12: a number that --tokens takes.
std::string tokens_text(double tokens) {
  for (const auto& [unit, scale] : {std::pair("T", 1e12), {"B", 1e9}, {"M", 1e6}, {"k", 1e3}}) {
    const std::string text = fmt::format("{}{}", tokens / scale, unit);
    if (tokens >= scale && parse_tokens(text) == tokens) return text;
  }
  return fmt::format("{}", tokens);
}

void add_training(CommandLine& line, const std::optional<TrainingGoal>& training, Bytes reserve) {
  if (training) line.flag("--tokens", tokens_text(training->tokens));
  if (training && training->price) line.flag("--price", fmt::format("{}/h", *training->price));
  if (reserve != kDefaultReserve) line.flag("--reserve", exact_text(reserve));
}

/// Returns a file name after a name that a file states: one that is no flag, and not too long for a
/// plan to be read again.
std::string file_named(const std::string& name, const std::string& ending) {
  return (name.starts_with('-') ? "./" : "") + shortened(name, 200) + ending;
}

/// Returns the ending of a path, if it is one of plain letters and digits.
std::string ending_of(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending.size() < 2 || as_one_word(ending) != ending ? ".sh" : ending;
}

/// Returns the name of the preset with this digest, else a file name after the name in the file.
std::string file_word(const std::string& digest_of_file, const std::vector<Preset>& presets,
                      const std::string& name) {
  for (const Preset& preset : presets) {
    if (digest(preset.text) == digest_of_file) return std::string(preset.name);
  }
  return file_named(name, ".json");
}

bool built_in(const std::string& calibration) {
  for (const std::string_view word : {kBuiltInCalibration, kTypicalCalibration, kNoCalibration}) {
    if (calibration == word) return true;
  }
  return find_preset(calibration_presets(), calibration).has_value();
}

/// Returns a built-in calibration's name, or a file name by the kind of the file's contents.
std::string calibration_word(const std::string& calibration) {
  if (built_in(calibration)) return calibration;
  const CalibrationFile file = parse_calibration_file(read_file(calibration), calibration);
  return file.measured ? "calibration.json" : "fit.json";
}

}  // namespace

std::string command_of(const PlanQuestion& question) {
  CommandLine line("planner plan");
  line.word(question.target.job);
  add_target(line, question.target);
  for (const auto& [flag, value] : flags_of(question.constraints)) line.flag(flag, value);
  if (question.top > 0) line.flag("--top", question.top);
  line.toggle("--fastest", question.fastest);
  add_training(line, question.training, question.reserve);
  if (question.time_limit)
    line.flag("--time-limit", fmt::format("{} s", question.time_limit->value()));
  return std::move(line).text();
}

std::string command_of(const SimulationQuestion& question) {
  CommandLine line("planner simulate");
  line.word(question.target.job);
  line.word(question.strategy);
  add_target(line, question.target);
  add_training(line, question.training, question.reserve);
  return std::move(line).text();
}

PlanOrigin origin_of(const LoadedTarget& loaded, const PlanQuestion& question) {
  const Target& target = loaded.target;
  PlanQuestion portable = question;
  portable.time_limit.reset();  // a plan that is made again may take its time
  TargetOptions& files = portable.target;
  if (files.imported) {
    if (!files.job.empty()) files.job = file_named(target.job.name, ".json");
    files.from = file_named(target.job.name, ending_of(files.from));
  } else {
    files.job = file_word(digest(given_text(files.texts, files.job, job_presets())), job_presets(),
                          target.job.name);
  }
  files.cluster = file_word(loaded.cluster_digest, cluster_presets(), target.cluster().name);
  for (std::string& calibration : files.calibration) calibration = calibration_word(calibration);
  files.devices = target.devices;
  if (!files.framework.empty() && find_framework(files.framework) == nullptr)
    files.framework = file_named(target.framework().name, ".json");

  PlanOrigin origin;
  origin.command = command_of(portable);
  if (built_in(loaded.source.name)) origin.calibration_name = loaded.source.name;
  origin.calibration_provenance = loaded.source.words;
  return origin;
}

}  // namespace plimsoll
