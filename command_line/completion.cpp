// Follows the words of a command line through CLI11's commands and options to what may come next.
#include "command_line/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_line.h"
#include "command_line/help.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostMeaning = 70;  // characters beside a word on a terminal's line

/// Returns the first words of a text, as many as fit on a line.
std::string shortened(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= kMostMeaning) return text;
  text.resize(std::min(text.rfind(' ', kMostMeaning), kMostMeaning));
  return text + " ...";
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() != 0; }

bool repeatable(const CLI::Option& option) {
  return option.get_expected_max() >= CLI::detail::expected_max_vector_size;
}

/// A Position is what the words before the last one lead to.
struct Position {
  const CLI::App* command;
  std::size_t arguments = 0;             ///< of the command, before the last word
  const CLI::Option* waiting = nullptr;  ///< option whose value the last word is
  std::set<const CLI::Option*> given = {};
};

const CLI::Option* option_of(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional() && option->check_name(name)) return option;
  }
  return nullptr;
}

std::vector<const CLI::App*> commands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

Position follow(const CLI::App& program, std::span<const std::string> words) {
  Position at{&program};
  for (const std::string& word : words) {
    if (at.waiting != nullptr) {
      at.waiting = nullptr;
    } else if (word.size() > 1 && word[0] == '-') {
      const CLI::Option* option = option_of(*at.command, word);
      if (option == nullptr) continue;
      at.given.insert(option);
      if (takes_value(*option) && word.find('=') == word.npos) at.waiting = option;
    } else {
      const auto commands = commands_of(*at.command);
      const auto named = std::ranges::find(commands, word, &CLI::App::get_name);
      if (named != commands.end()) {
        at = Position{*named};
      } else {
        ++at.arguments;
      }
    }
  }
  return at;
}

/// Returns the words of "TEXT:{fp32,bf16}", which CLI11 writes for a choice.
std::vector<NextWord> listed_values(const std::string& type) {
  std::vector<NextWord> words;
  const std::size_t open = type.find('{'), close = type.find('}', open);
  if (open == type.npos || close == type.npos) return words;
  for (std::size_t begin = open + 1; begin < close;) {
    const std::size_t end = std::min(type.find(',', begin), close);
    words.push_back({type.substr(begin, end - begin)});
    begin = end + 1;
  }
  return words;
}

NextWords values_of(const CLI::Option& option, std::string_view begin, const ValuesOfType& values) {
  const std::string full = option.get_type_name();
  std::vector<NextWord> listed = listed_values(full);
  if (!listed.empty()) return {std::move(listed)};
  std::string type = full.substr(0, full.find(':'));
  if (type == "INT" || type == "UINT" || type == "FLOAT") return {};
  if (type == "TEXT" && option.get_positional()) type = option.get_name(true, false);
  return values(type, begin);
}

void add_options(const Position& at, std::vector<NextWord>& words) {
  for (const CLI::Option* option : at.command->get_options()) {
    if (!option->nonpositional() || option->get_group().empty()) continue;
    if (at.given.contains(option) && !repeatable(*option)) continue;
    const std::string meaning = shortened(option->get_description());
    for (const std::string& name : option->get_lnames()) words.push_back({"--" + name, meaning});
    for (const std::string& name : option->get_snames()) words.push_back({"-" + name, meaning});
  }
}

/// Returns the argument whose turn it is, or nothing. The last one may take all that follow.
const CLI::Option* argument_at(const Position& at) {
  const auto arguments =
      at.command->get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (at.arguments < arguments.size()) return arguments[at.arguments];
  if (arguments.empty() || !repeatable(*arguments.back())) return nullptr;
  return arguments.back();
}

NextWords next_words(const Position& at, const std::string& last, const ValuesOfType& values) {
  if (at.waiting != nullptr) return values_of(*at.waiting, last, values);
  const std::size_t equals = last.find('=');
  if (last.starts_with("--") && equals != last.npos) {
    const CLI::Option* option = option_of(*at.command, last);
    if (option == nullptr) return {};
    NextWords found = values_of(*option, std::string_view(last).substr(equals + 1), values);
    for (NextWord& one : found.words) one.word = last.substr(0, equals + 1) + one.word;
    return found;
  }
  NextWords found;
  if (last.starts_with('-')) {
    add_options(at, found.words);
    return found;
  }
  if (const CLI::Option* argument = argument_at(at)) found = values_of(*argument, last, values);
  if (at.arguments > 0) return found;
  for (const CLI::App* command : commands_of(*at.command)) {
    found.words.push_back({command->get_name(), shortened(command->get_description())});
  }
  return found;
}

/// Types whose values are neither files nor known.
constexpr std::string_view kNoFiles[] = {"TIME", "PRECISION"};

NextWords program_values(std::string_view type, std::string_view) {
  NextWords found;
  found.files = std::ranges::find(kNoFiles, type) == std::end(kNoFiles);
  if (type != "CLUSTER") return found;
  for (const Preset& preset : cluster_presets()) found.words.push_back({std::string(preset.name)});
  return found;
}

}  // namespace

NextWords complete(const CLI::App& program, std::span<const std::string> words,
                   const ValuesOfType& values) {
  if (words.empty()) return {};
  const std::string& last = words.back();
  NextWords found = next_words(follow(program, words.first(words.size() - 1)), last, values);
  std::erase_if(found.words, [&](const NextWord& one) { return !one.word.starts_with(last); });
  return found;
}

std::string next_words_text(const NextWords& candidates) {
  std::string text;
  for (const NextWord& one : candidates.words) {
    text += one.word;
    if (!one.meaning.empty()) text += "\t" + one.meaning;
    text += "\n";
  }
  return candidates.files ? text + ":files\n" : text;
}

bool answer_shell(CLI::App& program, int argc, char** argv) {
  if (argc < 2) return false;
  const std::string_view asked = argv[1];
  name_types(program);
  if (asked == "--man") {
    print_result(manual_page(program, program.get_name()));
    return true;
  }
  if (asked != "--complete") return false;
  const int first = argc > 2 && std::string_view(argv[2]) == "--" ? 3 : 2;
  const std::vector<std::string> words(argv + std::min(first, argc), argv + argc);
  print_result(next_words_text(complete(program, words, program_values)));
  return true;
}

}  // namespace plimsoll
