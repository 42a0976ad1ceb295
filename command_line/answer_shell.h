// Answer shell: what a program of few options tells scripts of shells and of manual pages.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

/// Prints what is asked for and returns true, if the first word is `--complete` (then `--` and the
/// words of a command line follow) or `--man` (the manual page). `program` has no commands.
bool answer_shell(CLI::App& program, int argc, char** argv);

}  // namespace plimsoll
