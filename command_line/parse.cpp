// Parses command lines; CLI11's own errors become UsageError.
#include "command_line/parse.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "command_line/help.h"

namespace plimsoll {
namespace {

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

/// Leaves flags that nobody knows to refuse_unknown(), which can name the nearest.
void allow_unknown(CLI::App& app) {
  app.allow_extras();
  for (CLI::App* command : commands_of(app)) allow_unknown(*command);
}

/// Throws UsageError for the first word that nobody knows, or an empty value.
void refuse_unknown(CLI::App& app) {
  std::vector<std::string> commands;
  for (const CLI::App* command : commands_of(app)) commands.push_back(command->get_name());
  refuse_leftovers(app, commands);
  for (CLI::App* command : app.get_subcommands()) refuse_unknown(*command);
}

}  // namespace

std::optional<std::string> parse_words(CLI::App& app, int argc, char** argv) {
  refuse_empty_values(argc, argv);
  allow_unknown(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return help_text(app);
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    refuse_unknown(app);  // a misspelt flag is the likelier cause of a missing one
    throw UsageError(error.what());
  }
  refuse_unknown(app);
  return std::nullopt;
}

bool parse(CLI::App& app, int argc, char** argv) {
  const std::optional<std::string> asked = parse_words(app, argc, argv);
  if (asked) print_result(*asked);
  return !asked;
}

}  // namespace plimsoll
