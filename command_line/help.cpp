// Puts the sentence and the examples of a command before CLI11's help, and writes manual pages of
// the same.
#include "command_line/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

std::string opening(const CommandHelp& help) {
  std::string text = in_columns(help.about) + "\n\nExamples:\n";
  for (const CommandExample& example : help.examples) {
    text += fmt::format("  {}:\n    {}\n", example.task, example.command);
  }
  return text;
}

struct FlagType {
  std::string_view flag, type;
};

constexpr FlagType kFlagTypes[] = {
    {"after", "STAGE"},
    {"before", "STAGE"},
    {"budget", "TIME"},
    {"calibration", "CALIBRATION"},
    {"cluster", "CLUSTER"},
    {"cluster-out", "FILE"},
    {"collective", "COLLECTIVE"},
    {"data", "FILE"},
    {"date", "DATE"},
    {"device", "CLUSTER"},
    {"exclude", "KEY=VALUE"},
    {"fix", "KEY=VALUE"},
    {"framework", "FRAMEWORK"},
    {"framework-out", "FILE"},
    {"from", "SCRIPT"},
    {"goals", "FILE"},
    {"inputs", "FOLDER"},
    {"max", "KEY=VALUE"},
    {"measured", "FILE"},
    {"min", "KEY=VALUE"},
    {"name", "NAME"},
    {"network", "RATE"},
    {"nic-bandwidth", "RATE"},
    {"nvlink-bandwidth", "RATE"},
    {"output", "FILE"},
    {"pcie-bandwidth", "RATE"},
    {"plan", "FILE"},
    {"precision", "PRECISION"},
    {"reserve", "BYTES"},
    {"socket-bandwidth", "RATE"},
    {"stated", "FOLDER"},
    {"strategy-out", "FILE"},
    {"time", "TIME"},
    {"time-limit", "TIME"},
    {"trace", "FILE"},
    {"why-not", "CHOICES"},
};

/// The name that CLI11 gives to an option of text by itself.
constexpr std::string_view kUnnamed = "TEXT";

/// Returns a text that troff prints as it is. Hyphens stay ASCII, so that commands can be copied.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      // A line that begins with one of these is a request.
      if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
      result += c;
    }
  }
  return result;
}

std::string spaced_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : spaced_name(*parent) + " " + command.get_name();
}

std::vector<const CLI::App*> shown_commands(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

std::vector<const CLI::Option*> arguments_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::string synopsis(const CLI::App& command) {
  std::string text = fmt::format("\\fB{}\\fR [\\fIoption\\fR ...]", plain(spaced_name(command)));
  for (const CLI::Option* option : arguments_of(command)) {
    const bool several = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
    const std::string name =
        fmt::format("\\fI{}\\fR{}", plain(option->get_name(true, false)), several ? " ..." : "");
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  const bool all_commands = command.get_require_subcommand_min() > 0;
  if (!shown_commands(command).empty())
    text += all_commands ? " \\fIcommand\\fR" : " [\\fIcommand\\fR]";
  return text;
}

std::string option_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("\\fB\\-" + name + "\\fR");
  for (const std::string& name : option.get_lnames())
    names.push_back("\\fB\\-\\-" + plain(name) + "\\fR");
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (option.get_items_expected_max() == 0) return text;
  text += fmt::format(" \\fI{}\\fR", plain(option.get_type_name()));
  if (!option.get_default_str().empty())
    text += fmt::format(" (default: {})", plain(option.get_default_str()));
  if (option.get_required()) text += " (required)";
  return text;
}

std::string entry(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", head, plain(text));
}

std::string examples_section(const CommandHelp& help) {
  std::string text = ".SH EXAMPLES\n";
  for (const CommandExample& example : help.examples) {
    text += fmt::format(".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", plain(example.task),
                        plain(example.command));
  }
  return text;
}

std::string options_section(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional() && !option->get_group().empty())
      text += entry(option_names(*option), option->get_description());
  }
  return text.empty() ? text : ".SH OPTIONS\n" + text;
}

