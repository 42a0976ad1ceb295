// `planner man`: manual pages of planner and its commands.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/file.h"
#include "command_line/help.h"
#include "plan/plan.h"
#include "planner/commands/commands.h"
#include "planner/terminal/exec_beside.h"

namespace plimsoll {
namespace {

struct ManOptions {
  std::vector<std::string> command;  ///< its words; empty: planner itself
  std::string folder;                ///< for all pages; empty: one page on stdout
};

/// Commands that are programs of their own, which know their options.
constexpr std::string_view kPrograms[] = {"calibrate", "run"};

bool is_program(const std::string& name) {
  return std::find(std::begin(kPrograms), std::end(kPrograms), name) != std::end(kPrograms);
}

std::string manual_source() { return fmt::format("planner {}", kProductVersion); }

const CLI::App& find_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* found = &app;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* one : found->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(one->get_name());
      if (names.back() == word) next = one;
    }
    if (next == nullptr) refuse_word("man", word, {}, names);
    found = next;
  }
  return *found;
}

/// Writes the page of a command and those of its commands.
void write_pages(const std::filesystem::path& folder, const CLI::App& command) {
  if (!is_program(command.get_name())) {
    write_file_atomically(folder / (full_name(command) + ".1"),
                          manual_page(command, manual_source()));
  }
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    write_pages(folder, *one);
}

ExitCode run_man(const CLI::App& app, const ManOptions& options) {
  if (!options.folder.empty()) {
    if (!options.command.empty()) throw UsageError("found COMMAND and -o, which writes all pages");
    write_pages(options.folder, app);
    return ExitCode::ok;
  }
  const CLI::App& command = find_command(app, options.command);
  if (is_program(command.get_name())) exec_beside(full_name(command), {"--man"});
  print_result(manual_page(command, manual_source()));
  return ExitCode::ok;
}

}  // namespace

void add_man(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ManOptions>();
  CLI::App& command = *app.add_subcommand("man", "the manual page of a command, as man reads it");
  command.add_option("COMMAND", options->command, "words of a command; default: planner itself");
  command.add_option("-o,--output", options->folder,
                     "write the pages of all commands of this program into this folder");
  command.callback(
      [options, &app, &action] { action = [options, &app] { return run_man(app, *options); }; });
}

}  // namespace plimsoll
