// Parse: how every executable reads its command line, and answers --help and --version.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Parses the words of a command line. Returns false where they asked for help or the version,
/// which is then printed. Throws UsageError for what CLI11 refuses, and for words, commands and
/// flags that nobody knows; the message names the nearest that is known.
bool parse(CLI::App& app, int argc, char** argv);

}  // namespace plimsoll
