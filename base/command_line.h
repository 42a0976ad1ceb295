// This header has what the command lines of all executables share: how they refuse words, print
// results, and turn a failure into one line and an exit code. It does not include CLI11, so its
// templates take CLI11's App.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace plimsoll {

/// Runs `body` and returns the code to exit with. An exception becomes "NAME: MESSAGE", one line on
/// stderr, and its exit code. Where memory is refused, that is so in every thread and destructor,
/// and saying it needs no memory. `name` outlives the program.
int run_program(std::string_view name, const std::function<ExitCode()>& body);

/// Writes to stdout, without controls, and flushes. Throws EnvironmentError when that fails (a full
/// disk).
void print_result(std::string_view text);
/// Returns the text with a '?' for each character that a terminal would act on: names of files and
/// texts in them are other people's. Ends of lines and tabs stay.
std::string without_controls(std::string_view text);
/// Writes the text to stderr, without controls. A failed write is ignored, and the work goes on.
void print_note(std::string_view text);

/// Returns why `text` is not a number that an option takes, and nothing when it is one. Only
/// decimal digits are allowed; hex, octal, NaN and infinities are refused. CLI11's check() calls
/// this.
std::string refuse_integer(std::string_view text, std::int64_t least, std::int64_t most);
std::string refuse_number(std::string_view text, double least, double most);

/// Checks the output file of a command before its work begins; an empty `file` means no output.
/// Throws UsageError when the file is also one of `others`, which the command reads or writes.
/// Throws EnvironmentError when the file cannot be written.
void check_output(std::string_view flag, const std::string& file,
                  std::span<const std::string> others);

/// Throws UsageError: `word` is no known flag, command or argument. The message names the nearest
/// word that is known. `where` is the command that got `word`, or empty.
[[noreturn]] void refuse_word(std::string_view where, const std::string& word,
                              std::span<const std::string> flags,
                              std::span<const std::string> commands);

/// Throws UsageError for "--flag=" without a value, because CLI11 would take the next word as the
/// value.
void refuse_empty_values(int argc, char** argv);

/// Throws UsageError for the first word that `app` did not know, and for options with an empty
/// value. `app` is a CLI::App with allow_extras(), and `commands` are its subcommands.
template <class App>
void refuse_leftovers(const App& app, std::span<const std::string> commands = {}) {
  std::vector<std::string> flags;
  for (const auto* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::string where = app.get_parent() == nullptr ? "" : app.get_name();
  const std::vector<std::string> leftovers = app.remaining();
  if (!leftovers.empty()) refuse_word(where, leftovers[0], flags, commands);
  for (const auto* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) throw UsageError(option->get_name() + ": the value is empty");
    }
  }
}

}  // namespace plimsoll
