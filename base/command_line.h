// Command line: what the executables share. How words are refused, how results leave, and how a
// failure becomes one line and an exit code. Free of CLI11: templates take its App.
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
/// stderr, and its exit code.
int run_program(std::string_view name, const std::function<ExitCode()>& body);

/// Writes to stdout and flushes. Throws EnvironmentError when that fails (a full disk).
void print_result(std::string_view text);
/// Writes to stderr; when that fails, the work goes on without.
void print_note(std::string_view text);

/// Why `text` is not a number that an option takes; empty when it is one. Decimal digits only: hex,
/// octal, NaN and infinities are refused. For CLI11's check().
std::string refuse_integer(std::string_view text, std::int64_t least, std::int64_t most);
std::string refuse_number(std::string_view text, double least, double most);

/// Before the work whose result `file` (empty: none) will hold. Throws UsageError when it is also
/// one of `others`, which the command reads or writes, EnvironmentError when it cannot be written.
void check_output(std::string_view flag, const std::string& file,
                  std::span<const std::string> others);

/// Throws UsageError: `word` is no known flag, command or argument; names the nearest that is.
/// `where` is the command that it was given to, or empty.
[[noreturn]] void refuse_word(std::string_view where, const std::string& word,
                              std::span<const std::string> flags,
                              std::span<const std::string> commands);

/// Throws UsageError for "--flag=" with nothing behind it: CLI11 would take the next word.
void refuse_empty_values(int argc, char** argv);

/// Throws UsageError for the first word that `app` (a CLI::App with allow_extras()) did not know,
/// `commands` being its subcommands, and for options with an empty value.
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
