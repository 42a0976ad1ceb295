// Command lines are parsed, and their values are read, without a command that runs.
#include "tests/fuzz/command_words.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "command_line/completion.h"
#include "command_line/parse.h"
#include "models/presets/presets.h"
#include "passes/strategy/strategy.h"
#include "planner/api/target.h"
#include "planner/cli/flags.h"
#include "planner/cli/type_values.h"
#include "planner/commands/dispatch.h"
#include "planner/explain/why_not.h"
#include "planner/init/init.h"
#include "planner/space/space.h"
#include "planner/sweep/sweep_inputs.h"

namespace plimsoll {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(std::string_view("\n\0", 2)), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

/// Returns the values that a flag or an argument was given; none where the command lacks it.
std::vector<std::string> values_of(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  return option == nullptr ? std::vector<std::string>() : option->results();
}

void read_sweep_values(const CLI::App& command) {
  const auto list = [&](const char* flag, std::int64_t most) {
    const std::vector<std::string> lists = values_of(command, flag);
    if (!lists.empty()) parse_numbers(flag, lists, 1, most);
  };
  list("--devices", kMostDevices);
  list("--global-batch", kMostGlobalBatch);
  list("--sequence", kMostSequence);
  for (const std::string& text : values_of(command, "--tokens")) parse_tokens(text);
  for (const std::string& text : values_of(command, "--price")) parse_price(text);
  for (const char* flag : {"--deadline", "--point-time-limit"}) {
    for (const std::string& text : values_of(command, flag)) parse_days(flag, text);
  }
}

/// Values of flags that mean alike in every command.
void read_common_values(const CLI::App& command) {
  const auto values = [&](const char* flag) { return values_of(command, flag); };
  parse_held(
      {values("--fix"), values("--max"), values("--min"), values("--exclude"), values("--try")});
  for (const std::string& text : values("--reserve")) parse_reserve(text);
  for (const std::string& text : values("--time-limit")) parse_time_limit(text);
  for (const std::string& text : values("--why-not")) parse_choices(text);
  for (const std::string& text : values("STRATEGY")) {
    if (text.find('=') != text.npos) parse_strategy(text);  // else it is the path of a file
  }
}

bool is_preset(const std::string& name) {
  const auto has = [&](const std::vector<Preset>& presets) {
    return std::ranges::any_of(presets, [&](const Preset& one) { return one.name == name; });
  };
  return has(job_presets()) || has(cluster_presets()) || has(framework_presets());
}

void read_init_answers(const CLI::App& command) {
  const auto* const found = std::ranges::find(kInitKinds, std::string_view(command.get_name()));
  if (found == std::end(kInitKinds)) return;
  const auto kind = InitKind(found - std::begin(kInitKinds));
  Answers answers;
  for (const auto& [key, what] : init_keys(kind)) {
    const std::vector<std::string> given = values_of(command, "--" + std::string(key));
    if (given.empty()) continue;
    if (key == "based-on" && !is_preset(given.back())) continue;  // else it is the path of a file
    answers[std::string(key)] = given.back();
  }
  init_text(kind, take_usual(kind, answers));
}

}  // namespace

void read_command_line(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  Action action;
  const std::unique_ptr<CLI::App> app = planner_app(action);
  next_words_text(complete(*app, words, values_of_type));

  std::vector<std::string> all = {"planner"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (parse_words(*app, int(all.size()), arguments.data())) return;
  for (const CLI::App* command : app->get_subcommands()) {
    read_common_values(*command);
    if (command->get_name() == "sweep") read_sweep_values(*command);
    if (command->get_name() != "init") continue;
    for (const CLI::App* kind : command->get_subcommands()) read_init_answers(*kind);
  }
}

}  // namespace plimsoll
