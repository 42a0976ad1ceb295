// Puts the sentence and the examples of a command before CLI11's help.
#include "command_line/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/columns.h"
#include "base/json.h"
#include "models/presets/command_presets.h"

namespace plimsoll {
namespace {

std::string opening(const CommandHelp& help) {
  std::string text = in_columns(help.about) + "\n\nExamples:\n";
  for (const CommandExample& example : help.examples) {
    text += fmt::format("  {}:\n    {}\n", example.task, example.command);
  }
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

}  // namespace plimsoll
