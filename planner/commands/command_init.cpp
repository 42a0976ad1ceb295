// `planner init`: a starting file of a job, a cluster or a framework, by questions or by flags.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/commands/commands.h"
#include "planner/init/init.h"

namespace plimsoll {
namespace {

struct InitOptions {
  Answers answers;
  std::string output;
  bool force = false;  ///< the file at `output` may be replaced
};

ExitCode run_init(InitKind kind, const InitOptions& options) {
  const auto based_on = options.answers.find("based-on");
  check_output("-o", options.output,
               std::array{based_on == options.answers.end() ? "" : based_on->second});
  // Its user edits the file that it wrote the last time.
  if (!options.output.empty() && !options.force && std::filesystem::exists(options.output)) {
    throw UsageError("-o " + options.output + ": the file exists; --force replaces it");
  }
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  const Answers answers = terminal ? ask(kind, options.answers, std::cin, std::cerr)
                                   : take_usual(kind, options.answers);
  const std::string text = init_text(kind, answers);
  if (options.output.empty()) {
    print_result(text);
  } else {
    write_file_atomically(options.output, text);
    print_note("wrote " + options.output + "\n");
  }
  const std::string_view name = kInitKinds[std::size_t(kind)];
  print_note(fmt::format(
      "planner schema {} has the meaning of each key{}\n", name,
      options.output.empty()
          ? ""
          : fmt::format("; planner describe {} prints what follows from them", options.output)));
  return ExitCode::ok;
}

/// The types of what a file may be based on (planner/cli/type_values.h), in the order of InitKind.
constexpr const char* kPresetTypes[] = {"JOB", "CLUSTER", "FRAMEWORK"};

void add_init_of(CLI::App& init, InitKind kind, const char* words, Action& action) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App& command = *init.add_subcommand(std::string(kInitKinds[std::size_t(kind)]), words);
  for (const auto& [key, what] : init_keys(kind)) {
    CLI::Option* option = command.add_option_function<std::string>(
        "--" + std::string(key),
        [options, key = std::string(key)](const std::string& text) {
          options->answers[key] = text;
        },
        std::string(what));
    if (key == "based-on") option->type_name(kPresetTypes[std::size_t(kind)]);
    if (key == "family") option->type_name("FAMILY");
  }
  command.add_option("-o,--output", options->output, "write the file here instead of to stdout");
  command.add_flag("--force", options->force, "replace the file of -o if it exists");
  command.callback(
      [options, kind, &action] { action = [options, kind] { return run_init(kind, *options); }; });
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  CLI::App& init = *app.add_subcommand(
      "init", "a starting file; asks on a terminal, and takes flags and usual answers elsewhere");
  init.require_subcommand(1);
  add_init_of(init, InitKind::job, "a job: a preset with changes, or sizes", action);
  add_init_of(init, InitKind::cluster, "a cluster with the devices of a preset", action);
  add_init_of(init, InitKind::framework, "a framework that is like a built-in one", action);
}

}  // namespace plimsoll