std::string see_also(const CLI::App& command) {
  std::vector<std::string> pages;
  for (const CLI::App* other : shown_commands(command)) pages.push_back(full_name(*other));
  if (const CLI::App* parent = command.get_parent()) {
    pages.push_back(full_name(*parent));
    for (const CLI::App* other : shown_commands(*parent)) {
      if (other != &command) pages.push_back(full_name(*other));
    }
  }
  if (pages.empty()) pages = {"planner"};
  std::sort(pages.begin(), pages.end());
  std::string text = ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < pages.size(); ++i)
    text += fmt::format(".BR {} (1){}\n", plain(pages[i]), i + 1 < pages.size() ? "," : "");
  return text;
}

}  // namespace

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + "-" + command.get_name();
}

std::optional<CommandHelp> find_help(std::string_view full_name) {
  const auto text = find_preset(command_presets(), full_name);
  if (!text) return std::nullopt;
  const std::string file(full_name);
  const Json json = parse_json(*text, file);
  JsonObject object(json, file);
  CommandHelp help;
  help.about = object.text("about");
  for (JsonObject& example : object.objects("examples")) {
    help.examples.push_back({example.text("task"), example.text("command")});
    example.finish();
  }
  if (object.has("exit_status")) {
    JsonObject codes = object.object("exit_status");
    for (const std::string& code : codes.keys())
      help.exit_status.emplace_back(code, codes.text(code));
  }
  object.finish();
  return help;
}

std::string help_text(CLI::App& root) {
  CLI::App* chosen = &root;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().back();
  if (const auto help = find_help(full_name(*chosen))) chosen->description(opening(*help));
  const std::string text = root.help();
  const std::size_t usage = std::min(text.find("\nUsage: "), text.size());
  return text.substr(0, usage) + in_columns(text.substr(usage));  // commands stay whole
}

void name_types(CLI::App& program) {
  for (CLI::Option* option : program.get_options()) {
    const std::string type = option->get_type_name();
    if (option->get_lnames().empty() || type.substr(0, type.find(':')) != kUnnamed) continue;
    const auto named = std::ranges::find(kFlagTypes, option->get_lnames()[0], &FlagType::flag);
    if (named != std::end(kFlagTypes)) option->type_name(std::string(named->type));
  }
  for (CLI::App* command : program.get_subcommands([](CLI::App*) { return true; }))
    name_types(*command);
}

std::string manual_page(const CLI::App& command, const std::string& source) {
  const std::string name = full_name(command);
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return char(std::toupper(c)); });
  std::string text = fmt::format(".TH \"{}\" \"1\" \"\" \"{}\" \"Plimsoll\"\n", title, source);
  std::string phrase = command.get_description();
  if (phrase.ends_with('.')) phrase.pop_back();
  text += fmt::format(".SH NAME\n{} \\- {}\n", plain(name), plain(phrase));
  text += fmt::format(".SH SYNOPSIS\n{}\n", synopsis(command));
  const auto help = find_help(name);
  if (help) {
    text += fmt::format(".SH DESCRIPTION\n{}\n", plain(help->about));
    text += examples_section(*help);
  }
  std::string arguments;
  for (const CLI::Option* option : arguments_of(command)) {
    arguments += entry(fmt::format("\\fI{}\\fR", plain(option->get_name(true, false))),
                       option->get_description());
  }
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  text += options_section(command);
  std::string commands;
  for (const CLI::App* one : shown_commands(command))
    commands += entry(fmt::format("\\fB{}\\fR", plain(one->get_name())), one->get_description());
  if (!commands.empty()) text += ".SH COMMANDS\n" + commands;
  if (help && !help->exit_status.empty()) {
    text += ".SH EXIT STATUS\n";
    for (const auto& [code, meaning] : help->exit_status)
      text += entry(fmt::format("\\fB{}\\fR", code), meaning);
  }
  return text + see_also(command);
}

}  // namespace plimsoll
