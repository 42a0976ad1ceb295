// Parse: how every executable reads its command line, and answers --help and --version.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Parses the words of a command line. Returns the help or the version where the words ask for one
/// of them. Throws UsageError for what CLI11 refuses, and for words, commands and flags that nobody
/// knows; the message names the nearest that is known.
std::optional<std::string> parse_words(CLI::App& app, int argc, char** argv);

/// Parses the words as parse_words() does, and prints what they ask for. Returns false where they
/// asked for something. Throws UsageError as parse_words() does.
bool parse(CLI::App& app, int argc, char** argv);

}  // namespace plimsoll
