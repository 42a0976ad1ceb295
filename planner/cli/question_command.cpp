// Writes questions as command lines. Printed commands and the origins of plans are made here.
#include "planner/cli/question_command.h"

#include <fmt/format.h>

#include "interop/flags/flag_table.h"

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

void add_training(CommandLine& line, const TrainingQuestion& training, const std::string& reserve) {
  line.flag("--tokens", training.tokens);
  line.flag("--price", training.price);
  if (reserve != kDefaultReserve) line.flag("--reserve", reserve);
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
  line.flag("--time-limit", question.time_limit);
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

}  // namespace plimsoll
